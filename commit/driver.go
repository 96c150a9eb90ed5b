package commit

import (
	"context"
	"time"
)

// Table is the contract of a driver: one open table of one format in one
// catalog. Every driver passes the conformance suite of package committest.
//
// A Table is used by one committer at a time and need not be safe for
// concurrent use. Nothing below it may send a commit twice: no retry in a
// library, an SDK or a transport, no redirect.
type Table interface {
	// Read makes one fresh, consistent read of the table. The error wraps
	// ErrTableNotFound when the table is gone.
	Read(ctx context.Context) (Metadata, error)
	// Build writes what a request for the units needs (Iceberg manifests, a
	// manifest list, a metadata file) and returns the request, unsent. It
	// claims the seat that follows m and asserts table UUID, ref, schema and
	// spec of m. The caller has looked for every unit's token in m.
	// A failed Build has removed what it wrote.
	Build(ctx context.Context, m Metadata, units []Unit) (Request, error)
	// Send sends one copy of the request, once, and reports what came back. It
	// never decides what happened: only a later Read can.
	Send(ctx context.Context, r Request) Answer
	// Discard deletes the metadata files that Build wrote for a request that
	// the caller proved dead and not landed. Data files are not touched.
	Discard(ctx context.Context, r Request) error
	// Close releases the driver's resources.
	Close() error
}

// Marked is a Table that writes files for a request before anybody has it on
// record. When the process dies in between, or with files that it has made ahead
// of a request, the mark in their names tells the next one whose they are.
type Marked interface {
	Table
	// Mark has each file that is written from now on bear mark in its name: the
	// last two groups of a random UUID, "8xxx-xxxxxxxxxxxx". begin is called before
	// files are written to a directory, by several goroutines, and nothing is
	// written unless it returns nil. Mark comes before the first Build.
	Mark(mark string, begin func(ctx context.Context, tableUUID, dir string) error)
	// MarkedFiles calls each with every file in dir that bears mark, in any order.
	MarkedFiles(ctx context.Context, dir, mark string, each func(MarkedFile) error) error
	// Unreferenced takes what m's table refers to, in whatever snapshot, out of the
	// paths of marked files. m is a read of this driver.
	Unreferenced(ctx context.Context, m Metadata, paths map[string]bool) error
}

// MarkedFile is a file that bears a mark.
type MarkedFile struct {
	Path string
	// RequestID is the id in its name: that of the request that it was written for,
	// or one that no request has.
	RequestID string
	// Made is when that id was made, by the clock of the machine that made it.
	Made time.Time
}

// Metadata is one read of a table: everything in it was true at one moment.
// It is immutable. A driver's Metadata may implement Sight, Unseated and Shaky too.
type Metadata interface {
	// UUID is the identity of the table.
	UUID() string
	// Location is the table's root, a URI without a trailing slash.
	Location() string
	// Clock is the last seat that was taken.
	Clock() Seat
	// Head is the current snapshot id of a branch, empty when it has none.
	Head(branch string) string
	// SchemaID and SpecID are the current schema and the default spec.
	SchemaID() int
	SpecID() int
	// Find looks for a token everywhere that this read can show it: all
	// snapshots, on any branch, rolled back or staged.
	Find(branch string, t Token) (Landed, bool)
	// HasSnapshot says whether the snapshot is shown, on any branch.
	HasSnapshot(id string) bool
	// CheckUnit says whether the unit's files may be committed to the table as
	// it is in this read: the spec is still there, and every field of the write
	// schema is there with the same id and a type that may hold it. The
	// error is a *Error with a reason to refuse.
	CheckUnit(u Unit) error
}

// Request is one built, unsent commit request.
type Request struct {
	// ID names the request in records and logs (UUIDv7).
	ID string
	// SnapshotID is the snapshot that the request would add.
	SnapshotID string
	// Head is the branch's snapshot that the request asserts.
	Head string
	// Branch is the ref that the request moves.
	Branch string
	// Seat is the seat that the request claims. The zero Seat is none: the
	// table may apply the request for as long as a copy of it is under way,
	// whatever happens meanwhile, so it is never dead.
	Seat Seat
	// Tokens are those of its units.
	Tokens []Token
	// MetadataFiles are the paths that Build wrote.
	MetadataFiles []string
	// Fence: it is that of Options.Fence, and carries no unit of a job. The
	// machine sets it.
	Fence bool
	// Payload is the driver's own.
	Payload any
}

// Answer is what one sent copy came back with. It proves nothing by itself.
type Answer struct {
	// Class sorts the answer; see the constants.
	Class AnswerClass
	// Status is the HTTP status, 0 when there was none.
	Status int
	// Err is the text to show; nil for AnswerOK.
	Err error
}

// AnswerClass sorts the answers of a catalog by what the machine does next,
// when nothing in the table moved.
type AnswerClass string

// Classes of answers.
const (
	AnswerOK AnswerClass = "ok"
	// AnswerConflict: the catalog says that somebody else was first.
	AnswerConflict AnswerClass = "conflict"
	// AnswerAmbiguous: silence, a broken connection, a 5xx.
	AnswerAmbiguous AnswerClass = "ambiguous"
	// AnswerWait: 429 or 503; send nothing for a while.
	AnswerWait AnswerClass = "wait"
	// AnswerAuth: 401 or 419; renew the catalog token.
	AnswerAuth AnswerClass = "auth"
	// AnswerPermission: 403.
	AnswerPermission AnswerClass = "permission"
	// AnswerRejected: 400, 404, 422: the request itself isn't accepted.
	AnswerRejected AnswerClass = "rejected"
)
