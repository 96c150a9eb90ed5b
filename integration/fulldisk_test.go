//go:build integration

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/process"
)

// TestFullDisk fills a small disk with a job: it fails with an error that says so,
// the table stays as it was, the job's files are gone, and the same servers take
// the next write.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	process.SmallDisk(t, dir, "24m")
	scheduler := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", dir)
	process.Start(t, "executor", "--server", scheduler.Address, "--dir", filepath.Join(t.TempDir(), "executor"))
	c := process.NewClient(t, "--server", scheduler.Address)
	c.Exec(nil, "CREATE NAMESPACE lake.disk")
	c.Exec(nil, "CREATE TABLE lake.disk.t (id bigint, s varchar) TBLPROPERTIES ('write.parquet.compression-codec' = 'uncompressed')")
	c.Exec(nil, "INSERT INTO lake.disk.t VALUES (1, 'a')")

	r := process.Run(t.Context(), t, "sql", "--server", scheduler.Address, "-o", "json", "-c",
		"INSERT INTO lake.disk.t SELECT i, md5(i::varchar) || sha256(i::varchar) FROM range(600000) r(i)")
	if text := r.Stdout + r.Stderr; r.Code != 1 || !strings.Contains(text, "no space left on device") || !strings.Contains(text, "Free some space") {
		t.Errorf("exit code %d, want 1 and the full disk as the reason:\n%s", r.Code, text)
	}
	var n []struct{ N int }
	c.Exec(&n, "SELECT count(*) AS n FROM lake.disk.t")
	if len(n) != 1 || n[0].N != 1 {
		t.Errorf("the table has %v rows, want 1", n)
	}
	var files int
	err := filepath.WalkDir(filepath.Join(dir, "warehouse"), func(path string, _ os.DirEntry, err error) error {
		if strings.Contains(path, ".parquet") {
			files++
		}
		return err
	})
	if err != nil || files != 1 {
		t.Errorf("%d data files are left, want 1; %v", files, err)
	}
	c.Exec(nil, "INSERT INTO lake.disk.t VALUES (2, 'b')")
	c.Exec(&n, "SELECT count(*) AS n FROM lake.disk.t")
	if len(n) != 1 || n[0].N != 2 {
		t.Errorf("after the next write the table has %v rows, want 2", n)
	}
}

// TestFullDiskOfTheJournal fills the disk that has nothing but the journal while
// jobs run, to its last byte: their commits are finished, no new statement is taken,
// and statements are taken again when there is space.
func TestFullDiskOfTheJournal(t *testing.T) {
	disk, dir := t.TempDir(), t.TempDir()
	process.SmallDisk(t, disk, "24m")
	config := filepath.Join(dir, "scheduler.yaml")
	body := fmt.Sprintf("catalogs:\n  lake:\n    type: sql\n    uri: %q\n    warehouse: %q\n",
		"sqlite:///"+strings.TrimPrefix(filepath.Join(dir, "catalog.db"), "/"), "file://"+filepath.Join(dir, "warehouse"))
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	s := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(disk, "scheduler"), "--config", config, "--log-level", "debug")
	e := process.Start(t, "executor", "--server", s.Address, "--dir", filepath.Join(dir, "executor"), "--slots", "4", "--memory", "512MB")
	l := &lakeside{Client: process.NewClient(t, "--server", s.Address), t: t, dir: dir, scheduler: s}
	l.Exec(nil, "CREATE NAMESPACE lake.air")
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint)")
	var running []<-chan process.Result
	const jobs, each = 3, 30_000
	e.Signal(t, syscall.SIGSTOP) // none of them goes further than this
	for i := range jobs {
		mark := s.Mark()
		running = append(running, l.launch(fmt.Sprintf("INSERT INTO lake.air.t SELECT i FROM range(%d, %d) r(i)", i*each, i*each+each), fmt.Sprint("k-", i)))
		s.AwaitLog(t, mark, `"msg":"task launched"`, `"stage":0`, `"task":0`)
	}
	fill := filepath.Join(disk, "filler")
	if err := process.FillUp(fill); err != nil {
		t.Fatal(err)
	}
	e.Signal(t, syscall.SIGCONT)
	for i, done := range running {
		if r := <-done; r.Code != 0 || written(t, r).Commit != "committed" {
			t.Errorf("job %d: exit code %d: %s", i, r.Code, r.Stderr)
		}
	}
	if r := l.Try("INSERT INTO lake.air.t SELECT -1"); r.Code != 1 || !strings.Contains(r.Stderr+r.Stdout, "FIRN-6023") {
		t.Errorf("a statement was taken: exit code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if w := written(t, l.Try("INSERT INTO lake.air.t SELECT 90000")); w.Commit != "committed" {
		t.Errorf("with space again: %+v", w)
	}
	if all, distinct := l.rows("lake.air.t"); all != jobs*each+1 || distinct != all {
		t.Errorf("%d rows, %d different ones", all, distinct)
	}
}

