// Package committer is the thin shell around the commit machine: it owns the
// tables of this process, one goroutine for each that has work, and carries the
// machine's effects out over a driver (commit.Table) and a Recorder. Units that
// arrive while a request is in flight go out together in the next one.
//
// It also runs the commit operator as a scheduler root: read all file
// manifests, verify them, make the commit unit, queue it at its table's owner,
// report what happened.
package committer
