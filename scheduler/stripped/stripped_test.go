package stripped_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/stripped"
)

// failing fails the next writes.
type failing struct {
	stripped.Journal
	writes int
}

func (f *failing) Strip(ctx context.Context, s journal.Stripped) error {
	if f.writes > 0 {
		f.writes--
		return errors.New("disk full")
	}
	return f.Journal.Strip(ctx, s)
}

func TestMarksOutliveTheProcess(t *testing.T) {
	ctx := t.Context()
	j, err := journal.OpenMemory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}()
	load := func(j stripped.Journal) *stripped.Tables {
		t.Helper()
		tables, err := stripped.Load(ctx, j, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return tables
	}
	u := commit.Unit{JobID: "j-1", TableUUID: "uuid", Table: commit.TableName{Catalog: "lake", Namespace: []string{"s"}, Name: "t"}}
	tables := load(&failing{j, 1})
	if err := errors.Join(tables.Check("uuid"), tables.Save(ctx, "uuid")); err != nil {
		t.Fatal(err)
	}
	tables.Found(u, "77")
	if err := tables.Save(ctx, "uuid"); err == nil {
		t.Fatal("a mark that isn't durable counts as saved")
	}
	// It isn't on record yet, and counts here all the same.
	if err := tables.Check("uuid"); commit.CodeOf(err) != commit.CodeTokensStripped {
		t.Fatalf("checked: %v", err)
	}
	if err := load(j).Check("uuid"); err != nil {
		t.Fatal(err)
	}
	if err := tables.Save(ctx, "uuid"); err != nil {
		t.Fatal(err)
	}
	next := load(j)
	err = next.Check("uuid")
	if commit.CodeOf(err) != commit.CodeTokensStripped || commit.ReasonOf(err) != commit.ReasonPermission {
		t.Fatalf("after a restart: %v", err)
	}
	said, _ := errors.AsType[*commit.Error](err)
	for _, want := range []string{"j-1", "77", "firn catalog check lake", "firn table allow-commits lake.s.t"} {
		if !strings.Contains(err.Error()+said.Hint, want) {
			t.Errorf("%q, %q don't say %q", err, said.Hint, want)
		}
	}
	if why := next.Why("uuid"); !strings.Contains(why, "snapshot 77") || next.Why("other") != "" || next.Check("other") != nil {
		t.Errorf("%q, other %q", why, next.Why("other"))
	}
	if err := next.Allow(ctx, "uuid"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(next.Check("uuid"), load(j).Check("uuid")); err != nil {
		t.Fatal(err)
	}
}