// TestShuffleQuota: a job that needs more of an executor's disk than --shuffle-disk
// allows fails with what, where and what to do, and its data goes; a smaller one
// succeeds after it on the same executor, and no file of either is left.
func TestShuffleQuota(t *testing.T) {
	dir := t.TempDir()
	executor := filepath.Join(dir, "executor")
	scheduler := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"))
	process.Start(t, "executor", "--server", scheduler.Address, "--dir", executor, "--shuffle-disk", "4MiB")
	c := process.NewClient(t, "--server", scheduler.Address)
	c.Exec(nil, "CREATE NAMESPACE lake.quota")
	c.Exec(nil, "CREATE TABLE lake.quota.t (id bigint, s varchar) PARTITIONED BY (bucket(4, id))")
	insert := func(rows int) process.Result {
		return process.Run(t.Context(), t, "sql", "--server", scheduler.Address, "-o", "json", "-c",
			fmt.Sprintf("INSERT INTO lake.quota.t SELECT i, md5(i::varchar) || sha256(i::varchar) FROM range(%d) r(i)", rows))
	}
	r := insert(200_000)
	text := r.Stdout + r.Stderr
	for _, part := range []string{"FIRN-3521", "--shuffle-disk is used up", "4194304", filepath.Join(executor, "shuffle"), "Raise --shuffle-disk"} {
		if r.Code != 1 || !strings.Contains(text, part) {
			t.Errorf("exit code %d, want 1 and %q in:\n%s", r.Code, part, text)
		}
	}
	if r := insert(20_000); r.Code != 0 {
		t.Errorf("a job with less: exit code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	// Executors are told after the client.
	left := []string{""}
	for deadline := time.Now().Add(30 * time.Second); len(left) > 0; <-time.After(10 * time.Millisecond) {
		if left, _ = filepath.Glob(filepath.Join(executor, "shuffle", "*", "*")); time.Now().After(deadline) {
			t.Fatalf("still on the executor's disk: %v", left)
		}
	}
}

// TestFullDiskOfOneExecutor: an executor with hardly any room for shuffle output
// fails what it is given, and others have room: jobs succeed on those, with all of
// their rows.
func TestFullDiskOfOneExecutor(t *testing.T) {
	for _, dispatch := range []string{"push", "pull"} {
		t.Run(dispatch, func(t *testing.T) {
			l := startProcesses(t, dispatch, 2)
			small := process.Start(t, "executor", "--server", l.scheduler.Address, "--dir", filepath.Join(l.dir, "small"),
				"--slots", "4", "--memory", "512MB", "--shuffle-disk", "1MiB")
			l.Exec(nil, "CREATE TABLE lake.air.t (n bigint, s varchar) PARTITIONED BY (bucket(4, n))")
			const each, most int64 = 50_000, 100
			var jobs int64
			// Who gets a job's task is chance: jobs go on until it was the small one.
			for ; jobs < most && !strings.Contains(small.Log(), "FIRN-3521"); jobs++ {
				insert := fmt.Sprintf("INSERT INTO lake.air.t SELECT i, md5(i::varchar) || sha256(i::varchar) FROM range(%d, %d) r(i)", jobs*each, jobs*each+each)
				if r := l.Try(insert); r.Code != 0 {
					t.Fatalf("job %d: exit code %d: %s", jobs, r.Code, r.Stderr)
				} else if w := written(t, r); w.Commit != "committed" || w.Rows != each {
					t.Fatalf("job %d: %+v", jobs, w)
				}
			}
			small.AwaitLog(t, 0, `"msg":"task ended"`, `"state":"failed"`, "FIRN-3521")
			if all, distinct := l.rows("lake.air.t"); all != jobs*each || distinct != all {
				t.Errorf("%d rows, %d different ones, want %d", all, distinct, jobs*each)
			}
		})
	}
}
