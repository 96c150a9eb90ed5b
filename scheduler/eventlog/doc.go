// Package eventlog writes what happens to jobs: JSON lines, one file for each job,
// DIR/<job id>.jsonl. A line is written after the transition that it reports, and a
// job's end after the journal has it.
//
// The log is for people and tools that look at jobs afterwards. Nothing is decided
// by it: lines that a crash or a full disk takes are missing, and no more.
package eventlog
