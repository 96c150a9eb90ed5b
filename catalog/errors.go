package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	icecatalog "github.com/apache/iceberg-go/catalog"

	"github.com/firn-project/firn/commit"
)

// newError makes an error for a person with the registry's hint. An error that
// is one already, or only the end of a context, is wrapped, unless it names the
// object itself.
func newError(code commit.Code, op, object string, cause error) error {
	if e, ok := errors.AsType[*commit.Error](cause); ok && e.Object == object {
		return cause
	}
	if commit.CodeOf(cause) != "" || errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("%s %s: %w", op, object, cause)
	}
	info, _ := commit.Explain(string(code))
	return &commit.Error{Code: code, Op: op, Object: object, Cause: cause, Hint: info.Hint}
}

// mapped gives the code that fits a catalog's error.
func mapped(op, object string, err error) error {
	if err == nil {
		return nil
	}
	code := commit.CodeCatalog
	for _, m := range []struct {
		is   error
		code commit.Code
	}{
		{icecatalog.ErrNoSuchTable, commit.CodeTableNotFound},
		{icecatalog.ErrNoSuchNamespace, commit.CodeNamespaceNotFound},
		{icecatalog.ErrTableAlreadyExists, commit.CodeTableExists},
		{icecatalog.ErrViewAlreadyExists, commit.CodeTableExists},
		{icecatalog.ErrNamespaceAlreadyExists, commit.CodeNamespaceExists},
		{icecatalog.ErrNamespaceNotEmpty, commit.CodeNamespaceNotEmpty},
		{errPermission, commit.CodeCatalogPermission},
		{fs.ErrPermission, commit.CodeCatalogPermission},
	} {
		if errors.Is(err, m.is) {
			code = m.code
			break
		}
	}
	if code == commit.CodeTableNotFound && !errors.Is(err, commit.ErrTableNotFound) {
		err = fmt.Errorf("%w: %w", commit.ErrTableNotFound, err)
	}
	return newError(code, op, object, err)
}

// errPermission is wrapped by a backend's errors when the catalog refuses the
// scheduler's credentials.
var errPermission = errors.New("no permission")

// suggest gives a hint with the nearest of the names, or "" when none is near.
func suggest(name string, names []string, of string) string {
	best, at := "", utf8.RuneCountInString(name)/3+2
	for _, n := range names {
		if strings.EqualFold(n, name) {
			best = n
			break
		}
		if d := distance(strings.ToLower(name), strings.ToLower(n)); d < at {
			best, at = n, d
		}
	}
	if best == "" {
		return ""
	}
	return "Did you mean " + of + best + "?"
}

// distance is the number of runes to insert, delete or replace.
func distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range x {
		last := row[0]
		row[0] = i + 1
		for j, s := range y {
			cost := last
			if r != s {
				cost++
			}
			last = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}
