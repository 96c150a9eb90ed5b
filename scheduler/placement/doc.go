// Package placement says which executors a task may be given: one on which it
// hasn't failed, and one that doesn't fail tasks for reasons of its own, such as a
// full disk, as long as there is another.
//
// It is pure. Nothing here keeps a task from running: when every executor is one to
// avoid, none is.
package placement
