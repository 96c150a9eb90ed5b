package scenarios_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/iceberg-go/table"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/integration/history"
	"github.com/firn-project/firn/integration/restcatalog"
	"github.com/firn-project/firn/internal/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab is a cluster over a REST catalog with the table lake.s.t (id bigint, w
// string).
type lab struct {
	t       *testing.T
	dir     string
	server  *restcatalog.Server
	proxy   *restcatalog.Proxy
	client  *client.Client
	cluster *cluster.Cluster
	next    int64
	// deadline is that of commits; 0 for the usual one.
	deadline time.Duration
}

var ident = []string{"s", "t"}

// newLab makes the table with what comes after its columns, such as PARTITIONED BY.
func newLab(t *testing.T, layout string) *lab {
	t.Helper()
	return newLabOf(t, layout, restcatalog.Lies{}, 0)
}

// newLabOf is newLab with a catalog that lies, and a deadline of commits; 0 for the
// usual one.
func newLabOf(t *testing.T, layout string, lies restcatalog.Lies, deadline time.Duration) *lab {
	t.Helper()
	l := &lab{t: t, dir: t.TempDir(), deadline: deadline}
	var err error
	if l.server, err = restcatalog.NewServer(l.dir); err != nil {
		t.Fatal(err)
	}
	l.server.Lie(lies)
	t.Cleanup(func() {
		if err := l.server.Close(); err != nil {
			t.Error(err)
		}
	})
	if l.proxy, err = restcatalog.NewProxy(l.server.URL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.proxy.Close)
	l.start()
	t.Cleanup(l.stop)
	for _, s := range []string{"CREATE NAMESPACE lake.s", "CREATE TABLE lake.s.t (id bigint, w string) " + layout} {
		if _, err := l.run("", s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return l
}

// start starts the cluster, on the directory that it had.
func (l *lab) start() {
	l.t.Helper()
	var err error
	l.cluster, err = cluster.Start(l.t.Context(), cluster.Config{
		Dir: filepath.Join(l.dir, "cluster"), Executors: 2, CheckAllFiles: true, CommitDeadline: l.deadline,
		Catalogs: []catalog.Config{{Name: "lake", Type: "rest", URI: l.proxy.URL}},
	})
	if err != nil {
		l.t.Fatal(err)
	}
	if l.client, err = client.Dial(l.t.Context(), l.cluster.Addr()); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) stop() {
	if l.cluster == nil {
		return
	}
	if err := errors.Join(l.client.Close(), l.cluster.Close(context.Background())); err != nil {
		l.t.Errorf("close: %v", err)
	}
	l.cluster = nil
}

// once lets the first commit request from now on meet a fault.
func (l *lab) once(f restcatalog.Fault) {
	f.Name = "fault"
	l.proxy.Begin(func(c restcatalog.Class, n int) *restcatalog.Fault {
		if c == restcatalog.Commit && n == 1 {
			return &f
		}
		return nil
	})
}

// fired fails the test unless the fault has happened.
func (l *lab) fired() {
	l.t.Helper()
	if l.proxy.Fired()["fault"] == 0 {
		l.t.Error("the fault never happened")
	}
}

// insert writes n rows, with ids that no other insert has, under a key.
func (l *lab) insert(key string, n int) (client.JobStatus, error) {
	return l.run(key, l.statement(n))
}

// statement inserts n rows with ids that no other statement has.
func (l *lab) statement(n int) string {
	first := l.next
	l.next += int64(n)
	return fmt.Sprintf("INSERT INTO lake.s.t SELECT i AS id, 'w' AS w FROM range(%d, %d) r(i)", first, l.next)
}

func (l *lab) run(key, sql string) (client.JobStatus, error) {
	res, err := l.client.Execute(l.t.Context(), client.Statement{SQL: sql, Key: key})
	if err != nil || res.Job == nil {
		return client.JobStatus{}, err
	}
	return res.Job.Wait(l.t.Context())
}

// must is insert that must be committed.
func (l *lab) must(key string, n int) client.JobStatus {
	l.t.Helper()
	st, err := l.insert(key, n)
	if err != nil || st.Commit != "committed" {
		l.t.Fatalf("insert %s: commit %s, %v", key, st.Commit, err)
	}
	return st
}

// many runs inserts of one row each at once and gives those that failed.
func (l *lab) many(n int) (failed []error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		id := l.next
		l.next++
		all.Go(func() {
			if _, err := l.run(fmt.Sprintf("many-%d", i), fmt.Sprintf("INSERT INTO lake.s.t VALUES (%d, 'w')", id)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
			}
		})
	}
	all.Wait()
	return failed
}

func (l *lab) table() *table.Table {
	l.t.Helper()
	t, err := l.server.Table(context.Background(), ident...)
	if err != nil {
		l.t.Fatal(err)
	}
	return t
}

// holds checks that the table has each of the ids 0 to n-1 once and nothing
// else, and that all its files are there. It gives the table.
func (l *lab) holds(n int64) *table.Table {
	l.t.Helper()
	l.proxy.Begin(nil)
	l.proxy.Flush()
	t := l.table()
	rows, err := history.Read(l.t.Context(), t, "id")
	if err != nil {
		l.t.Fatal(err)
	}
	for id := range n {
		if rows[id] != 1 {
			l.t.Errorf("row %d is there %d times", id, rows[id])
		}
	}
	if int64(len(rows)) != n {
		l.t.Errorf("%d different rows, want %d", len(rows), n)
	}
	r, err := history.Audit(l.t.Context(), t, "firn.tokens")
	if err != nil {
		l.t.Fatal(err)
	}
	if len(r.Breaches) > 0 {
		l.t.Error(strings.Join(r.Breaches, "\n"))
	}
	return t
}

// snapshots counts those that put rows into the table.
func snapshots(t *table.Table) int {
	n := 0
	for _, s := range t.Metadata().Snapshots() {
		if s.Summary != nil && s.Summary.Properties["added-records"] != "" && s.Summary.Properties["added-records"] != "0" {
			n++
		}
	}
	return n
}

// currentFiles are the data files of a table's current snapshot.
func (l *lab) currentFiles(t *table.Table) []string {
	l.t.Helper()
	tasks, err := t.Scan().PlanFiles(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	var paths []string
	for _, task := range tasks {
		paths = append(paths, task.File.FilePath())
	}
	return paths
}

// compact puts the rows of all files into one, as another tool does.
func (l *lab) compact() {
	old := l.currentFiles(l.table())
	local := make([]string, len(old))
	for i, p := range old {
		local[i] = "'" + strings.TrimPrefix(p, "file://") + "'"
	}
	merged := filepath.Join(filepath.Dir(strings.TrimPrefix(old[0], "file://")), "compacted.parquet")
	db, err := sql.Open("duckdb", "")
	if err != nil {
		l.t.Error(err)
		return
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(l.t.Context(), fmt.Sprintf("COPY (SELECT id, w FROM read_parquet([%s])) TO '%s' (FORMAT parquet)", strings.Join(local, ", "), merged)); err != nil {
		l.t.Error(err)
		return
	}
	if err := restcatalog.Change(l.t.Context(), l.server.URL, ident, func(ctx context.Context, txn *table.Transaction) error {
		return txn.ReplaceDataFiles(ctx, old, []string{"file://" + merged}, nil)
	}); err != nil {
		l.t.Errorf("compact: %v", err)
	}
}

// gathered waits until n jobs are waiting for their commit.
func (l *lab) gathered(n int) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		committing := 0
		for st, err := range l.client.Jobs(l.t.Context(), client.JobFilter{State: client.StateRunning}) {
			if err != nil {
				l.t.Error(err)
				return
			}
			if st.Phase == "committing" {
				committing++
			}
		}
		if committing >= n || l.t.Context().Err() != nil {
			return
		}
	}
}
