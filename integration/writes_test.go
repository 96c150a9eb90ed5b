//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/integration/process"
)

// engine stands for one that writes by itself: it has a scheduler's address, and
// DuckDB in this process for its workers.
type engine struct {
	*lakeside
	t *testing.T
	c *client.Client
}

// writers starts a scheduler, and one executor to read what was written.
func writers(t *testing.T, config string) *engine {
	t.Helper()
	e := &engine{lakeside: startProcesses(t, "push", 1), t: t}
	if config != "" {
		path := filepath.Join(e.dir, "scheduler.yaml")
		raw, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, append(raw, config...), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		e.scheduler.Stop(t)
		e.scheduler = e.scheduler.Again(t)
	}
	e.dial()
	return e
}

func (e *engine) dial() {
	e.t.Helper()
	c, err := client.Dial(e.t.Context(), e.scheduler.Address)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = c.Close() })
	e.c = c
}

func (e *engine) begin(table, key string) (*client.Write, client.WriteContext) {
	e.t.Helper()
	w, err := e.c.BeginWrite(e.t.Context(), table, client.WriteOptions{Key: key, Engine: "a test"})
	if err != nil {
		e.t.Fatal(err)
	}
	wc, ok := w.Context()
	if !ok {
		e.t.Fatalf("write %s isn't open", w.ID())
	}
	return w, wc
}

// local is the path of a URI of a local file.
func local(t *testing.T, uri string) string {
	t.Helper()
	path, ok := strings.CutPrefix(uri, "file://")
	if !ok {
		t.Fatalf("%s isn't a local file", uri)
	}
	return path
}

// task is one attempt of a worker: a file with the rows of a query, as DuckDB writes
// it, that has a client of its own with the worker's token.
func (e *engine) task(wc client.WriteContext, attempt, query string, partition map[string]*string) client.Handle {
	e.t.Helper()
	dir := local(e.t, wc.Prefix)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		e.t.Fatal(err)
	}
	name := attempt + "-0.parquet"
	var ids []string
	for _, f := range wc.Schema.Fields() {
		if id, ok := f.Metadata.GetValue("PARQUET:field_id"); ok {
			ids = append(ids, f.Name+": "+id)
		}
	}
	options := "FORMAT parquet"
	if len(ids) > 0 {
		options += ", FIELD_IDS {" + strings.Join(ids, ", ") + "}"
	}
	duck(e.t, fmt.Sprintf("COPY (%s) TO '%s' (%s)", query, filepath.Join(dir, name), options))
	c, err := client.Dial(e.t.Context(), e.scheduler.Address, client.WithToken(wc.WorkerToken))
	if err != nil {
		e.t.Fatal(err)
	}
	defer c.Close()
	h, err := c.JoinWrite(wc).HandInFiles(e.t.Context(), attempt, []client.WrittenFile{{Path: wc.Prefix + name, Size: -1, Rows: -1, Partition: partition}})
	if err != nil {
		e.t.Fatal(err)
	}
	return h
}

// left lists the files under a write's prefix.
func (e *engine) left(wc client.WriteContext) []string {
	e.t.Helper()
	var names []string
	err := filepath.WalkDir(local(e.t, wc.Prefix), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, filepath.Base(path))
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return names
}

// versions counts the versions of the table that a write goes to: the files that each
// commit adds and nothing else does.
func (e *engine) versions(wc client.WriteContext) int {
	e.t.Helper()
	above := filepath.Dir(filepath.Clean(local(e.t, wc.Prefix)))
	snapshots, err := filepath.Glob(filepath.Join(filepath.Dir(above), "metadata", "snap-*.avro"))
	logs, lerr := filepath.Glob(filepath.Join(above, "_delta_log", "*.json"))
	if err := errors.Join(err, lerr); err != nil {
		e.t.Fatal(err)
	}
	return len(snapshots) + len(logs)
}

