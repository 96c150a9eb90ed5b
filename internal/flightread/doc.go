// Package flightread reads shuffle output from executors over Arrow Flight. It
// is used by executors (a task's input), by the scheduler (the root's file
// manifests) and by clients (the rows of a SELECT), so it knows nothing of any
// of them.
//
// Losing a connection isn't losing data: a reader connects again, asks for the
// same output and skips what it has delivered. Output files never change, so
// what follows is the same. Only when the output is gone, or its executor can't
// be reached any more, is the input lost (wire.LostInputError). One that stands still
// is asked whether it is there, and is as good as gone when it doesn't answer for a
// while; one that only has no rows yet is waited for.
package flightread
