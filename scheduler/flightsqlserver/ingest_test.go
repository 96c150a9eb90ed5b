package flightsqlserver

import (
	"errors"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
)

// TestHintsOfIngest: who ingests rows wrote no statement, so that it can't be changed.
func TestHintsOfIngest(t *testing.T) {
	for code, want := range map[commit.Code]string{
		commit.CodeSQLTypeMismatch: "before the rows are sent",
		commit.CodeKeyReused:       "firn job describe",
		commit.CodeTableNotFound:   "as it was",
	} {
		err := forIngest(&commit.Error{Code: code, Op: "insert", Cause: errors.New("the cause"), Hint: "as it was"})
		e, ok := errors.AsType[*commit.Error](err)
		if !ok || e.Code != code || !strings.Contains(e.Hint, want) || !strings.Contains(e.Error(), "the cause") {
			t.Errorf("%s: %v", code, err)
		}
	}
	if err := errors.New("of another kind"); !errors.Is(forIngest(err), err) {
		t.Error("another kind of error")
	}
	if forIngest(nil) != nil {
		t.Error("no error")
	}
}
