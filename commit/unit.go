package commit

// TableName is the full name of a table: catalog, namespace and name.
type TableName struct {
	Catalog   string
	Namespace []string
	Name      string
}

// String joins the parts with dots. It is for people and logs; parts that hold
// dots are not quoted.
func (n TableName) String() string {
	s := n.Catalog
	for _, p := range n.Namespace {
		s += "." + p
	}
	return s + "." + n.Name
}

// MainBranch is the branch that a unit commits to when none is named.
const MainBranch = "main"

// Operation says what a unit does to the table.
type Operation string

// OperationAppend adds files and removes nothing. Appends commute, so they may
// share a table version.
const OperationAppend Operation = "append"

// Unit is a commit unit: the files of one job for one table and branch.
type Unit struct {
	Token  Token
	Digest Digest
	// JobID and Key are for reports and for the snapshot's summary.
	JobID, Key string
	Table      TableName
	// TableUUID is the identity that the job was planned against.
	TableUUID string
	Branch    string
	Operation Operation
	// SchemaID and SpecID are those that the files were written with. Only
	// units of one schema and one spec share a request.
	SchemaID, SpecID int
	// Prefix is the data prefix of the job; every file lies under it. It ends
	// in a slash.
	Prefix string
	// Files is what is to be committed, sorted by path. It may be empty: a
	// statement that selects no rows commits no snapshot.
	Files []File
	// Rows and Bytes are sums over Files.
	Rows, Bytes int64
	// Tasks is how many tasks of the final stage the files came from.
	Tasks int
}

// Seat is the number that a commit takes in the table and that nobody can take
// again: for Iceberg version 2 and later the sequence number, and for catalogs
// that swap a pointer (SQL) also that pointer.
type Seat struct {
	// Number is the sequence number (Iceberg) or version (Delta).
	Number int64
	// Pointer is the metadata location that a pointer catalog must still have
	// for the request to be applied; empty for other catalogs. As pointers
	// have no order, another pointer than the pinned one proves that the
	// request is dead only if reads never go back in time: a driver may use
	// pointers only where each read is at least as new as all before it, in
	// any process.
	Pointer string
}
