package history_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	ice "github.com/apache/iceberg-go"
	icecatalog "github.com/apache/iceberg-go/catalog"
	icerest "github.com/apache/iceberg-go/catalog/rest"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/integration/history"
	"github.com/firn-project/firn/integration/restcatalog"
)

var ident = []string{"n", "t"}

// newTable makes a catalog with an empty table.
func newTable(t *testing.T) *restcatalog.Server {
	t.Helper()
	s, err := restcatalog.NewServer(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	cat, err := icerest.NewCatalog(t.Context(), "lake", s.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cat.Close() })
	if err := cat.CreateNamespace(t.Context(), ident[:1], ice.Properties{}); err != nil {
		t.Fatal(err)
	}
	schema := ice.NewSchema(0, ice.NestedField{ID: 1, Name: "id", Type: ice.PrimitiveTypes.Int64})
	if _, err := cat.CreateTable(t.Context(), ident, schema, icecatalog.WithProperties(ice.Properties{})); err != nil {
		t.Fatal(err)
	}
	return s
}

func load(t *testing.T, s *restcatalog.Server) *table.Table {
	t.Helper()
	tbl, err := s.Table(t.Context(), ident...)
	if err != nil {
		t.Fatal(err)
	}
	return tbl
}

// TestRead: a row that two files have is there twice, and so is one of a file
// that is named twice.
func TestRead(t *testing.T) {
	s := newTable(t)
	rows, err := history.Read(t.Context(), load(t, s), "id")
	if err != nil || len(rows) != 0 {
		t.Fatalf("an empty table: %v, %v", rows, err)
	}
	for _, ids := range [][]int64{{1, 2}, {2, 3}} {
		if err := restcatalog.Change(t.Context(), s.URL, ident, restcatalog.Append(ids...)); err != nil {
			t.Fatal(err)
		}
	}
	rows, err = history.Read(t.Context(), load(t, s), "id")
	if err != nil || !maps.Equal(rows, map[int64]int{1: 1, 2: 2, 3: 1}) {
		t.Errorf("rows %v, %v", rows, err)
	}
}

// TestAudit: a token in two snapshots and a file that is gone are found.
func TestAudit(t *testing.T) {
	s := newTable(t)
	mark := func(tokens string, id int64) {
		t.Helper()
		if err := restcatalog.Change(t.Context(), s.URL, ident, restcatalog.AppendWith(ice.Properties{"k": tokens}, id)); err != nil {
			t.Fatal(err)
		}
	}
	audit := func() history.Report {
		t.Helper()
		r, err := history.Audit(t.Context(), load(t, s), "k")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	mark("a=1,b=2", 1)
	mark("c=3", 2)
	r := audit()
	if len(r.Breaches) != 0 || len(r.Files) != 2 {
		t.Errorf("a sound table: %+v", r)
	}
	mark("b=2", 3)
	if r = audit(); len(r.Breaches) != 1 || !strings.HasPrefix(r.Breaches[0], "token b landed with the snapshots") {
		t.Errorf("a token that landed twice: %q", r.Breaches)
	}
	gone := slices.Sorted(maps.Keys(r.Files))[0]
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if r = audit(); len(r.Breaches) != 2 || !strings.Contains(strings.Join(r.Breaches, "\n"), gone) {
		t.Errorf("a file that is gone: %q", r.Breaches)
	}
}
