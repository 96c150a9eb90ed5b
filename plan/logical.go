package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/firn-project/firn/commit"
)

// Plan is what a job is made from: a *Logical or a Node.
type Plan interface{ isPlan() }

// Logical is a statement as submitted: names and text, nothing bound.
type Logical struct {
	// SQL is one statement.
	SQL string
	// Session gives the names that the statement leaves out.
	Session Session
	// RejectLimit is how many rows that can't be read or cast may be left out;
	// 0 fails the job at the first one.
	RejectLimit int64
}

func (*Logical) isPlan() {}

// Session is what a client's earlier statements fixed for the next one.
type Session struct {
	// Catalog and Namespace complete names; empty when no USE was given.
	Catalog   string
	Namespace []string
}

// Mode says how a job's stages run.
type Mode string

// Modes of a job. A job with a scheduler root must be staged: the others have
// no point where all stages have succeeded, or keep the root's input instead of
// the job's result.
const (
	ModeStaged    Mode = "staged"
	ModePipelined Mode = "pipelined"
	ModeCached    Mode = "cached"
)

// Pinned is a table as a job was planned against it: everything that must not
// change under a running job.
type Pinned struct {
	Name   commit.TableName
	Format string
	UUID   string
	// Location is the root URI of the table, MetadataLocation the file that
	// was read.
	Location         string
	MetadataLocation string
	FormatVersion    int
	// SnapshotID is the current snapshot, empty for a table without one.
	SnapshotID string
	// SchemaJSON, SpecJSON and SortOrderJSON are the current schema, default
	// partition spec and default sort order as the Iceberg spec serialises
	// them.
	SchemaJSON    []byte
	SpecJSON      []byte
	SortOrderJSON []byte
	Properties    map[string]string
	// Comment is what a Delta table's description says; Iceberg's is a property.
	Comment string
	// Unwritable says why the table can't be appended to; empty when it can, as
	// far as the format's features go.
	Unwritable string
	// DataLocation is where data files go: write.data.path or
	// <location>/data, without a trailing slash.
	DataLocation string
	// Storage is what an executor needs to reach the table's files: endpoint,
	// region and scoped credentials, never anything of the catalog. Empty for
	// local files.
	Storage map[string]string
}

// JobPrefix is the data prefix of a job that writes to the table, a URI that ends in
// a slash. In Iceberg's object-storage layout a hash stands before it, one for the
// whole job, so that one prefix still scopes the job's credentials.
func (p *Pinned) JobPrefix(jobID string) string {
	prefix := strings.TrimSuffix(p.DataLocation, "/") + "/"
	if strings.EqualFold(p.Properties["write.object-storage.enabled"], "true") {
		sum := sha256.Sum256([]byte(jobID))
		prefix += hex.EncodeToString(sum[:4]) + "/"
	}
	return prefix + jobID + "/"
}
