package commit

// File describes one data file that an attempt wrote: one row of a file
// manifest. It comes from an executor and is untrusted until it was verified.
type File struct {
	// Path is the absolute URI of the file, under its job's data prefix.
	Path string
	// Format is the file format; only "PARQUET" is written.
	Format string
	// Attempt is the id of the task attempt that wrote the file; it is also
	// part of the path.
	Attempt string
	// SchemaID and SpecID name the table schema and the partition spec that
	// the file was written with.
	SchemaID, SpecID int
	// SortOrderID is the sort order that the rows in the file really have;
	// 0 for unsorted.
	SortOrderID int
	// Partition has one value for each field of the partition spec, in the
	// spec's order.
	Partition []PartitionValue
	// Rows is the number of rows, Size the length of the file in bytes.
	Rows, Size int64
	// ColumnSizes, ValueCounts, NullCounts and NaNCounts are keyed by field id.
	ColumnSizes, ValueCounts, NullCounts, NaNCounts map[int]int64
	// Lower and Upper are bounds by field id, in the single-value binary
	// serialisation of the table's format (Iceberg spec, Appendix D). A
	// present, empty value is the bound of an empty string.
	Lower, Upper map[int][]byte
	// SplitOffsets are the offsets of the file's row groups, ascending.
	SplitOffsets []int64
}

// PartitionValue is one value of a partition tuple.
type PartitionValue struct {
	// FieldID is the id of the partition field.
	FieldID int
	// Null tells a null partition from an empty value.
	Null bool
	// Value is the transformed value in the single-value binary serialisation
	// of the partition field's result type; present and empty for the empty
	// string, ignored when Null is set.
	Value []byte
}
