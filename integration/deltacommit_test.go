package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
)

// commits reads the commits of a local Delta table, by version, as lines.
func commits(t *testing.T, dir string) [][]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "_delta_log", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	var out [][]string
	for _, n := range names {
		b, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, strings.Split(strings.TrimSpace(string(b)), "\n"))
	}
	return out
}

// dataFiles counts a directory's files beside the log.
func dataFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(path, "/_delta_log/") {
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDeltaGuarantees: what holds for commits to Iceberg tables holds for Delta's: a
// dry run leaves nothing, a key commits once, statements at the same time share
// versions, and only keys that a user gave are kept in the table for good.
func TestDeltaGuarantees(t *testing.T) {
	l := start(t, t.TempDir())
	dir := filepath.Join(t.TempDir(), "a.b", "t")
	table := "delta.`" + dir + "`"
	l.must("CREATE TABLE " + table + " (n BIGINT, run INTEGER) USING delta")

	st, err := l.run(client.Statement{SQL: "INSERT INTO " + table + " SELECT i, 0 FROM range(1000) t(i)", DryRun: true})
	if err != nil || st.Report == nil || st.Report.Rows != 1000 || st.Report.State != commit.CommitNone {
		t.Fatalf("dry run: %+v, %v", st.Report, err)
	}
	if n := len(commits(t, dir)); n != 1 {
		t.Errorf("a dry run left version %d", n-1)
	}

	first, err := l.run(client.Statement{SQL: "INSERT INTO " + table + " VALUES (1, 1)", Key: "load-1"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := l.run(client.Statement{SQL: "INSERT INTO " + table + " VALUES (1, 1)", Key: "load-1"})
	if err != nil || !again.Report.Deduplicated || again.Report.SnapshotID != first.Report.SnapshotID || again.Report.Format != "delta" || again.Report.Table.Name != dir {
		t.Errorf("the same key again: %+v, %v", again.Report, err)
	}
	if _, err := l.run(client.Statement{SQL: "INSERT INTO " + table + " VALUES (2, 1)", Key: "load-1"}); commit.CodeOf(err) != commit.CodeKeyReused {
		t.Errorf("the key with another statement: %v", err)
	}

	const writers = 24
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			if _, err := l.run(client.Statement{SQL: fmt.Sprintf("INSERT INTO %s VALUES (%d, 2)", table, i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := l.query("SELECT run, count(*), count(DISTINCT n) FROM " + table + " GROUP BY run ORDER BY run"); fmt.Sprint(got) != fmt.Sprintf("[[1 1 1] [2 %d %[1]d]]", writers) {
		t.Errorf("rows %v", got)
	}
	versions := commits(t, dir)
	// How many share a version is up to the machine; nothing is committed twice.
	if len(versions)-2 > writers {
		t.Errorf("%d versions for %d statements", len(versions)-2, writers)
	}
	txns := 0
	for _, lines := range versions {
		for _, line := range lines {
			var a struct {
				Txn *struct{ LastUpdated int64 }
			}
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatal(err)
			}
			if a.Txn != nil {
				if txns++; a.Txn.LastUpdated == 0 {
					t.Errorf("a txn without lastUpdated: %s", line)
				}
			}
		}
	}
	if txns != 1 {
		t.Errorf("%d txn actions for one key that was given", txns)
	}
	if n := dataFiles(t, dir); n != writers+1 {
		t.Errorf("%d data files, want %d", n, writers+1)
	}
	orphans, err := l.Orphans(t.Context(), table, client.OrphansOptions{})
	if err != nil || len(orphans) > 0 {
		t.Errorf("orphans %+v, %v", orphans, err)
	}
}

// TestDeltaLeftoversBehindACheckpoint: what a job left is found when the table shows
// its token only in a checkpoint, or in the ledger: the commit itself is still there.
func TestDeltaLeftoversBehindACheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t")
	table := "delta.`" + dir + "`"
	home := t.TempDir()
	var left []string
	rows := int64(2)
	t.Run("before", func(t *testing.T) {
		l := start(t, home)
		l.must("CREATE TABLE " + table + " (n BIGINT) USING delta TBLPROPERTIES ('delta.checkpointInterval' = '4')")
		for _, key := range []string{"given", ""} {
			st, err := l.run(client.Statement{SQL: "INSERT INTO " + table + " VALUES (1)", Key: key})
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, filepath.Join(dir, st.Report.JobID, "0-0-late.parquet"))
		}
		for begun, err := []string(nil), error(nil); len(begun) == 0; begun, err = filepath.Glob(filepath.Join(dir, "_delta_log", "*.checkpoint.parquet")) {
			if rows++; err != nil || rows > 100 {
				t.Fatalf("no checkpoint by version %d: %v", rows-1, err)
			}
			l.must("INSERT INTO " + table + " VALUES (2)")
		}
	})
	for _, path := range left {
		if err := os.WriteFile(path, []byte("PAR1"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	l := start(t, home)
	if _, err := l.Orphans(t.Context(), table, client.OrphansOptions{Delete: true}); err != nil {
		t.Fatal(err)
	}
	for _, path := range left {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s stays: %v", path, err)
		}
	}
	if n := l.count(table); n != rows {
		t.Errorf("%d rows, want %d", n, rows)
	}
}

// deafStore is S3 that doesn't take commits to Delta tables while it is deaf: the
// requests are lost on the way.
type deafStore struct {
	http.Handler
	deaf atomic.Bool
	lost atomic.Int64
}

func (s *deafStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/_delta_log/") && s.deaf.Load() {
		s.lost.Add(1)
		panic(http.ErrAbortHandler)
	}
	if r.Method == http.MethodGet && r.URL.Query().Has("uploads") { // the fake knows no empty list
		_, _ = w.Write([]byte("<ListMultipartUploadsResult></ListMultipartUploadsResult>"))
		return
	}
	s.Handler.ServeHTTP(w, r)
}

// TestDeltaUnknownOutcome: a commit whose requests were lost is told as unknown, its
// files stay, and it is driven to its end later: retried, or fenced and dropped.
func TestDeltaUnknownOutcome(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("lake"); err != nil {
		t.Fatal(err)
	}
	s3 := &deafStore{Handler: gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()}
	srv := httptest.NewServer(s3)
	defer srv.Close()
	defer srv.CloseClientConnections()
	dir := t.TempDir()
	c, err := cluster.Start(t.Context(), cluster.Config{
		Dir: dir, Executors: 1, CommitDeadline: 2 * time.Second,
		Catalogs: []catalog.Config{{
			Name: "lake", Type: "sql", URI: "sqlite://" + filepath.Join(dir, "catalog.db"), Warehouse: "s3://lake/w",
			Properties: map[string]string{"s3.endpoint": srv.URL, "s3.access-key-id": "id", "s3.secret-access-key": "key", "s3.region": "x"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.Dial(t.Context(), c.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(cl.Close(), c.Close(context.Background())); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	l := &lake{Client: cl, t: t, dir: dir}
	l.must("CREATE NAMESPACE lake.air", "CREATE TABLE lake.air.d (n BIGINT) USING delta", "INSERT INTO lake.air.d VALUES (1)")
	files := func() (n int) {
		list, err := backend.ListBucket("lake", nil, gofakes3.ListBucketPage{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Contents {
			if strings.HasSuffix(o.Key, ".parquet") {
				n++
			}
		}
		return n
	}
	lost := func(n int) string {
		t.Helper()
		s3.deaf.Store(true)
		st, err := l.run(client.Statement{SQL: fmt.Sprintf("INSERT INTO lake.air.d VALUES (%d)", n), Key: fmt.Sprint("lost-", n)})
		if commit.CodeOf(err) == "" || s3.lost.Load() == 0 {
			t.Fatalf("%+v, %v", st, err)
		}
		units, err := l.Units(t.Context(), false)
		if err != nil || len(units) != 1 || units[0].State != commit.Unknown || units[0].Table != "lake.air.d" {
			t.Fatalf("units %+v, %v", units, err)
		}
		return units[0].JobID
	}
	job := lost(2)
	if u, err := l.Unit(t.Context(), job); err != nil || len(u.Sends) == 0 || u.Sends[0].Seat != 2 {
		t.Errorf("sends %+v, %v", u.Sends, err)
	}
	if files() != 2 {
		t.Errorf("%d files, want 2", files())
	}
	s3.deaf.Store(false)
	if st, err := l.RetryUnit(t.Context(), job, ""); err != nil || st.Report == nil || st.Report.State != commit.CommitCommitted || st.Report.Format != "delta" {
		t.Fatalf("retry: %+v, %v", st.Report, err)
	}
	if n := l.count("lake.air.d"); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	job = lost(3)
	s3.deaf.Store(false)
	if _, err := l.FenceUnit(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if u, err := l.Unit(t.Context(), job); err != nil || u.State != commit.Refused {
		t.Fatalf("after the fence: %+v, %v", u, err)
	}
	if _, err := l.DropUnit(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if n := l.count("lake.air.d"); n != 2 || files() != 2 {
		t.Errorf("%d rows in %d files, want 2 in 2", n, files())
	}
	if h := l.query("DESCRIBE HISTORY lake.air.d"); len(h) != 4 {
		t.Errorf("history %v", h)
	}
}
