// Package delta reads and writes the log of Delta tables: JSON commits,
// checkpoints of all kinds, and the snapshots that they make.
//
// # Reading
//
// A Snapshot is one version of a table. It is lazy: opening one reads the newest
// checkpoint's few columns of protocol, metadata, transactions and domains, and
// the commits after it, of which file actions are passed over. That is all that an
// append needs, whatever the number of files. Files streams the live files:
// commits from the newest to the oldest, then the checkpoint, with one set of the
// files that the commits named. So its memory grows with the commits since the
// checkpoint, and not with the table.
//
// _last_checkpoint is a hint. When it is missing, torn, stale or names what is
// gone, the log is listed. A checkpoint that can't be read is passed over for an
// older one, or for the commits, as long as those are there.
//
// # Writing
//
// A commit is one PutIfAbsent of <version>.json; nobody can take the version
// again. Commits here never repeat it: whether a lost reply was a commit is found
// by reading the version back and comparing its txnId (Settle).
//
// # Limits
//
// The log of another writer is untrusted: lines, schemas, statistics and numbers
// of files have bounds, and damage is an error that names the file.
package delta
