// Package footer reads the footers of Parquet files that others wrote, and says of
// them what a table's metadata keeps: rows, sizes, counts, bounds, offsets.
//
// A footer is untrusted. Parse takes memory in proportion to the file's schema and
// its number of row groups, both bounded, whatever counts the footer claims; what
// contradicts itself is an error. Statistics say only what the format defines: a
// bound whose order isn't known, that can't be read, or that may leave NaNs or
// other values out is no bound at all, because a wrong one makes readers skip rows.
//
// What the rows themselves are is not looked at.
package footer
