package openwrite_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/apache/iceberg-go"
	sqlcat "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
)

// evolve changes the table as another engine would, through the library.
func (s *stand) evolve(change func(*table.Transaction) error) {
	s.t.Helper()
	ctx := context.Background()
	db, err := sql.Open("sqlite", filepath.Join(s.dir, "catalog.db"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	cat, err := sqlcat.NewCatalog("lake", db, sqlcat.SQLite, iceberg.Properties{"warehouse": "file://" + filepath.Join(s.dir, "warehouse")})
	if err != nil {
		s.t.Fatal(err)
	}
	tbl, err := cat.LoadTable(ctx, table.Identifier{"w", "t"})
	if err != nil {
		s.t.Fatal(err)
	}
	tx := tbl.NewTransaction()
	if err := change(tx); err != nil {
		s.t.Fatal(err)
	}
	if _, err := tx.Commit(ctx); err != nil {
		s.t.Fatal(err)
	}
}

// A table that another engine evolves between begin and commit, also between two
// manifests: files of the schema and the spec that the write began with are
// committed where they still fit, and else refused whole, never in part.
func TestTablesThatEvolveMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*table.Transaction) error
		landed bool
	}{
		"a column added": {func(tx *table.Transaction) error {
			return tx.UpdateSchema(true, false).AddColumn([]string{"extra"}, iceberg.PrimitiveTypes.Int64, "", false, nil).Commit()
		}, true},
		"a column renamed": {func(tx *table.Transaction) error {
			return tx.UpdateSchema(true, false).RenameColumn([]string{"id"}, "number").Commit()
		}, true},
		"another partition field": {func(tx *table.Transaction) error {
			return tx.UpdateSpec(true).AddField("id", iceberg.BucketTransform{NumBuckets: 4}, "id_bucket").Commit()
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, "iceberg")
			w, wc := s.begin(client.WriteOptions{})
			before := s.taken(w, wc, 2)
			s.evolve(c.change)
			after := s.taken(w, wc, 3)
			rep, err := w.Commit(t.Context(), []client.Handle{before.handle, after.handle})
			e := newExpected()
			if c.landed {
				e.add(before, after)
			}
			if (err == nil) != c.landed || (rep.State == commit.CommitCommitted) != c.landed {
				t.Errorf("%+v, %v", rep, err)
			}
			column := "id"
			if name == "a column renamed" {
				column = "number"
			}
			res, err := s.Execute(t.Context(), client.Statement{SQL: "SELECT count(DISTINCT " + column + ")::varchar, count(*)::varchar FROM lake.w.t WHERE p = 'x'"})
			if err != nil {
				t.Fatal(err)
			}
			for b, err := range res.Rows(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if got := b.Column(0).ValueStr(0) + " " + b.Column(1).ValueStr(0); got != "5 5" {
					t.Errorf("rows: %s", got)
				}
			}
			s.settle(e.files)
		})
	}
}
