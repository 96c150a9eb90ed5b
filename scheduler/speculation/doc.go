// Package speculation says which running tasks take so much longer than the others
// of their stage that a second attempt is worth its slot.
//
// It is pure. What comes of it is the graph's: the first success of the two is
// accepted, and the other attempt is stopped.
package speculation
