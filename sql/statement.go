package sql

import "strings"

// Statement is one statement of a script.
type Statement struct {
	// Text is the statement as written, without comments around it and without
	// the semicolon.
	Text string
	// Offset is where Text starts in the script, in bytes.
	Offset int
	// Kind names the statement as SHOW and logs do: "INSERT", "CREATE TABLE".
	Kind string
	Body Body

	src *source
}

// Body is what a statement says: one of *Insert, *Select, *CreateTable,
// *DropTable, *CreateNamespace, *DropNamespace, *CreateCatalog, *DropCatalog,
// *CheckCatalog, *CreateSource, *DropSource, *Show, *ShowCreateTable, *Describe, *DescribeHistory, *Use and
// *Explain.
type Body interface{ kind() string }

// Ident is one identifier.
type Ident struct {
	Name string
	// Offset is where it stands in the script, in bytes.
	Offset int
}

// Name is a dotted name, 1 part or more.
type Name []Ident

// Parts returns the parts without their places.
func (n Name) Parts() []string {
	parts := make([]string, len(n))
	for i, p := range n {
		parts[i] = p.Name
	}
	return parts
}

// String writes the name as SQL, quoted where it must be.
func (n Name) String() string {
	parts := make([]string, len(n))
	for i, p := range n {
		parts[i] = quoteIfNeeded(p.Name)
	}
	return strings.Join(parts, ".")
}

// QueryText is a SELECT as DuckDB's parser gets it: the user's text with
// backtick identifiers written with double quotes.
type QueryText struct {
	Text string
	// Offset is where the query starts in the script, in bytes.
	Offset int

	moved []shift
}

// Insert is INSERT INTO Target [BY NAME] [(Columns)] Query.
type Insert struct {
	Target  Name
	ByName  bool
	Columns []Ident
	Query   QueryText
}

// Select is anything that gives rows and is DuckDB's: SELECT, WITH, VALUES,
// FROM-first, SUMMARIZE.
type Select struct{ Query QueryText }

// CreateTable is CREATE TABLE.
type CreateTable struct {
	Name        Name
	IfNotExists bool
	// Format is what stands behind USING, in lower case; empty without it.
	Format string
	// Location is what stands behind LOCATION, with its place; empty without it.
	Location Ident
	Columns  []ColumnDef
	// Partitions are the terms of PARTITIONED BY.
	Partitions []PartitionTerm
	Properties []Property
	Comment    string
}

// ColumnDef is one column of a CREATE TABLE.
type ColumnDef struct {
	Name Ident
	// Type is the text of the type, Offset where it starts in the script.
	Type    string
	Offset  int
	NotNull bool
	Comment string
}

// PartitionTerm is one term of PARTITIONED BY: a column, or a transform of
// one.
type PartitionTerm struct {
	// Transform is in lower case: "identity", "bucket", "truncate", "year",
	// "month", "day", "hour" or "void".
	Transform string
	// Param is the n of bucket and truncate.
	Param  int
	Column Ident
	Offset int
}

// Property is 'Key' = 'Value'.
type Property struct{ Key, Value string }

// DropTable is DROP TABLE.
type DropTable struct {
	Name     Name
	IfExists bool
}

// CreateNamespace is CREATE NAMESPACE (or SCHEMA, DATABASE).
type CreateNamespace struct {
	Name        Name
	IfNotExists bool
	Properties  []Property
}

// DropNamespace is DROP NAMESPACE (or SCHEMA, DATABASE).
type DropNamespace struct {
	Name     Name
	IfExists bool
}

// Show is SHOW CATALOGS, SOURCES, NAMESPACES or TABLES.
type Show struct {
	// What is "catalogs", "sources", "namespaces" or "tables".
	What string
	// In is what stands behind IN or FROM; empty for the session's.
	In Name
}

// ShowCreateTable is SHOW CREATE TABLE.
type ShowCreateTable struct{ Name Name }

// Describe is DESCRIBE of a catalog table.
type Describe struct{ Name Name }

// DescribeHistory is DESCRIBE HISTORY of a table.
type DescribeHistory struct{ Name Name }

// Use is USE catalog, USE catalog.namespace or USE namespace.
type Use struct{ Name Name }

// Explain is EXPLAIN of another statement.
type Explain struct {
	Statement Statement
	// Analyze runs the statement, and tells what became of its plan.
	Analyze bool
}

func (*Insert) kind() string          { return "INSERT" }
func (*Select) kind() string          { return "SELECT" }
func (*CreateTable) kind() string     { return "CREATE TABLE" }
func (*DropTable) kind() string       { return "DROP TABLE" }
func (*CreateNamespace) kind() string { return "CREATE NAMESPACE" }
func (*DropNamespace) kind() string   { return "DROP NAMESPACE" }
func (s *Show) kind() string          { return "SHOW " + strings.ToUpper(s.What) }
func (*ShowCreateTable) kind() string { return "SHOW CREATE TABLE" }
func (*Describe) kind() string        { return "DESCRIBE" }
func (*DescribeHistory) kind() string { return "DESCRIBE HISTORY" }
func (*Use) kind() string             { return "USE" }
func (*Explain) kind() string         { return "EXPLAIN" }
