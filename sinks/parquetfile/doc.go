// Package parquetfile is what the sink drivers of all table formats have in common:
// batches as DuckDB and clients give them are cast to a table's Arrow schema, and
// written as Parquet files with libzstd and with dictionaries for text that repeats.
package parquetfile
