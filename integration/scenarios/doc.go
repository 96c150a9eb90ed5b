// Package scenarios runs what public bug reports of other systems tell against a
// whole cluster in one process, over a REST catalog behind a proxy of faults. Its
// tests have the numbers of docs/explanation/proven.md. In the end an independent
// reader says what is in the table.
package scenarios
