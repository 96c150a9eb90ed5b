package sinks

import (
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// Context is what an attempt knows of the table that it writes to. It holds
// nothing about the catalog.
type Context struct {
	Table commit.TableName
	// FormatVersion is that of the table; 0 means the driver's default.
	FormatVersion int
	// SchemaJSON, SpecJSON and SortOrderJSON are as the format serialises
	// them.
	SchemaJSON, SpecJSON, SortOrderJSON []byte
	Properties                          map[string]string
	// Prefix is the job's data prefix, a URI that ends in a slash.
	Prefix string
	// TargetFileSize is in bytes; 0 for DefaultTargetFileSize.
	TargetFileSize int64
}

// Defaults of Options and Context.
const (
	DefaultTargetFileSize = 512 << 20
	DefaultMemory         = 256 << 20
	DefaultOpenFiles      = 32
)

// Options is what Open needs.
type Options struct {
	Context Context
	// Attempt is the id of the task attempt, unique in the world; it's part of
	// every path. Stage and Task are for people who read paths.
	Attempt     string
	Stage, Task int
	Store       objstore.Store
	// Memory bounds the rows that the writer holds, in bytes as they lie in
	// memory; see Writer. 0 for DefaultMemory.
	Memory int64
	// SpillDir is where rows wait when there are more partitions than open
	// files; empty for the system's directory for temporary files.
	SpillDir string
	// OpenFiles bounds the data files that are open at once; 0 for
	// DefaultOpenFiles.
	OpenFiles int
}

// Driver writes one table format.
type Driver interface {
	// Bind reads the context. An unusable schema, spec or property is an error
	// here, before the first row.
	Bind(ctx Context) (Layout, error)
}

// Layout is a driver bound to a table. It's used by one Writer, from one
// goroutine.
type Layout interface {
	// Limits bounds row groups.
	Limits() Limits
	// Split casts a batch to the table's schema and brings the rows of each
	// partition together. The caller releases the result's Batch.
	Split(batch arrow.RecordBatch) (Split, error)
	// Encode starts a data file of one partition over w.
	Encode(w io.Writer, p Partition) (Encoder, error)
}

// Limits bounds row groups. Bytes are as the rows lie in memory.
type Limits struct{ RowGroupBytes, RowGroupRows int64 }

// Split is a batch whose rows are grouped by partition: every row is in exactly
// one part.
type Split struct {
	Batch arrow.RecordBatch
	Parts []Part
}

// Part is the rows From ≤ n < To of a Split.
type Part struct {
	Partition
	From, To int64
}

// Partition is one partition of a table.
type Partition struct {
	// Key is equal for equal partitions and only for them.
	Key string
	// Path is the directories below the job's prefix, without a trailing
	// slash; empty for none. Two partitions may share a path.
	Path   string
	Values []commit.PartitionValue
}

// Encoder writes one data file.
type Encoder interface {
	// WriteRowGroup writes rows as one row group: when it returns, their bytes
	// were written. There's at least one row.
	WriteRowGroup(rows arrow.RecordBatch) error
	// Finish ends the file and describes it: everything of a commit.File but
	// the path, the attempt and the size.
	Finish() (commit.File, error)
}
