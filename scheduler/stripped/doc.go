// Package stripped knows the tables that have lost the tokens of a commit, so that
// nothing more is committed to them until an operator says so.
//
// A commit whose token the table doesn't show is recognised by its snapshot's id,
// as long as this journal has its send record. Nobody else can recognise it, so
// the next one isn't risked.
package stripped
