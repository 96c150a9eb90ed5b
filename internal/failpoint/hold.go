package failpoint

// Names of the files that a test makes in $FIRN_FAILPOINT_HOLDS, to have something
// last for as long as they are there.
const (
	// HoldDisk: each write to a file of shuffle output, each batch read from one, and
	// the end of each data file in a directory takes a while.
	HoldDisk = "disk"
	// HoldPeers: nothing comes from other executors or goes to them, on connections
	// that this one has made.
	HoldPeers = "peers"
)
