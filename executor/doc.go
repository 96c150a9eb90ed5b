// Package executor runs the tasks of jobs.
//
// An executor has a number of task slots. Each runs one task attempt at a time:
// the operators of a fragment, from a query or the shuffle output of earlier
// stages to an exchange or to data files. What an attempt gives, rows for the
// next stage or file manifests for the scheduler root, is written as shuffle
// output and served over Arrow Flight.
//
// The executor registers at one scheduler and follows it. It holds no catalog
// setting and no catalog secret: a task carries the location and the storage
// access that it needs, and commits are none of its business.
//
// # Keeping both sides in agreement
//
// A launch may come twice, and a status report or its answer may get lost. An
// attempt therefore runs at most once, by its id; its last status is repeated
// until the scheduler has acknowledged it; and heartbeats list what runs or
// waits to be acknowledged, so that the scheduler can tell a slow attempt from
// a lost one. An executor that the scheduler doesn't know any more registers
// again and goes on.
package executor