// swept waits until everything that may go of a table has gone.
func (e *engine) swept(table string) {
	e.t.Helper()
	if r := process.Run(e.t.Context(), e.t, "table", "orphans", table, "--wait", "--server", e.scheduler.Address); r.Code != 0 {
		e.t.Fatalf("%s%s", r.Stdout, r.Stderr)
	}
}

// TestExternalWrites: an engine of its own writes an Iceberg and a Delta table, both
// partitioned. Exactly the winners' rows are there, in one version, and the losers'
// files go.
func TestExternalWrites(t *testing.T) {
	e := writers(t, "sweep: {delay: 1s}\n")
	for table, ddl := range map[string]string{
		"lake.air.ice":   "CREATE TABLE lake.air.ice (n bigint, part varchar) PARTITIONED BY (part)",
		"lake.air.delta": "CREATE TABLE lake.air.delta (n bigint, part varchar) USING delta PARTITIONED BY (part)",
	} {
		t.Run(table, func(t *testing.T) {
			e.Exec(nil, ddl)
			w, wc := e.begin(table, "load of "+table)
			columns := strings.Join(wc.FileColumns, ", ")
			var handles []client.Handle
			for i := range 4 {
				query := fmt.Sprintf("SELECT %s FROM (SELECT i AS n, 'p%d' AS part FROM range(%d, %d) r(i))", columns, i, i*1000, (i+1)*1000)
				part := map[string]*string{"part": new(fmt.Sprint("p", i))}
				e.task(wc, fmt.Sprintf("t%d.0", i), query, part) // a try that lost
				handles = append(handles, e.task(wc, fmt.Sprintf("t%d.1", i), query, part))
			}
			before := e.versions(wc)
			r, err := w.Commit(t.Context(), handles)
			if err != nil || r.State != commit.CommitCommitted || r.Rows != 4000 || r.Files != 4 || r.SnapshotID == "" {
				t.Fatalf("%+v, %v", r, err)
			}
			if n := e.versions(wc); n != before+1 {
				t.Errorf("%d versions became %d", before, n)
			}
			if all, distinct := e.rows(table); all != 4000 || distinct != 4000 {
				t.Errorf("%d rows, %d different ones", all, distinct)
			}
			row := e.Row("SELECT count(*) AS n, min(n) AS low FROM " + table + " WHERE part = 'p2'")
			if n, _ := process.Int(row["n"]); n != 1000 {
				t.Errorf("partition p2: %v", row)
			}
			again, err := w.Commit(t.Context(), handles)
			if err != nil || again.SnapshotID != r.SnapshotID {
				t.Errorf("again: %+v, %v", again, err)
			}
			e.swept(table)
			if names := e.left(wc); len(names) != 4 || slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, ".0-") }) {
				t.Errorf("files %v", names)
			}
			if all, _ := e.rows(table); all != 4000 {
				t.Errorf("%d rows after the sweep", all)
			}
		})
	}
}

