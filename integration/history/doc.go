// Package history judges what writers were told by what a table says.
//
// Writers insert units: sets of row ids that no other unit has. A History records
// when a unit was submitted and what its writer was told: committed, failed, or
// nothing (a lost connection, an unknown outcome). Appends commute, so no order
// need be found to judge them: in the end, each row of a committed unit must be
// there exactly once, none of a failed one, and all rows or none of one whose
// writer never learned its fate. This is the "set" test of Jepsen.
//
// Read is the independent reader that the judgement rests on: the list of files
// comes from iceberg-go's own scan, the rows from plain DuckDB.
package history
