//go:build chaos

package chaos_test

import (
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/internal/failpoint"
)

// writePoints are the fail points that a scheduler gets to with a write of others.
var writePoints = slices.Concat(failpoint.Writes, []failpoint.Point{
	failpoint.BeforeStart, failpoint.AfterStart, failpoint.BeforeManifest, failpoint.BeforeSeal, failpoint.AfterSeal, failpoint.BeforeRecord, failpoint.AfterRecord,
	failpoint.BeforeSend, failpoint.AfterSend, failpoint.BeforeOutcome, failpoint.AfterOutcome, failpoint.BeforeEnd, failpoint.AfterEnd,
	failpoint.BeforeDeleting, failpoint.AfterDeleting, failpoint.AfterDelete,
})

// TestWriteAtFailPoints: the scheduler is killed at each of its fail points while
// another engine writes, and started again. The engine's calls are sent again until
// they are answered, as a library does. The winners' rows are there once, and of the
// files exactly those are left.
func TestWriteAtFailPoints(t *testing.T) {
	if os.Getenv("FIRN_CHAOS_RUN") != "" {
		t.Skip("one seed was asked for")
	}
	for _, p := range writePoints {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			writeAt(t, p)
		})
	}
}

// reached calls until the scheduler is there again: on a busy machine its start takes
// longer than the client's own patience.
func reached(call func() error) error {
	for deadline := time.Now().Add(time.Minute); ; pause(100 * time.Millisecond) {
		if err := call(); commit.CodeOf(err) != commit.CodeUnreachable || time.Now().After(deadline) {
			return err
		}
	}
}

func writeAt(t *testing.T, p failpoint.Point) {
	dir := t.TempDir()
	mark, config := filepath.Join(dir, "mark"), filepath.Join(dir, "scheduler.yaml")
	if err := os.WriteFile(config, []byte("sweep: {delay: 1s}\nexecutors: {heartbeat: 200ms, timeout: 1s}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := process.StartWith(t, []string{"FIRN_FAILPOINT=" + string(p), "FIRN_FAILPOINT_MARK=" + mark},
		"scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "s"), "--config", config)
	c, err := client.Dial(t.Context(), s.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, statement := range []string{"CREATE NAMESPACE lake.air", "CREATE TABLE lake.air.t (n bigint)"} {
		if _, err := c.Execute(t.Context(), client.Statement{SQL: statement}); err != nil {
			t.Fatal(err)
		}
	}
	again := make(chan *process.Server, 1)
	go func() {
		s.Wait()
		again <- s.Again(t)
	}()
	var w *client.Write
	if err := reached(func() (err error) {
		w, err = c.BeginWrite(t.Context(), "lake.air.t", client.WriteOptions{Key: "k"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	wc, _ := w.Context()
	var handles []client.Handle
	for i, attempt := range []string{"loser", "one", "two"} {
		path := wc.Prefix + attempt + "-0.parquet"
		writeRows(t, strings.TrimPrefix(path, "file://"), i*1000)
		var h client.Handle
		if err := reached(func() (err error) {
			h, err = w.HandInFiles(t.Context(), attempt, []client.WrittenFile{{Path: path, Size: -1, Rows: 1000}})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		handles = append(handles, h)
	}
	var r commit.Report
	err = reached(func() (err error) {
		r, err = w.Commit(t.Context(), handles[1:])
		return err
	})
	if err != nil || r.State != commit.CommitCommitted || r.Rows != 2000 || r.JobID != "" && r.JobID != w.ID() {
		t.Fatalf("%+v, %v", r, err)
	}
	select {
	case s = <-again:
	case <-time.After(30 * time.Second):
		t.Fatal("the scheduler didn't die")
	}
	if _, err := os.Stat(mark); err != nil {
		t.Fatalf("it died elsewhere: %v", err)
	}
	if got, err := w.Commit(t.Context(), handles[1:]); err != nil || got.Rows != 2000 || got.SnapshotID != r.SnapshotID {
		t.Errorf("asked again: %+v, %v", got, err)
	}
	if got := process.Run(t.Context(), t, "table", "orphans", "lake.air.t", "--wait", "--server", s.Address); got.Code != 0 {
		t.Errorf("%s%s", got.Stdout, got.Stderr)
	}
	table, err := c.DescribeTable(t.Context(), "lake.air.t")
	if err != nil || table.Rows != 2000 || table.Snapshots != 1 {
		t.Errorf("%+v, %v", table, err)
	}
	var left []string
	err = filepath.WalkDir(strings.TrimPrefix(wc.Prefix, "file://"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			left = append(left, filepath.Base(path))
		}
		return err
	})
	if want := []string{"one-0.parquet", "two-0.parquet"}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %v, %v; want %v", left, err, want)
	}
}

// writeRows writes a file of 1,000 rows as another engine would.
func writeRows(t *testing.T, path string, first int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), fmt.Sprintf("COPY (SELECT i AS n FROM range(%d, %d) r(i)) TO '%s' (FORMAT parquet, FIELD_IDS {n: 1})", first, first+1000, path)); err != nil {
		t.Fatal(err)
	}
}
