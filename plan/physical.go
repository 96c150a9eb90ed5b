package plan

import "github.com/firn-project/firn/commit"

// Node is an operator of a physical plan. The set of kinds is closed.
type Node interface {
	Plan
	// Kind names the operator in the encoding and in EXPLAIN.
	Kind() string
	// Inputs are the operators that this one reads, in order.
	Inputs() []Node
}

// Column is a column of a source, a query or an exchange.
type Column struct {
	Name string
	// Type is the column's type as DuckDB writes it, such as DECIMAL(18,2).
	Type string
	// FieldID is the table's field id; 0 when the column isn't a table's.
	FieldID int
	// Required columns hold no null.
	Required bool
	// Default is the value that files written before the column existed
	// have, as a SQL literal; empty for NULL.
	Default string
}

// Query runs SQL over sources in DuckDB. It is a leaf: sources are not nodes.
type Query struct {
	// SQL names sources by their View and nothing else outside itself. now()
	// and its like were replaced by the job's own time.
	SQL     string
	Sources []Source
	// Columns is what the query gives, in order.
	Columns []Column
	// Parallel queries give the same rows whether they run over the
	// partitions one by one or over all at once. Why says why, or why not.
	Parallel bool
	Why      string
	// Deterministic: run again over the same files it gives the same rows in
	// the same order. When in doubt it isn't.
	Deterministic bool
	// Partitioned is the index of the source that Partitions cuts up, and
	// Partitions the slices of its files, one for each task, in plan order.
	// Both are unused when Parallel is false: such a query runs whole in one
	// task.
	Partitioned int
	Partitions  [][]SourceFile
	// RejectLimit is how many rows may be unreadable, over the whole job.
	RejectLimit int64
}

// SourceKind says how a source's files are read.
type SourceKind string

// Kinds of sources.
const (
	SourceParquet SourceKind = "parquet"
	SourceCSV     SourceKind = "csv"
	SourceJSON    SourceKind = "json"
	// SourceTable is a catalog table at a pinned version.
	SourceTable SourceKind = "table"
	// SourceUpload is a stream of Arrow batches that a client put on an
	// executor.
	SourceUpload SourceKind = "upload"
	// SourceFrame is a cached frame: the rows of an earlier query, which executors
	// keep.
	SourceFrame SourceKind = "frame"
	// SourceFlightSQL is what a query gives that a Flight SQL engine ran.
	SourceFlightSQL SourceKind = "flight_sql"
)

// Known says whether the scheduler knows all of such a source without a look at
// files.
func (k SourceKind) Known() bool {
	return k == SourceTable || k == SourceUpload || k == SourceFrame || k == SourceFlightSQL
}

// Source is one input of a query, visible to its SQL as a view.
type Source struct {
	// View is the name parts by which the SQL refers to the source: three for
	// a catalog table, one for files, uploads and frames.
	View []string
	Kind SourceKind
	// Patterns are the paths and globs as written; Files what they stand for
	// after the probe (for tables, what the pinned version holds).
	Patterns []string
	Files    []SourceFile
	// Options are the reader's arguments as SQL literals, by name
	// (read_csv's header, delim, …), already allow-listed.
	Options map[string]string
	// Columns are the source's columns. For tables files are read by their
	// FieldID, so that renamed and added columns come out right.
	Columns []Column
	// Table is set for SourceTable.
	Table commit.TableName
	// Storage is what the executor needs to reach the files; see
	// Pinned.Storage.
	Storage map[string]string
	// Upload names the spooled stream for SourceUpload, Frame the frame for
	// SourceFrame.
	Upload *Upload
	Frame  *Frame
	// NameMapping gives the names of a table's columns in files without field
	// ids, by field id; nil when the table has no such mapping, and then a
	// column has its own name there.
	NameMapping map[int][]string
	// Delta is set for a Delta table's files, which are read by its rules.
	Delta *DeltaSource
	// Flight is set for SourceFlightSQL, whose Files are the endpoints.
	Flight *FlightSource `json:",omitempty"`
}

// FlightSource is one run of a query by a Flight SQL engine. How the engine is
// reached isn't part of it: who runs a task asks the scheduler for that, by Name.
type FlightSource struct {
	// Name is the source's, Query the text for the engine.
	Name, Query string
	// Execution counts the runs of the query for its job, from 1. Rows of two of
	// them are never mixed.
	Execution int
	// Info is what the engine answered, without schema and endpoints: an encoded
	// FlightInfo. It cancels the query.
	Info []byte
	// Bytes is what the engine says that all endpoints hold; -1 when it doesn't say.
	Bytes int64
}

