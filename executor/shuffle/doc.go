// Package shuffle keeps the output of an executor's tasks, serves it over Arrow
// Flight, and reads the output of other executors.
//
// A task attempt's output is one Arrow IPC file for each output partition,
//
//	<dir>/shuffle/<job>/<stage>.<task>.<attempt>/<output>.arrow
//
// written under a hidden name and renamed as a whole, so that an attempt's
// output is there completely or not at all. Files never change, which is what
// lets a reader resume. The attempt's id is part of the path, so a loser never
// touches what the accepted attempt wrote.
//
// The tasks of a pipelined job write live outputs: their files are read while they
// grow. A reader gets what there is and waits for more; it ends when the attempt was
// written whole, and fails when it was given up. The writer never waits for its
// readers: what they haven't read lies in the file, within the quota.
//
// Most outputs are file manifests of some kilobytes, and making, renaming and
// removing files takes longer than writing those. An output of up to 64 KiB stays
// in memory, as long as all of them take at most 16 MiB: no output outlives the
// executor's process anyway.
//
// Whoever wants a file shows a ticket that the scheduler signed (package wire).
// A stream that a client uploads becomes a file of the same kind: the upload
// takes the place of the job, with stage 0, task 0 and output 0.
package shuffle
