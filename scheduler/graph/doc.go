// Package graph is a job's state machine: events and time in, actions out.
//
// It is pure: no goroutine, clock, socket or file. The event loop of package
// scheduler carries the actions out and feeds what happened back in. Static
// and adaptive planning share it.
package graph
