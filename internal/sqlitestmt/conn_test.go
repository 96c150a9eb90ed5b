package sqlitestmt

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
)

func open(t *testing.T) *sql.DB {
	t.Helper()
	db, err := Open("file:" + filepath.Join(t.TempDir(), "t.db"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	exec(t, db, "CREATE TABLE t (a INTEGER, b TEXT)")
	return db
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// kept calls f with the statements of the only connection.
func kept(t *testing.T, db *sql.DB, f func(map[string]*statement)) {
	t.Helper()
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Raw(func(raw any) error { f(raw.(*conn).kept); return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestStatementsAreCompiledOnce(t *testing.T) {
	db := open(t)
	const insert, count = "INSERT INTO t VALUES (?, ?)", "SELECT count(*) FROM t WHERE a < ?"
	var first [2]*statement
	for i := range 10 {
		exec(t, db, insert, i, "x")
		var n int
		if err := db.QueryRowContext(t.Context(), count, 100).Scan(&n); err != nil || n != i+1 {
			t.Fatalf("%d rows, %v; want %d", n, err, i+1)
		}
		kept(t, db, func(all map[string]*statement) {
			if now := [2]*statement{all[insert], all[count]}; now[0] == nil || now[1] == nil || i > 0 && now != first {
				t.Fatalf("round %d: %v, first %v", i, now, first)
			} else {
				first = now
			}
			if all[count].busy {
				t.Fatal("a statement whose rows are closed is busy")
			}
		})
	}
}

// A statement in a transaction that is rolled back can be used again, also after
// it has failed.
func TestAfterRollbackAndFailure(t *testing.T) {
	db := open(t)
	exec(t, db, "CREATE UNIQUE INDEX i ON t (a)")
	const insert = "INSERT INTO t VALUES (?, ?)"
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), insert, 1, "gone"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	exec(t, db, insert, 1, "here")
	if _, err := db.ExecContext(t.Context(), insert, 1, "twice"); err == nil {
		t.Fatal("a unique index took a value twice")
	}
	exec(t, db, insert, 2, "here")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := db.ExecContext(cancelled, insert, 3, "never"); err == nil {
		t.Fatal("no error of a context that had ended")
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM t WHERE b = 'here'").Scan(&n); err != nil || n != 2 {
		t.Fatalf("%d rows, %v", n, err)
	}
}

// The same text can be asked again while its rows are open.
func TestOverlappingRows(t *testing.T) {
	db := open(t)
	for i := range 3 {
		exec(t, db, "INSERT INTO t VALUES (?, 'x')", i)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	const list = "SELECT a FROM t ORDER BY a"
	outer, err := tx.QueryContext(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	got := ""
	for outer.Next() {
		var a, b int
		if err := outer.Scan(&a); err != nil {
			t.Fatal(err)
		}
		inner, err := tx.QueryContext(t.Context(), list)
		if err != nil {
			t.Fatal(err)
		}
		for inner.Next() {
			if err := inner.Scan(&b); err != nil {
				t.Fatal(err)
			}
			got += fmt.Sprint(a, b, " ")
		}
		if err := inner.Err(); err != nil {
			t.Fatal(err)
		}
	}
	if want := "0 0 0 1 0 2 1 0 1 1 1 2 2 0 2 1 2 2 "; got != want || outer.Err() != nil {
		t.Errorf("got %q, %v; want %q", got, outer.Err(), want)
	}
}

// A statement that was compiled before the schema changed sees the change.
func TestSchemaChanges(t *testing.T) {
	db := open(t)
	columns := func() int {
		rows, err := db.QueryContext(t.Context(), "SELECT * FROM t")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		names, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	exec(t, db, "INSERT INTO t VALUES (1, 'x')")
	before := columns()
	exec(t, db, "ALTER TABLE t ADD COLUMN c")
	if after := columns(); before != 2 || after != 3 {
		t.Errorf("%d columns, then %d", before, after)
	}
}

// Scripts run as a whole each time.
func TestScript(t *testing.T) {
	db := open(t)
	const script = "INSERT INTO t VALUES (1, 'x'); INSERT INTO t VALUES (2, 'y')"
	exec(t, db, script)
	exec(t, db, script)
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&n); err != nil || n != 4 {
		t.Fatalf("%d rows, %v", n, err)
	}
}

func TestKeptStatementsAreBounded(t *testing.T) {
	db := open(t)
	const often = "SELECT 'often'"
	for i := range 3 * maxKept {
		for _, q := range []string{often, fmt.Sprintf("SELECT %d", i)} {
			var v string
			if err := db.QueryRowContext(t.Context(), q).Scan(&v); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept(t, db, func(all map[string]*statement) {
		if len(all) != maxKept || all[often] == nil {
			t.Errorf("%d statements are kept, want %d; the one that is used often is kept: %t", len(all), maxKept, all[often] != nil)
		}
	})
}
