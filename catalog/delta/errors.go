package delta

import (
	"context"
	"errors"
	"fmt"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

// newError makes an error for a person with the registry's hint. An error that
// is one already, or that is only the context's end, is wrapped.
func newError(code commit.Code, op, object string, cause error) error {
	if e, ok := errors.AsType[*commit.Error](cause); ok && e.Code != "" || errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%s %s: %w", op, object, cause)
	}
	info, _ := commit.Explain(string(code))
	return &commit.Error{Code: code, Op: op, Object: object, Cause: cause, Hint: info.Hint}
}

// damaged says that a file of the log breaks the format's rules.
func damaged(uri string, cause error) error {
	e := newError(commit.CodeMetadataInvalid, "read Delta log", uri, cause)
	if c, ok := errors.AsType[*commit.Error](e); ok && c.Code == commit.CodeMetadataInvalid && c.Object == uri {
		c.Hint = "Look at the file that the message names. Another engine can tell whether the table itself is damaged."
	}
	return e
}

// unsupported turns a refusal of format/delta into one for a person.
func unsupported(op, table string, err error) error {
	if _, ok := errors.AsType[*delta.UnsupportedError](err); ok {
		return newError(commit.CodeTableUnsupported, op, table, err)
	}
	return newError(commit.CodeMetadataInvalid, op, table, err)
}

// notFound is the error for a directory that isn't a table. It wraps
// commit.ErrTableNotFound.
func notFound(root string) error {
	return &commit.Error{
		Code: commit.CodeTableNotFound, Op: "open Delta table", Object: root, Cause: commit.ErrTableNotFound,
		Hint: "A Delta table is a directory with a " + logDir + " in it; check the path.",
	}
}

// noVersion is the error for a version that a log doesn't have any more, or yet.
func noVersion(root string, version int64, format string, args ...any) error {
	return newError(commit.CodeSnapshotNotFound, fmt.Sprintf("read version %d of", version), root, fmt.Errorf(format, args...))
}

func isNotFound(err error) bool { return errors.Is(err, objstore.ErrNotFound) }