// Same says whether two are the same execution of the same query.
func (s *FlightSource) Same(o *FlightSource) bool {
	return s.Name == o.Name && s.Query == o.Query && s.Execution == o.Execution
}

// FlightEndpoint is one part of what an engine's query gave.
type FlightEndpoint struct {
	Ticket []byte
	// Locations are the URIs where it can be read; empty for where the query was
	// sent.
	Locations []string
	// ExpiresMS is when the ticket ends, in ms of Unix time by the engine's clock; 0
	// when it doesn't say.
	ExpiresMS int64
	// Metadata is the engine's own.
	Metadata []byte
}

// DeltaSource is what reading a Delta table's files takes.
type DeltaSource struct {
	// SchemaJSON is the table's schema as its log has it.
	SchemaJSON []byte
	// Partition are the columns that files don't hold.
	Partition []string
	// Mapping is none, name or id: how columns are found in files.
	Mapping string
}

// DeletionVector deletes rows of one file of a Delta table, by their numbers.
type DeletionVector struct {
	// StorageType and PathOrInline are the log's; File is the URI of the file
	// that holds the vector, empty for an inline one.
	StorageType, PathOrInline string
	File                      string
	// Offset is where the vector begins in its file; nil where none was given.
	Offset *int32
	// Size is in bytes, Cardinality the number of deleted rows.
	Size        int32
	Cardinality int64
}

// SourceFile is a file of a source, or a slice of one.
type SourceFile struct {
	// Path is an absolute path or a URI.
	Path string
	Size int64
	// Rows is the number of rows in the file, -1 when not known.
	Rows int64
	// RowGroups describes a Parquet file; empty when not known.
	RowGroups []RowGroup
	// First and End limit reading to the rows First ≤ n < End of the file. Both zero:
	// the whole file.
	First, End int64
	// PositionDeletes and EqualityDeletes are delete files that apply to this
	// data file (Iceberg version 2).
	PositionDeletes []string
	EqualityDeletes []EqualityDelete
	// NoFieldIDs: the file has no field ids and is read by column name.
	NoFieldIDs bool
	// Partition has a Delta file's partition values as texts, nil for null, in the
	// order of DeltaSource.Partition.
	Partition []*string
	// Vector deletes rows of a Delta file; nil for none.
	Vector *DeletionVector
	// Endpoint is set for the parts of a SourceFlightSQL; Path then only names it.
	Endpoint *FlightEndpoint `json:",omitempty"`
}

// RowGroup is one row group of a Parquet file.
type RowGroup struct{ Rows, Bytes int64 }

// EqualityDelete is an equality delete file and the fields that it compares.
type EqualityDelete struct {
	Path     string
	FieldIDs []int
}

// Upload names a client's spooled stream on an executor.
type Upload struct {
	ID       string
	Executor string
	// Location is where the spooled partition is served; see ShuffleLocation.
	Location ShuffleLocation
}

// Frame names a cached frame as it was when a job was planned.
type Frame struct {
	ID string
	// Pieces is how many pieces it has.
	Pieces int
	// Repeats: pieces that are lost come back with the same rows in the same order.
	Repeats bool
	Bytes   int64
	// Locations is what a task reads of it, in order. It is filled in when the task
	// is dispatched.
	Locations []ShuffleLocation
}

// ExchangeKind says how an exchange spreads rows.
type ExchangeKind string

// Kinds of exchanges.
const (
	// ExchangeSingle keeps each task's rows together: one output partition.
	ExchangeSingle ExchangeKind = "single"
	// ExchangeRoundRobin spreads batches evenly.
	ExchangeRoundRobin ExchangeKind = "round_robin"
	// ExchangeHash brings rows of one table partition to one task.
	ExchangeHash ExchangeKind = "hash"
)

// Exchange moves rows between stages.
type Exchange struct {
	Input Node
	How   ExchangeKind
	// Partitions is the number of output partitions.
	Partitions int
	// Layout gives the partition transforms to hash by, for ExchangeHash.
	Layout *Layout
}

// Layout is how a table's rows are laid out: its schema and partition spec.
type Layout struct {
	Format     string
	SchemaJSON []byte
	SpecJSON   []byte
}

