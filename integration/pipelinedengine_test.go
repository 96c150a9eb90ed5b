package integration_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/executor"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// taps are query engines whose rows come when the test lets them. A task gives
// tapBatches batches of tapRows rows each: their numbers, and the run of the task
// that gave them.
type taps struct {
	mu sync.Mutex
	// open is how many batches each task may give; changed is closed and replaced
	// when it grows.
	open    int
	changed chan struct{}
	// runs counts the runs of each task, failing those that fail after what is open.
	runs, failing map[int]int
	ended         int
}

const (
	tapBatches = 6
	tapRows    = 1000
)

func newTaps() *taps {
	return &taps{open: 1, changed: make(chan struct{}), runs: map[int]int{}, failing: map[int]int{}}
}

// let lets each task give n batches in all.
func (s *taps) let(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = n
	close(s.changed)
	s.changed = make(chan struct{})
}

// tapEngine is the engine of one slot.
type tapEngine struct{ taps *taps }

func (tapEngine) Probe(context.Context, plan.ProbeRequest) (plan.ProbeResult, error) {
	return plan.ProbeResult{}, errors.New("there's nothing to be probed")
}

func (tapEngine) Close() error { return nil }

func (e tapEngine) Query(_ context.Context, q *plan.Query, _ executor.TaskInfo) (executor.Rows, error) {
	task, err := strconv.Atoi(filepath.Base(q.Partitions[0][0].Path))
	if err != nil {
		return nil, err
	}
	e.taps.mu.Lock()
	defer e.taps.mu.Unlock()
	e.taps.runs[task]++
	return &tapStream{taps: e.taps, task: task, run: e.taps.runs[task]}, nil
}

var tapSchema = arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "run", Type: arrow.PrimitiveTypes.Int64}}, nil)

type tapStream struct {
	taps           *taps
	task, run, got int
}

func (s *tapStream) Schema() *arrow.Schema      { return tapSchema }
func (s *tapStream) Rejects() (int64, []string) { return 0, nil }
func (s *tapStream) Close() error               { return nil }

func (s *tapStream) Next(ctx context.Context) (arrow.RecordBatch, error) {
	for {
		s.taps.mu.Lock()
		open, changed, fails := s.taps.open, s.taps.changed, s.run <= s.taps.failing[s.task]
		if s.got == tapBatches {
			s.taps.ended++
		}
		s.taps.mu.Unlock()
		switch {
		case s.got == tapBatches:
			return nil, io.EOF
		case s.got == 2 && fails:
			return nil, fmt.Errorf("run %d of task %d was to fail", s.run, s.task)
		case s.got < open:
			s.got++
			return s.batch(), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (s *tapStream) batch() arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, tapSchema)
	defer b.Release()
	for n := range tapRows {
		b.Field(0).(*array.Int64Builder).Append(int64(s.task*tapBatches*tapRows + (s.got-1)*tapRows + n))
		b.Field(1).(*array.Int64Builder).Append(int64(s.run))
	}
	return b.NewRecordBatch()
}

// tapped is a cluster whose executors have taps for engines.
type tapped struct {
	*client.Client
	t         *testing.T
	taps      *taps
	cluster   *cluster.Cluster
	executors []*executor.Executor
	rpc       firnpb.ClientServiceClient
	dirs      []string
}

func startTapped(t *testing.T, dispatch string, slots ...int) *tapped {
	t.Helper()
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	c, err := cluster.Start(t.Context(), cluster.Config{Dir: t.TempDir(), Executors: cluster.NoExecutors, Dispatch: dispatch, Planning: "static"})
	if err != nil {
		t.Fatal(err)
	}
	w := &tapped{t: t, taps: newTaps(), cluster: c}
	t.Cleanup(func() {
		for _, e := range w.executors {
			w.kill(e)
		}
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	for _, n := range slots {
		w.startExecutor(n)
	}
	if w.Client, err = client.Dial(t.Context(), c.Addr()); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(c.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	w.rpc = firnpb.NewClientServiceClient(conn)
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), w.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

func (w *tapped) startExecutor(slots int) {
	w.t.Helper()
	dir := w.t.TempDir()
	w.dirs = append(w.dirs, dir)
	e, err := executor.New(executor.Config{
		Server: w.cluster.Addr(), Dir: dir, Slots: slots, Memory: int64(slots) << 26, AlwaysRemote: true,
		Engines: func(executor.EngineConfig) (executor.Engine, error) { return tapEngine{w.taps}, nil },
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err == nil {
		err = e.Start(w.t.Context())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.executors = append(w.executors, e)
}

// kill ends an executor without waiting for what it runs.
func (w *tapped) kill(e *executor.Executor) {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Close(now); err != nil {
		w.t.Errorf("close executor: %v", err)
	}
}

// emptied waits until no executor has shuffle output. Nothing tells when that is.
func (w *tapped) emptied() {
	w.t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for late := time.After(30 * time.Second); ; {
		var left []string
		for _, dir := range w.dirs {
			found, err := filepath.Glob(filepath.Join(dir, "shuffle", "*", "*"))
			if err != nil {
				w.t.Fatal(err)
			}
			left = append(left, found...)
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-look.C:
		case <-late:
			w.t.Fatalf("what is left: %v", left)
		}
	}
}

// tapQuery is a plan of a query in two tasks, whose rows go through as many exchanges as
// there are numbers of partitions.
func tapQuery(deterministic bool, exchanges ...int) plan.Node {
	var n plan.Node = &plan.Query{
		SQL: "SELECT id, run FROM taps", Parallel: true, Deterministic: deterministic, Columns: []plan.Column{{Name: "id", Type: "BIGINT"}, {Name: "run", Type: "BIGINT"}},
		Sources:    []plan.Source{{View: []string{"taps"}, Kind: plan.SourceParquet, Patterns: []string{"/taps/*"}, Files: []plan.SourceFile{{Path: "/taps/0"}, {Path: "/taps/1"}}}},
		Partitions: [][]plan.SourceFile{{{Path: "/taps/0"}}, {{Path: "/taps/1"}}},
	}
	for _, p := range exchanges {
		n = &plan.Exchange{Input: n, How: plan.ExchangeRoundRobin, Partitions: p}
	}
	if len(exchanges) > 0 {
		n = &plan.Coalesce{Input: n}
	}
	return n
}

// submit runs a plan in a mode.
func (w *tapped) submit(n plan.Node, mode client.Mode) *client.Job {
	w.t.Helper()
	raw, err := plan.Encode(n)
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := w.rpc.Execute(w.t.Context(), &firnpb.ExecuteRequest{ProtocolVersion: wire.ProtocolVersion, Physical: raw, Mode: string(mode)})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.Job(resp.GetJob().GetJobId())
}
