// Package canary looks for secrets where there must be none: in the messages between
// processes, in what a process has in memory and in its environment, in files, logs
// and answers. Its test plants canaries, values that stand nowhere else, in every
// place of a scheduler's configuration that takes a secret, runs the main paths with
// executors as processes of their own, and then searches.
package canary
