// Package journaltest is the conformance suite of package journal: what every
// implementation must do, whatever it keeps its records in.
package journaltest
