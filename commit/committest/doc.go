// Package committest tests the commit protocol from both sides.
//
// Catalog and Driver are an in-memory table with faults to order: requests
// and replies that get lost, land late or twice, catalogs that lie, stale reads,
// other people's commits. Drive runs a commit.Machine over any commit.Table with
// a clock that only waits move.
//
// Run is the conformance suite that every driver passes; see Harness for what a
// driver's test brings to it.
package committest