// TestKilledUnderAWrite: the scheduler is killed while a write is open, right after it
// was sealed, and while its commit is being sent. The driver, which hears nothing, asks
// again, or a new one resumes by the key; the rows are there once.
func TestKilledUnderAWrite(t *testing.T) {
	e, whole := writers(t, ""), t
	e.Exec(nil, "CREATE TABLE lake.air.t (n bigint)")
	for i, words := range [][]string{nil, {`"msg":"write sealed"`}, {`"msg":"root phase"`, `"phase":"queued"`}, {`"msg":"sending commit request"`}} {
		t.Run(strings.Join(words, " "), func(t *testing.T) {
			e.t = t
			e.dial()
			key := fmt.Sprint("k", i)
			w, wc := e.begin("lake.air.t", key)
			one := e.task(wc, "one", fmt.Sprintf("SELECT i AS n FROM range(%d, %d) r(i)", i*1000, i*1000+600), nil)
			mark := e.scheduler.Mark()
			if words == nil {
				e.scheduler.Kill()
				e.scheduler = e.scheduler.Again(whole)
				e.dial()
			}
			again, err := e.c.ResumeWrite(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if c, ok := again.Context(); !ok || c.Prefix != wc.Prefix || again.ID() != w.ID() {
				t.Fatalf("%+v", c)
			}
			handles := []client.Handle{one, e.task(wc, "two", fmt.Sprintf("SELECT i AS n FROM range(%d, %d) r(i)", i*1000+600, i*1000+1000), nil)}
			done := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				r, err := again.Commit(ctx, handles)
				if err == nil && r.Rows != 1000 {
					err = fmt.Errorf("%+v", r)
				}
				done <- err
			}()
			if words != nil {
				e.scheduler.AwaitLog(t, mark, words...)
				e.scheduler.Kill()
				e.scheduler = e.scheduler.Again(whole)
			}
			if err := <-done; err != nil {
				t.Errorf("the driver that waited: %v", err)
			}
			e.dial()
			resumed, err := e.c.ResumeWrite(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			r, err := resumed.Wait(t.Context())
			if err != nil || r.State != commit.CommitCommitted || r.Rows != 1000 || resumed.ID() != w.ID() {
				t.Errorf("resumed: %+v, %v", r, err)
			}
			if st, err := resumed.Status(t.Context()); err != nil || len(st.Sealed) != 2 {
				t.Errorf("%+v, %v", st, err)
			}
			if all, distinct := e.rows("lake.air.t"); all != int64(i+1)*1000 || distinct != all {
				t.Errorf("%d rows, %d different ones; want %d", all, distinct, (i+1)*1000)
			}
		})
	}
}

// TestAbandonedWrite: a write that nobody renews expires and its files go, also across a
// restart; a committed one stays; one that was aborted goes at once.
func TestAbandonedWrite(t *testing.T) {
	e := writers(t, "sweep: {delay: 1s}\nwrites: {ttl: 3s, max_age: 1h, max_open_principal: 2}\n")
	e.Exec(nil, "CREATE TABLE lake.air.t (n bigint)")
	kept, keptContext := e.begin("lake.air.t", "kept")
	r, err := kept.Commit(t.Context(), []client.Handle{e.task(keptContext, "a", "SELECT 1::bigint AS n", nil)})
	if err != nil || r.Rows != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	aborted, abortedContext := e.begin("lake.air.t", "aborted")
	e.task(abortedContext, "a", "SELECT 2::bigint AS n", nil)
	left, leftContext := e.begin("lake.air.t", "left")
	handle := e.task(leftContext, "a", "SELECT 3::bigint AS n", nil)
	if _, err := e.c.BeginWrite(t.Context(), "lake.air.t", client.WriteOptions{Key: "third"}); commit.CodeOf(err) != commit.CodeTooManyWrites {
		t.Errorf("a third open write: %v", err)
	}
	if st, err := aborted.Abort(t.Context()); err != nil || st.State != client.WriteAborted {
		t.Errorf("%+v, %v", st, err)
	}
	mark := e.scheduler.Mark()
	e.scheduler.AwaitLog(t, mark, `"msg":"write expired"`, left.ID())
	_, err = left.Commit(t.Context(), []client.Handle{handle})
	if st, serr := left.Status(t.Context()); err == nil || serr != nil || st.State != client.WriteExpired {
		t.Errorf("%v; %+v, %v", err, st, serr)
	}
	e.swept("lake.air.t")
	for name, c := range map[string]struct {
		wc    client.WriteContext
		files int
	}{"kept": {keptContext, 1}, "aborted": {abortedContext, 0}, "left": {leftContext, 0}} {
		if names := e.left(c.wc); len(names) != c.files {
			t.Errorf("%s: files %v", name, names)
		}
	}
	if all, _ := e.rows("lake.air.t"); all != 1 {
		t.Errorf("%d rows", all)
	}
}
