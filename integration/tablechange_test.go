package integration_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/iceberg-go"
	sqlcat "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
)

// slow takes long enough, on any machine, for a statement to change the table
// meanwhile: what follows waits for the job to run, not for a time.
const slow = "INSERT INTO lake.c.t SELECT count(*)::bigint, 'late' FROM range(60000) a(i), range(6000) b(j) WHERE (i * 7 + j * 13) % 1000003 = 5"

// while runs the slow insert and calls change once its tasks run.
func (l *lake) while(change func()) (client.JobStatus, error) {
	l.t.Helper()
	res, err := l.Execute(l.t.Context(), client.Statement{SQL: slow})
	if err != nil {
		l.t.Fatal(err)
	}
	for status, err := range res.Job.Events(l.t.Context()) {
		if err != nil {
			l.t.Fatal(err)
		}
		if status.State == client.StateRunning {
			change()
			break
		}
		if status.State.Ended() {
			l.t.Fatalf("the job ended before the table changed: %+v", status)
		}
	}
	return res.Job.Wait(l.t.Context())
}

// TestTableDroppedWhileTheJobRuns: refused, parked, and the error names the
// commands that adopt the files or give them up.
func TestTableDroppedWhileTheJobRuns(t *testing.T) {
	l := start(t, t.TempDir())
	l.must("CREATE NAMESPACE lake.c", "CREATE TABLE lake.c.t (n bigint, s string)")
	status, err := l.while(func() { l.must("DROP TABLE lake.c.t") })
	jobID := checkParked(t, status, err)

	// Adopted by another table.
	l.must("CREATE TABLE lake.c.u (n bigint, s string)")
	adopted, err := l.RetryUnit(t.Context(), jobID, "lake.c.u")
	if err != nil || adopted.Report == nil || adopted.Report.Rows != 1 {
		t.Fatalf("adopt: %+v, %v", adopted, err)
	}
	if n := l.count("lake.c.u WHERE s = 'late'"); n != 1 {
		t.Errorf("%d rows in the table that adopted the files, want 1", n)
	}
}

// TestTableReplacedWhileTheJobRuns: a table of the same name isn't the table.
func TestTableReplacedWhileTheJobRuns(t *testing.T) {
	dir := t.TempDir()
	l := start(t, dir)
	l.must("CREATE NAMESPACE lake.c", "CREATE TABLE lake.c.t (n bigint, s string)")
	status, err := l.while(func() { l.must("DROP TABLE lake.c.t", "CREATE TABLE lake.c.t (n bigint, s string)") })
	jobID := checkParked(t, status, err)
	if n := l.count("lake.c.t"); n != 0 {
		t.Errorf("%d rows in the new table, want none", n)
	}
	if files := parquetFiles(t, filepath.Join(dir, "warehouse")); len(files) != 1 {
		t.Fatalf("%d files kept, want 1", len(files))
	}
	if _, err := l.DropUnit(t.Context(), jobID); err != nil {
		t.Fatalf("drop: %v", err)
	}
	if files := parquetFiles(t, filepath.Join(dir, "warehouse")); len(files) != 0 {
		t.Errorf("files left after drop: %v", files)
	}
}

// TestColumnAddedWhileTheJobRuns: the append goes through.
func TestColumnAddedWhileTheJobRuns(t *testing.T) {
	dir := t.TempDir()
	l := start(t, dir)
	l.must("CREATE NAMESPACE lake.c", "CREATE TABLE lake.c.t (n bigint, s string)", "INSERT INTO lake.c.t VALUES (1, 'early')")
	status, err := l.while(func() { addColumn(t, dir, "extra") })
	if err != nil || status.Report == nil || status.Report.State != commit.CommitCommitted {
		t.Fatalf("%+v, %v", status, err)
	}
	if n := l.count("lake.c.t WHERE extra IS NULL"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

func checkParked(t *testing.T, status client.JobStatus, err error) string {
	t.Helper()
	e, ok := errors.AsType[*commit.Error](err)
	if !ok {
		t.Fatalf("want an error for people, got %v (%+v)", err, status)
	}
	if e.Reason != commit.ReasonTableChanged {
		t.Errorf("reason %q, want table_changed: %v", e.Reason, err)
	}
	if status.Commit != commit.CommitRefused {
		t.Errorf("commit is %s, want refused", status.Commit)
	}
	text := strings.Join([]string{e.Error(), e.Tried, e.Hint}, "\n")
	for _, s := range []string{"firn commit retry", "firn commit drop", "lake.c.t"} {
		if !strings.Contains(text, s) {
			t.Errorf("it doesn't say %q:\n%s", s, text)
		}
	}
	return status.ID
}

// addColumn changes the schema as another engine would, through the library.
func addColumn(t *testing.T, dir, name string) {
	t.Helper()
	ctx := context.Background()
	db, err := sql.Open("sqlite", filepath.Join(dir, "catalog.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	cat, err := sqlcat.NewCatalog("lake", db, sqlcat.SQLite, iceberg.Properties{"warehouse": "file://" + filepath.Join(dir, "warehouse")})
	if err != nil {
		t.Fatal(err)
	}
	tbl, err := cat.LoadTable(ctx, table.Identifier{"c", "t"})
	if err != nil {
		t.Fatal(err)
	}
	tx := tbl.NewTransaction()
	if err := tx.UpdateSchema(true, false).AddColumn([]string{name}, iceberg.PrimitiveTypes.Int64, "", false, nil).Commit(); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
}
