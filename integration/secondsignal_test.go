//go:build integration

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/history"
	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/restcatalog"
	"github.com/firn-project/firn/internal/flightsql/flightsqltest"
)

// signalTwice sends a process that works SIGTERM, and another signal once it has heard
// that, and waits for its end: sooner than it would have given up by itself.
func signalTwice(t *testing.T, s *process.Server, second os.Signal) {
	t.Helper()
	mark := s.Mark()
	s.Signal(t, syscall.SIGTERM)
	s.AwaitLog(t, mark, `"msg":"stopping"`)
	s.Signal(t, second)
	awaitEnd(t, s, 10*time.Second)
}

// awaitEnd waits for the end of a process that has been told to end.
func awaitEnd(t *testing.T, s *process.Server, limit time.Duration) {
	t.Helper()
	ended := make(chan struct{})
	go func() { s.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(limit):
		t.Fatalf("it still runs %v after its last signal", limit)
	}
}

// TestSecondSignalToAnExecutor: an executor that waits for its task to end gives up at
// the second signal and logs which attempt it cancelled. The job goes on with another
// executor, and its rows are there once.
func TestSecondSignalToAnExecutor(t *testing.T) {
	g := newGate(1)
	l := onEngine(t, &flightsqltest.Server{Endpoints: 1, Rows: 20_000, Pace: g.pace}, 2)
	mark := l.scheduler.Mark()
	done := l.launch(fromEngine, "k")
	<-g.reached
	e := l.executors[l.victim(l.scheduler.AwaitLog(t, mark, `"msg":"task launched"`, `"stage":0`))]
	stopping := e.Mark()
	signalTwice(t, e, syscall.SIGTERM)
	e.AwaitLog(t, stopping, `"msg":"task cancelled to shut down"`, `"attempt_id":`, `"job_id":`)
	r := <-done
	close(g.opened)
	if r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	if w := written(t, r); w.Commit != "committed" || w.Rows != 20_000 {
		t.Fatalf("%+v", w)
	}
	l.once(20_000, 1)
}

// TestSecondSignalToAScheduler: a scheduler whose catalog doesn't answer a commit gives
// up at the second signal, and logs which job it leaves. Started again it finds out that
// the commit has landed; the client that waits hears so, and the rows are there once.
func TestSecondSignalToAScheduler(t *testing.T) {
	l := &lakeside{t: t, dir: t.TempDir()}
	catalog, err := restcatalog.NewServer(l.dir)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := restcatalog.NewProxy(catalog.URL)
	if err != nil {
		t.Fatal(err)
	}
	landed, answer := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(answer) })
	t.Cleanup(func() {
		release()
		proxy.Close()
		if err := catalog.Close(); err != nil {
			t.Error(err)
		}
	})
	config := filepath.Join(l.dir, "scheduler.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "catalogs: {lake: {type: rest, uri: %q}}\n", proxy.URL), 0o600); err != nil {
		t.Fatal(err)
	}
	l.scheduler = process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(l.dir, "scheduler"), "--config", config)
	process.Start(t, "executor", "--server", l.scheduler.Address, "--dir", filepath.Join(l.dir, "executor"), "--memory", "512MB")
	l.Client = process.NewClient(t, "--server", l.scheduler.Address)
	l.Exec(nil, "CREATE NAMESPACE lake.air")
	l.Exec(nil, "CREATE TABLE lake.air.t (n bigint)")
	proxy.Begin(func(c restcatalog.Class, n int) *restcatalog.Fault {
		if c != restcatalog.Commit || n != 1 {
			return nil
		}
		return &restcatalog.Fault{Name: "held", Landed: func() { close(landed); <-answer }}
	})
	done := l.launch("INSERT INTO lake.air.t SELECT i FROM range(1000) r(i)", "k")
	<-landed
	stopping := l.scheduler.Mark()
	signalTwice(t, l.scheduler, syscall.SIGINT) // as Ctrl-C sends it
	l.scheduler.AwaitLog(t, stopping, `"msg":"commit left to the next process"`, `"job_id":"j-`, `"table":"lake.air.t"`)
	release()
	l.scheduler = l.scheduler.Again(t)
	r := <-done
	if r.Code != 0 {
		t.Fatalf("exit code %d: %s", r.Code, r.Stderr)
	}
	if w := written(t, r); w.Commit != "committed" || w.Rows != 1000 {
		t.Fatalf("%+v", w)
	}
	tbl, err := catalog.Table(t.Context(), "air", "t")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := history.Read(t.Context(), tbl, "n")
	if err != nil || len(rows) != 1000 {
		t.Errorf("%d different rows, %v", len(rows), err)
	}
	for n, times := range rows {
		if times != 1 {
			t.Errorf("row %d is there %d times", n, times)
		}
	}
}