// Write writes the rows of its input as data files and gives file manifests.
type Write struct {
	Input   Node
	Context WriteContext
}

// WriteContext is what an attempt needs to write. It holds nothing about the
// catalog.
type WriteContext struct {
	Table         commit.TableName
	TableUUID     string
	FormatVersion int
	Layout        Layout
	SortOrderJSON []byte
	Properties    map[string]string
	// Prefix is the job's data prefix, a URI that ends in a slash. Every file
	// of every attempt lies under it.
	Prefix string
	// TargetFileSize is in bytes.
	TargetFileSize int64
	// Storage is how to reach the store, with credentials scoped to Prefix.
	Storage map[string]string
}

// External stands for the tasks of another engine, which write data files of their
// own and hand manifests of them in. It is a leaf, and never runs on an executor.
type External struct {
	Context WriteContext
	// Tasks is how many attempts' manifests count; 0 as long as that isn't fixed.
	Tasks int
}

// Coalesce reads all partitions of its input one after the other.
type Coalesce struct {
	Input Node
	// Limit stops after that many rows; nil for no limit.
	Limit *int64
}

// Commit is the commit operator: a scheduler root. It reads file manifests and
// commits them to a table as one unit.
type Commit struct {
	Input     Node
	Target    Pinned
	Branch    string
	Operation commit.Operation
	// Prefix is the job's data prefix that every file must lie under.
	Prefix string
}

// ShuffleRead reads what earlier stages put into their exchanges. It is the
// leaf of the fragments of later stages.
type ShuffleRead struct {
	Stage   int
	Columns []Column
	// Locations is what a task reads, in plan order. It is filled in when the
	// task is dispatched.
	Locations []ShuffleLocation
}

// ShuffleLocation is one piece of shuffle output.
type ShuffleLocation struct {
	Job     string
	Stage   int
	Task    int
	Attempt string
	// Output is the output partition.
	Output   int
	Executor string
	// Address is the executor's Flight address, host:port.
	Address string
	Rows    int64
	Bytes   int64
	// First and End limit reading to the rows First ≤ n < End of the piece. Both
	// zero: all of it. The ticket says so too.
	First, End int64
	// Follow: the piece may still be written. What there is of it is read, and the
	// rest as it comes. The ticket says so too.
	Follow bool
	// Frame is the cached frame that it is a piece of, if it is one. Job and Stage
	// are then those that built it.
	Frame string `json:",omitempty"`
	// Ticket is the signed Flight ticket.
	Ticket []byte
}

// Kinds of nodes, as encoded.
const (
	KindQuery       = "query"
	KindExchange    = "exchange"
	KindWrite       = "write"
	KindCoalesce    = "coalesce"
	KindCommit      = "commit"
	KindShuffleRead = "shuffle_read"
	KindExternal    = "external"
)

func (*Query) isPlan()       {}
func (*Exchange) isPlan()    {}
func (*Write) isPlan()       {}
func (*Coalesce) isPlan()    {}
func (*Commit) isPlan()      {}
func (*ShuffleRead) isPlan() {}
func (*External) isPlan()    {}

// Kind implements Node.
func (*Query) Kind() string { return KindQuery }

// Kind implements Node.
func (*Exchange) Kind() string { return KindExchange }

// Kind implements Node.
func (*Write) Kind() string { return KindWrite }

// Kind implements Node.
func (*Coalesce) Kind() string { return KindCoalesce }

// Kind implements Node.
func (*Commit) Kind() string { return KindCommit }

// Kind implements Node.
func (*ShuffleRead) Kind() string { return KindShuffleRead }

// Kind implements Node.
func (*External) Kind() string { return KindExternal }

// Inputs implements Node.
func (*Query) Inputs() []Node { return nil }

// Inputs implements Node.
func (n *Exchange) Inputs() []Node { return []Node{n.Input} }

// Inputs implements Node.
func (n *Write) Inputs() []Node { return []Node{n.Input} }

// Inputs implements Node.
func (n *Coalesce) Inputs() []Node { return []Node{n.Input} }

// Inputs implements Node.
func (n *Commit) Inputs() []Node { return []Node{n.Input} }

// Inputs implements Node.
func (*ShuffleRead) Inputs() []Node { return nil }

// Inputs implements Node.
func (*External) Inputs() []Node { return nil }
