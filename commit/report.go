package commit

import "time"

// CommitState is a job's separate field for whether the table changed, so that
// no job state hides it.
type CommitState string //nolint:revive // State is a unit's, this is a job's

// Values of a job's commit field.
const (
	CommitNone      CommitState = "none"
	CommitPreparing CommitState = "preparing"
	CommitInFlight  CommitState = "in_flight"
	CommitCommitted CommitState = "committed"
	CommitRefused   CommitState = "refused"
	CommitUnknown   CommitState = "unknown"
)

// Report is the one-row result of a job that commits. Its size is bounded
// before the commit runs: nothing in it grows with the number of files.
type Report struct {
	JobID           string
	Key             string
	Table           TableName
	Format          string
	Operation       Operation
	State           CommitState
	Deduplicated    bool
	RolledBack      bool
	Rows            int64
	Files           int64
	Bytes           int64
	SnapshotID      string
	Attempts        int
	Conflicts       int
	CommittedAt     time.Time
	OtherSubmission bool
}
