package sql

import (
	"context"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// TreeParser is DuckDB's parser: text of a SELECT to its parse tree and back.
type TreeParser interface {
	// ParseSelect returns the tree that DuckDB's json_serialize_sql gives. Text
	// that isn't one SELECT fails with a SyntaxError in the error's chain.
	ParseSelect(ctx context.Context, text string) ([]byte, error)
	// FormatSelect returns the text of such a tree.
	FormatSelect(ctx context.Context, tree []byte) (string, error)
}

// SyntaxError is a parser's complaint about a place in the text. It is an
// interface so that a parser needn't import this package.
type SyntaxError interface {
	error
	// Offset is in bytes from the start of the text, -1 when not known.
	Offset() int
}

// Binder asks an executor what a query's sources are and what it gives.
type Binder interface {
	Probe(ctx context.Context, req plan.ProbeRequest) (plan.ProbeResult, error)
}

// Catalogs is what statements need of the catalogs. Implementations live under
// package catalog; only the scheduler's process holds one. Errors are
// *commit.Error with a code of the catalog's range.
type Catalogs interface {
	// Catalogs lists the names of the configured catalogs.
	Catalogs(ctx context.Context) ([]string, error)
	Namespaces(ctx context.Context, catalog string, parent []string) ([][]string, error)
	CreateNamespace(ctx context.Context, catalog string, ns []string, props map[string]string, ifNotExists bool) error
	DropNamespace(ctx context.Context, catalog string, ns []string, ifExists bool) error
	Tables(ctx context.Context, catalog string, ns []string) ([]commit.TableName, error)
	CreateTable(ctx context.Context, def TableDef) error
	// DropTable removes the table from the catalog; its files stay.
	DropTable(ctx context.Context, name commit.TableName, ifExists bool) error
	// RegisterTable adopts an existing table by its metadata file.
	RegisterTable(ctx context.Context, name commit.TableName, metadataLocation string) error
	// Pin reads the table as it is now.
	Pin(ctx context.Context, name commit.TableName) (plan.Pinned, error)
	// Scan lists what a SELECT of the pinned table reads. version names a
	// snapshot; empty for the current one. Files of which where says that the
	// query can do without all their rows may be left out.
	Scan(ctx context.Context, t plan.Pinned, version string, where Filter) (plan.Source, error)
	// History gives the versions of a table, the newest first.
	History(ctx context.Context, name commit.TableName) ([]TableVersion, error)
	// Describe gives the numbers that `firn table describe` shows.
	Describe(ctx context.Context, name commit.TableName) (TableInfo, error)
}

// TableDef is a CREATE TABLE, bound.
type TableDef struct {
	Name        commit.TableName
	IfNotExists bool
	Format      string // "iceberg" or "delta"
	// SchemaJSON and SpecJSON are as the Iceberg spec serialises them, with
	// ids assigned from 1 and from 1000; for Delta the schema as its log has it
	// and a list of partition columns. A Delta table without a schema is one that
	// is there already, at Location.
	SchemaJSON []byte
	SpecJSON   []byte
	// Location is where a Delta table is to be; empty where its catalog puts it.
	Location   string
	Properties map[string]string
	Comment    string
}

// TableInfo is a table with its totals.
type TableInfo struct {
	plan.Pinned
	Rows, Files, Bytes int64
	Snapshots          int
}

// TableVersion is one version of a table, as whoever made it describes it.
type TableVersion struct {
	Version             int64
	At                  time.Time
	Operation           string
	Parameters, Metrics map[string]string
	Engine              string
	// ReadVersion and BlindAppend are nil when nothing is said.
	ReadVersion *int64
	BlindAppend *bool
}
