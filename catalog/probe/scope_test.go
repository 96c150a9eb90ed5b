package probe

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/sql"
)

// TestExecutorsKeys: the check of a catalog says which keys executors get, and warns
// of those that aren't scoped.
func TestExecutorsKeys(t *testing.T) {
	for _, c := range []struct {
		needed  bool
		warning string
		err     error
		verdict sql.ProbeVerdict
		says    string
	}{
		{false, "", nil, sql.ProbeSkipped, "none"},
		{true, "", nil, sql.ProbeOK, "scoped"},
		{true, "not scoped to a job", nil, sql.ProbeWarning, "allow_unscoped: not scoped"},
		{false, "", errors.New("no STS"), sql.ProbeWarning, "no STS"},
	} {
		p := &prober{Options: Options{Scoping: func(context.Context, commit.TableName) (bool, string, error) { return c.needed, c.warning, c.err }}}
		if err := p.scope(t.Context()); err != nil {
			t.Error(err)
		}
		if got := p.report.Probes[0]; got.Verdict != c.verdict || !strings.Contains(got.Answer, c.says) {
			t.Errorf("%+v; want %s, %q", got, c.verdict, c.says)
		}
	}
}
