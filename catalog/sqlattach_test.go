package catalog

import (
	"context"
	stdsql "database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/firn-project/firn/commit"
)

// A catalog made by others, whose table of tables has no type column, works.
func TestOldCatalogSchema(t *testing.T) {
	dir := t.TempDir()
	db, err := stdsql.Open("sqlite", "file:"+dir+"/catalog.db")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{
		`CREATE TABLE iceberg_tables (catalog_name VARCHAR(255) NOT NULL, table_namespace VARCHAR(255) NOT NULL, table_name VARCHAR(255) NOT NULL,
			metadata_location VARCHAR(1000), previous_metadata_location VARCHAR(1000), PRIMARY KEY (catalog_name, table_namespace, table_name))`,
		`CREATE TABLE iceberg_namespace_properties (catalog_name VARCHAR(255) NOT NULL, namespace VARCHAR(255) NOT NULL,
			property_key VARCHAR(255) NOT NULL, property_value VARCHAR(1000) NOT NULL, PRIMARY KEY (catalog_name, namespace, property_key))`,
	} {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, openSet(t, dir), library(t, dir))
	tbl := h.Open(t)
	u := h.Unit(t, "k", 1, 3)
	m, err := tbl.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := tbl.Build(t.Context(), m, []commit.Unit{u})
	if err != nil {
		t.Fatal(err)
	}
	if a := tbl.Send(t.Context(), r); a.Class != commit.AnswerOK {
		t.Fatalf("%+v", a)
	}
	if n := h.Rows(t); n != 3 {
		t.Errorf("%d rows", n)
	}
	info, err := h.set.Describe(t.Context(), airT)
	if err != nil || info.Rows != 3 || info.Files != 1 || info.Bytes != u.Bytes || info.Snapshots != 1 {
		t.Errorf("described as %+v, %v", info, err)
	}
}

// A statement that the catalog's file may not be written with is refused as a
// matter of permission, and nothing is applied.
func TestAnswerClasses(t *testing.T) {
	dir := t.TempDir()
	h := newHarness(t, openSet(t, dir), library(t, dir))
	tbl := h.Open(t)
	u := h.Unit(t, "k", 1, 1)
	m, err := tbl.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := tbl.Build(t.Context(), m, []commit.Unit{u})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if a := tbl.Send(ctx, r); a.Class != commit.AnswerAmbiguous || a.Err == nil {
		t.Errorf("cancelled: %+v", a)
	}
	db := h.set.entries["lake"].backend.(observed).db
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(t.Context(), "PRAGMA query_only = 1"); err != nil {
		t.Fatal(err)
	}
	if a := tbl.Send(t.Context(), r); a.Class != commit.AnswerPermission || !strings.Contains(a.Err.Error(), "catalog.db") {
		t.Errorf("read-only: %+v", a)
	}
	if _, err := db.ExecContext(t.Context(), "PRAGMA query_only = 0"); err != nil {
		t.Fatal(err)
	}
	if n := h.Rows(t); n != 0 {
		t.Errorf("%d rows", n)
	}
	// Another process holds the file: nothing was done, and waiting helps.
	if _, err := db.ExecContext(t.Context(), "PRAGMA busy_timeout = 0"); err != nil {
		t.Fatal(err)
	}
	other, err := stdsql.Open("sqlite", "file:"+dir+"/catalog.db?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if a := tbl.Send(t.Context(), r); a.Class != commit.AnswerWait {
		t.Errorf("locked: %+v", a)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if a := tbl.Send(t.Context(), r); a.Class != commit.AnswerOK {
		t.Errorf("at last: %+v", a)
	}
}

// Many writers of one table, each with a driver of its own as if in processes of
// their own: every commit lands once, whatever the others do.
func TestWritersOfOneTable(t *testing.T) {
	dir := t.TempDir()
	h := newHarness(t, openSet(t, dir), library(t, dir))
	const writers, each = 6, 4
	units := make([][]commit.Unit, writers)
	for w := range writers {
		for i := range each {
			units[w] = append(units[w], h.Unit(t, fmt.Sprintf("%d-%d", w, i), 1, 1))
		}
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			tbl, err := openSet(t, dir).OpenTable(context.Background(), airT)
			if err != nil {
				t.Error(err)
				return
			}
			for _, u := range units[w] {
				for landed := false; !landed; {
					m, err := tbl.Read(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					r, err := tbl.Build(context.Background(), m, []commit.Unit{u})
					if err != nil {
						t.Error(err)
						return
					}
					landed = tbl.Send(context.Background(), r).Class == commit.AnswerOK
				}
			}
		})
	}
	wg.Wait()
	if n := h.Rows(t); n != writers*each {
		t.Errorf("%d rows, want %d", n, writers*each)
	}
	m := h.Load(t).Metadata()
	if n := len(m.Snapshots()); n != writers*each {
		t.Errorf("%d snapshots, want %d", n, writers*each)
	}
}
