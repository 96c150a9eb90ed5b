// Package delta is the sink driver for Delta tables: Arrow batches as DuckDB and
// clients give them become Parquet data files without the partition columns, whose
// values and statistics go into the file manifest as package format/delta says.
//
// Of the table's properties these are honoured: delta.parquet.compression.codec,
// delta.dataSkippingNumIndexedCols, delta.dataSkippingStatsColumns and
// delta.dataSkippingStringPrefixLength. The columns that a table is clustered by
// have statistics too; they stand where other formats have the sort order.
package delta
