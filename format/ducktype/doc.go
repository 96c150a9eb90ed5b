// Package ducktype reads DuckDB's types as statements and query results write them,
// in DuckDB's spelling or in that of table formats and Spark. What a table format
// makes of a type is the format's own business.
package ducktype
