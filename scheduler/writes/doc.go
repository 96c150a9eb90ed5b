// Package writes is the open write protocol on the scheduler's side: processes that
// aren't Firn's open a write, put data files under its prefix, hand manifests of
// them in over Arrow Flight, and ask for the commit. docs/reference/write-protocol.md
// specifies it.
//
// An open write is a kind of job: its commit is the scheduler root of that job, and
// goes the way of all others.
package writes
