package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
)

// reading is a client that reads a job's rows.
type reading struct {
	ids, runs []int64
	// first is closed with the first batch.
	first chan struct{}
	done  chan struct{}
	err   error
}

func (w *tapped) read(ctx context.Context, j *client.Job) *reading {
	r := &reading{first: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		for b, err := range j.Rows(ctx) {
			if err != nil {
				r.err = err
				return
			}
			if len(r.ids) == 0 {
				close(r.first)
			}
			r.ids = append(r.ids, b.Column(0).(*array.Int64).Int64Values()...)
			r.runs = append(r.runs, b.Column(1).(*array.Int64).Int64Values()...)
		}
	}()
	return r
}

// arrives waits for something that a test can't go on without.
func arrives(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s doesn't come", what)
	}
}

// exact checks that all rows are there, once each.
func (r *reading) exact(t *testing.T) {
	t.Helper()
	arrives(t, "the end of the rows", r.done)
	ids := slices.Sorted(slices.Values(r.ids))
	if r.err != nil || len(ids) != 2*tapBatches*tapRows || ids[0] != 0 || ids[len(ids)-1] != int64(len(ids)-1) || len(slices.Compact(ids)) != len(r.ids) {
		t.Fatalf("%d rows: %v", len(r.ids), r.err)
	}
}

// The first rows of a pipelined job come while every task of it runs, also through
// several stages; all its rows are those of the staged job, in the same order.
func TestPipelinedRowsComeWhileTasksRun(t *testing.T) {
	for _, dispatch := range []string{"push", "pull"} {
		for _, exchanges := range [][]int{nil, {2}, {3, 2}} {
			t.Run(fmt.Sprint(dispatch, exchanges), func(t *testing.T) {
				w := startTapped(t, dispatch, 4, 4)
				q := tapQuery(true, exchanges...)
				j := w.submit(q, client.ModePipelined)
				r := w.read(t.Context(), j)
				arrives(t, "the first row", r.first)
				st, err := j.Status(t.Context())
				if err != nil || st.State != client.StateRunning || w.taps.ended != 0 {
					t.Fatalf("%v, %d sources have ended: %v", st.State, w.taps.ended, err)
				}
				done := 0
				for _, s := range st.Stages {
					done += s.Done
				}
				if done != 0 {
					t.Errorf("%d tasks have ended", done)
				}
				w.taps.let(tapBatches)
				r.exact(t)
				again := w.read(t.Context(), w.Job(j.ID()))
				again.exact(t)
				staged := w.read(t.Context(), w.submit(q, client.ModeStaged))
				staged.exact(t)
				if !slices.Equal(r.ids, staged.ids) || !slices.Equal(r.ids, again.ids) {
					t.Error("the rows come in another order than those of a staged job")
				}
			})
		}
	}
}

// An executor is lost in the middle of the stream, and what ran on it is run again: the
// client goes on where it was, or the job fails as the rows wouldn't be the same.
func TestPipelinedJobWhoseExecutorIsLost(t *testing.T) {
	for _, deterministic := range []bool{true, false} {
		for victim := range 2 {
			t.Run(fmt.Sprintf("deterministic %v, executor %d", deterministic, victim), func(t *testing.T) {
				w := startTapped(t, "push", 4, 4)
				j := w.submit(tapQuery(deterministic, 2), client.ModePipelined)
				r := w.read(t.Context(), j)
				arrives(t, "the first row", r.first)
				w.taps.let(3)
				w.kill(w.executors[victim])
				w.taps.let(tapBatches)
				if deterministic {
					r.exact(t)
					return
				}
				arrives(t, "the end of the rows", r.done)
				st, err := w.Job(j.ID()).Wait(t.Context())
				if commit.CodeOf(r.err) != commit.CodeResultLost || commit.CodeOf(err) != commit.CodeResultLost || st.State != client.StateFailed {
					t.Fatalf("the client has %v, the job is %s: %v", r.err, st.State, err)
				}
				if e, ok := errors.AsType[*commit.Error](err); !ok || !strings.Contains(e.Error(), "rows that were given are lost") || !strings.HasPrefix(e.Hint, "Run the statement again") {
					t.Error(err)
				}
			})
		}
	}
}

