// Package iceberg is the sink driver for Iceberg tables: Arrow batches as
// DuckDB and clients give them become Parquet data files as the Iceberg spec
// wants them, with field ids, partition tuples and column metrics.
//
// Rows aren't sorted by the table's sort order, and files say so
// (sort_order_id 0).
//
// Of the table's properties these are honoured: write.parquet.compression-codec
// and -level, row-group-size-bytes (of the rows as they lie in memory),
// row-group-limit, page-size-bytes, page-row-limit (how often a page's size is
// looked at: the library cuts pages by size only), page-version,
// dict-size-bytes, dict-encoding-enabled.column.*, parquet.enable.dictionary,
// and write.metadata.metrics.*.
package iceberg
