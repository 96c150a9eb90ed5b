// Package lifecycle decides what may become of an external write, as a pure step
// machine: Step takes the write as it is on record, one event, and gives the write
// as it is to be recorded and an answer. The journal calls it inside the transaction
// that reads and writes the record, so that every decision is one compare-and-set,
// however many drivers, workers and schedulers ask at the same time.
//
// What it guarantees, whatever the order and repetition of events:
//
//   - A write is sealed at most once, with one set of handles. Every later commit is
//     told that set: it joins it, or is told that it isn't its own.
//   - Exactly one of seal, abort and expiry takes a write out of open.
//   - Nothing is added to a write that isn't open.
//   - An attempt has one manifest, and a handle is good for the content that it was
//     given for, in the write that it was given for.
package lifecycle
