// Package interop has readers that nobody here wrote read every table of a
// suite: PyIceberg and DuckDB with its iceberg extension.
package interop
