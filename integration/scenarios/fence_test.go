//go:build integration

package scenarios_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/integration/history"
	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/restcatalog"
)

// Processes, and a catalog that takes commit requests and never answers: the
// command says that the outcome is unknown, and `firn commit resolve --fence`
// settles it.
func TestFenceFromTheCommandLine(t *testing.T) {
	dir := t.TempDir()
	server, err := restcatalog.NewServer(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	proxy, err := restcatalog.NewProxy(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	config := filepath.Join(dir, "scheduler.yaml")
	body := fmt.Sprintf("catalogs: {lake: {type: rest, uri: %q}}\ncommit: {deadline: 2s}\n", proxy.URL)
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	s := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "scheduler"), "--config", config)
	process.Start(t, "executor", "--server", s.Address, "--dir", filepath.Join(dir, "executor"), "--slots", "2", "--memory", "256MB")
	c := process.NewClient(t, "--server", s.Address)
	c.Exec(nil, "CREATE NAMESPACE lake.s")
	c.Exec(nil, "CREATE TABLE lake.s.t (id bigint)")

	end := make(chan struct{})
	proxy.Begin(func(c restcatalog.Class, _ int) *restcatalog.Fault {
		if c != restcatalog.Commit {
			return nil
		}
		return &restcatalog.Fault{Arrives: restcatalog.Late, Cut: restcatalog.Reply, After: time.Hour, Landed: func() { <-end }}
	})
	told := make(chan process.Result, 1)
	go func() { told <- c.Try("INSERT INTO lake.s.t SELECT i FROM range(5) r(i)", "--idempotency-key", "k") }()
	unit := awaitUnknown(t, s.Address)
	close(end)
	proxy.Begin(nil)

	firn := func(args ...string) process.Result {
		return process.Run(t.Context(), t, append([]string{"commit", "resolve", "-o", "json", "--server", s.Address, unit}, args...)...)
	}
	// Without a fence nothing proves anything, and without --yes none is sent.
	for _, args := range [][]string{nil, {"--fence"}} {
		if r := firn(args...); !strings.Contains(r.Stdout, `"commit":"unknown"`) {
			t.Errorf("resolve %v: exit code %d, %s%s", args, r.Code, r.Stdout, r.Stderr)
		}
	}
	if n := proxy.Requests()[restcatalog.Commit]; n != 0 {
		t.Errorf("%d commit requests before --yes", n)
	}
	if r := firn("--fence", "--yes"); !strings.Contains(r.Stdout, `"commit":"refused"`) {
		t.Errorf("fence: exit code %d, %s%s", r.Code, r.Stdout, r.Stderr)
	}
	if r := <-told; r.Code != 7 || !strings.Contains(r.Stderr, string(commit.CodeUnknown)) {
		t.Errorf("the statement: exit code %d, %s", r.Code, r.Stderr)
	}
	proxy.Flush() // what was under way all the time
	tbl, err := server.Table(t.Context(), ident...)
	if err != nil {
		t.Fatal(err)
	}
	if rows, err := history.Read(t.Context(), tbl, "id"); err != nil || len(rows) != 0 {
		t.Errorf("%d rows, %v; the statement was told as refused", len(rows), err)
	}
}

// awaitUnknown waits for a parked commit and gives its job.
func awaitUnknown(t *testing.T, server string) string {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		r := process.Run(t.Context(), t, "commit", "list", "-o", "jsonl", "--server", server)
		for line := range strings.Lines(r.Stdout) {
			var u struct {
				Job   string `json:"job_id"`
				State string `json:"state"`
			}
			if err := json.Unmarshal([]byte(line), &u); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if u.State == string(commit.Unknown) {
				return u.Job
			}
		}
		if t.Context().Err() != nil {
			break
		}
	}
	t.Fatal("no commit is unknown")
	return ""
}
