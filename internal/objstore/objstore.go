package objstore

import (
	"context"
	"errors"
	"io"
	"iter"
)

// Errors that every store wraps.
var (
	// ErrNotFound: no object of that name.
	ErrNotFound = errors.New("object not found")
	// ErrExists: the name is taken already.
	ErrExists = errors.New("object exists already")
	// ErrPermission: the store refuses the access.
	ErrPermission = errors.New("no permission")
	// ErrFull: no space is left.
	ErrFull = errors.New("no space left")
	// ErrUncertain: it isn't known whether the object was written, and it may
	// appear later. Only a look at what stands there in the end can tell.
	ErrUncertain = errors.New("not known whether it was written")
)

// Store reaches the objects of one kind of location. URIs are absolute:
// file:///path, s3://bucket/key; a path without a scheme is a local file.
// A Store is safe for concurrent use.
type Store interface {
	// Open opens an object for reading at any offset. The caller closes it.
	Open(ctx context.Context, uri string) (Object, error)
	// Create starts an object that becomes visible, whole, when Commit
	// succeeds, and never before. An object of that name must not exist:
	// Commit then fails with ErrExists and the old one stays.
	Create(ctx context.Context, uri string) (Writer, error)
	// PutIfAbsent writes a small object in one step, durably, or fails with
	// ErrExists. It may decide who wins a name, as a commit in a log: the request
	// is sent once, whatever comes of it, by no layer again and after no redirect.
	// A reply that was lost or leaves its fate open (a timeout, 5xx, throttling)
	// is looked for, and if nothing is there the error is ErrUncertain. After any
	// other error nothing was written. WriteFile is for files that decide nothing.
	PutIfAbsent(ctx context.Context, uri string, data []byte) error
	// Stat gives the size in bytes.
	Stat(ctx context.Context, uri string) (int64, error)
	// Delete removes an object; a missing one is no error.
	Delete(ctx context.Context, uri string) error
	// List gives all objects whose URI starts with prefix, in the store's own
	// order: S3 and local disk go by the bytes of names, while SeaweedFS and S3's
	// directory buckets don't. Sort where it matters.
	List(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// ListUnfinished gives the temporary files below a prefix, which ends in a slash: what
	// writers that never ended left, or are at work on. Delete removes them. Uploads
	// aren't among them, which only RemoveUnfinished ends.
	ListUnfinished(ctx context.Context, prefix string) iter.Seq2[Info, error]
	// RemoveUnfinished removes below a prefix, which ends in a slash, what no
	// listing shows: temporary files and uploads of writers that never ended, and
	// directories without files, the prefix's own too. The caller knows that nobody
	// who matters writes there any more: a writer that is still at work fails. It
	// returns how many things it removed.
	RemoveUnfinished(ctx context.Context, prefix string) (int, error)
}

// Info is an object in a listing.
type Info struct {
	URI  string
	Size int64
}

// Object is an open object. ReadAt is safe for concurrent use.
type Object interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Writer writes one object. Exactly one of Commit and Abort must be called;
// Abort after either has no effect.
type Writer interface {
	io.Writer
	// Commit makes the object visible and durable.
	Commit(ctx context.Context) error
	// Abort gives up and leaves nothing behind.
	Abort()
}
