//go:build !duckdb_arrow

package duckdb

// Without the tag the bindings lack their Arrow half. Every other file of the
// package needs it, so this one undefined name is all that the compiler prints.
var _ = build_with_GOFLAGS_tags_duckdb_arrow__see_README
