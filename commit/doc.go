// Package commit holds Firn's vocabulary and its heart: the commit operator as
// a pure step machine.
//
// It imports only the standard library, starts no goroutine, reads no clock and
// touches no file or socket. Everything that is hard about committing exactly
// once is decided here, so that it can be proven here; the shells around it
// (package scheduler/committer, the drivers under catalog) only carry effects
// out.
//
// The words used in this package are those of docs/explanation/design.md: a
// commit unit is identified for ever by its token, takes a seat in the table,
// and ends in exactly one of three outcomes.
package commit