// As long as no row was given, rows that wouldn't come again are all made anew.
func TestPipelinedExecutorIsLostBeforeTheFirstRow(t *testing.T) {
	w := startTapped(t, "push", 4, 4)
	w.taps.let(0)
	j := w.submit(tapQuery(false, 2), client.ModePipelined)
	r := w.read(t.Context(), j)
	for s, err := range j.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Stages) > 0 && !slices.ContainsFunc(s.Stages, func(s client.Stage) bool { return s.State != "running" }) {
			break
		}
	}
	w.kill(w.executors[0])
	w.taps.let(tapBatches)
	r.exact(t)
	for task := range 2 {
		for n, id := range r.ids {
			if int(id)/(tapBatches*tapRows) == task && r.runs[n] != int64(w.taps.runs[task]) {
				t.Fatalf("row %d is of run %d of %d", id, r.runs[n], w.taps.runs[task])
			}
		}
	}
}

// A task that fails after its readers had rows of it is run again with them.
func TestPipelinedTaskThatFailsIsReadAnew(t *testing.T) {
	w := startTapped(t, "push", 4, 4)
	w.taps.failing[0], w.taps.failing[1] = 1, 2
	j := w.submit(tapQuery(true, 3, 2), client.ModePipelined)
	r := w.read(t.Context(), j)
	arrives(t, "the first row", r.first)
	w.taps.let(tapBatches)
	r.exact(t)
	if w.taps.runs[0] != 2 || w.taps.runs[1] != 3 {
		t.Errorf("runs: %v", w.taps.runs)
	}
	// One that never ends well fails the job with its cause, and not with its readers'.
	w.taps.failing[0] = 100
	r = w.read(t.Context(), w.submit(tapQuery(true, 2), client.ModePipelined))
	arrives(t, "the end of the rows", r.done)
	if commit.CodeOf(r.err) != commit.CodeTaskLimit || !strings.Contains(r.err.Error(), "was to fail") {
		t.Error(r.err)
	}
}

// However few slots there are, and however many jobs, none waits for ever.
func TestPipelinedJobsAndFewSlots(t *testing.T) {
	w := startTapped(t, "push", 1)
	first := w.submit(tapQuery(true, 3, 2), client.ModePipelined)
	var st client.JobStatus
	for s, err := range first.Events(t.Context()) {
		if st = s; err != nil {
			t.Fatal(err)
		}
		if s.WaitsFor != "" {
			break
		}
	}
	if !strings.HasPrefix(st.WaitsFor, "slots: 1 tasks") {
		t.Errorf("it waits for %q", st.WaitsFor)
	}
	if !strings.HasPrefix(st.Plan, "pipelined, planned statically: 8 tasks, 1 slot; not all run at once") {
		t.Errorf("plan:\n%s", st.Plan)
	}
	w.taps.let(tapBatches)
	w.read(t.Context(), first).exact(t)
	w.startExecutor(2)
	var all []*reading
	for range 5 {
		all = append(all, w.read(t.Context(), w.submit(tapQuery(true, 3, 2), client.ModePipelined)))
	}
	for _, r := range all {
		r.exact(t)
	}
}

// Cancelling a pipelined job ends its readers and frees what they read.
func TestPipelinedJobIsCancelled(t *testing.T) {
	w := startTapped(t, "push", 4, 4)
	j := w.submit(tapQuery(true, 3, 2), client.ModePipelined)
	r := w.read(t.Context(), j)
	arrives(t, "the first row", r.first)
	if _, _, err := j.Cancel(t.Context()); err != nil {
		t.Fatal(err)
	}
	arrives(t, "the end of the rows", r.done)
	if r.err == nil || len(r.ids) >= 2*tapBatches*tapRows {
		t.Errorf("%d rows, %v", len(r.ids), r.err)
	}
	w.emptied()
	// Each slot is free again: all tasks of the next job run at once.
	next := w.submit(tapQuery(true, 3, 2), client.ModePipelined)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for s, err := range next.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Stages) == 4 && !slices.ContainsFunc(s.Stages, func(s client.Stage) bool { return s.State != "running" }) {
			break
		}
	}
	w.taps.let(tapBatches)
	w.read(t.Context(), next).exact(t)
}

// A reader that goes away leaves the job alone.
func TestPipelinedReaderGoesAway(t *testing.T) {
	w := startTapped(t, "push", 5)
	j := w.submit(tapQuery(true, 2), client.ModePipelined)
	ctx, cancel := context.WithCancel(t.Context())
	r := w.read(ctx, j)
	arrives(t, "the first row", r.first)
	cancel()
	arrives(t, "the end of the reading", r.done)
	if !errors.Is(r.err, context.Canceled) {
		t.Error(r.err)
	}
	w.taps.let(tapBatches)
	w.read(t.Context(), w.Job(j.ID())).exact(t)
}
