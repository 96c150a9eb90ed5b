// Package hostile is an executor that lies: a process that joins a cluster with a
// good token, takes tasks, and then does one of the attacks of a table. Its tests run
// it beside honest executors, and see that it loses its own job, by the rule that the
// error names, and that nothing else is touched: other jobs commit meanwhile, no file
// is deleted or committed that isn't its job's, and the scheduler's memory stays small.
//
// The process is the test's own program, started again (Main). The test tells it over
// stdin when to take tasks, and which attack to make of them.
package hostile
