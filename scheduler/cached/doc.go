// Package cached is the state machine of cached frames: the rows of a query that
// stay on executors, as shuffle output, for later jobs to read.
//
// It is pure: events and time go in, actions come out. The event loop of package
// scheduler carries the actions out: it runs the jobs that build frames, hands
// pieces to the jobs that read them, frees data, and writes the journal.
//
// A frame is made of pieces, one for each task of the last stage of the job that
// built it. A piece that is lost is built again when somebody wants it: alone, if
// the frame repeats (a task that runs again gives the same rows in the same order),
// or else with all others, since rows of two runs of such a query must never meet
// in one result. Whoever wants a lost piece waits for one and the same build.
package cached
