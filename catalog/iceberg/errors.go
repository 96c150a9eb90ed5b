package iceberg

import (
	"context"
	"errors"
	"fmt"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// newError makes an error for a person with the registry's hint. An error that
// is one already, or that is only the context's end, is wrapped, unless it names
// the object itself.
func newError(code commit.Code, op, object string, cause error) error {
	if e, ok := errors.AsType[*commit.Error](cause); ok && e.Code != "" {
		if e.Object == object {
			return cause
		}
		return fmt.Errorf("%s %s: %w", op, object, cause)
	}
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%s %s: %w", op, object, cause)
	}
	info, _ := commit.Explain(string(code))
	return &commit.Error{Code: code, Op: op, Object: object, Cause: cause, Hint: info.Hint}
}

// buildError is why no request could be built. Only what another try can't change
// has a reason to refuse.
func buildError(table commit.TableName, err error) error {
	if errors.Is(err, objstore.ErrPermission) {
		info, _ := commit.Explain(string(commit.CodeStoragePermission))
		return &commit.Error{
			Code: commit.CodeStoragePermission, Op: "prepare commit to", Object: table.String(), Reason: commit.ReasonPermission,
			Cause: err, Hint: info.Hint,
		}
	}
	return newError(commit.CodeCatalog, "prepare commit to", table.String(), err)
}

// TableNotFound is the error for a table that a catalog doesn't have. It wraps
// commit.ErrTableNotFound.
func TableNotFound(name commit.TableName, hint string) error {
	info, _ := commit.Explain(string(commit.CodeTableNotFound))
	if hint == "" {
		hint = info.Hint
	}
	return &commit.Error{Code: commit.CodeTableNotFound, Op: "open table", Object: name.String(), Cause: commit.ErrTableNotFound, Hint: hint}
}

// changed refuses a unit because the table isn't any more what its files were
// written for.
func changed(name commit.TableName, kind commit.Conflict, format string, args ...any) error {
	info, _ := commit.Explain(string(commit.CodeTableChanged))
	return &commit.Error{
		Code: commit.CodeTableChanged, Op: "commit to", Object: name.String(), Reason: commit.ReasonTableChanged, Conflict: kind,
		Cause: fmt.Errorf(format, args...), Hint: info.Hint,
	}
}
