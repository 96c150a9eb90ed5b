//go:build integration

package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

const killRows = 1_200_000

// stream is a query over halves of a file, slow enough to be met in the middle, in
// three stages of two tasks.
func (l *lakeside) stream(deterministic bool) plan.Node {
	l.t.Helper()
	in := filepath.Join(l.dir, "in.parquet")
	info, err := os.Stat(in)
	if err != nil {
		duck(l.t, fmt.Sprintf("COPY (SELECT i AS id FROM range(%d) t(i)) TO '%s' (ROW_GROUP_SIZE 20000)", killRows, in))
		if info, err = os.Stat(in); err != nil {
			l.t.Fatal(err)
		}
	}
	half := func(first, end int64) []plan.SourceFile {
		return []plan.SourceFile{{Path: in, Size: info.Size(), Rows: killRows, First: first, End: end}}
	}
	var n plan.Node = &plan.Query{
		SQL:      "SELECT id, sha256(sha256(sha256(sha256(sha256(sha256(id::varchar)))))) AS h FROM numbers",
		Parallel: true, Deterministic: deterministic,
		Sources:    []plan.Source{{View: []string{"numbers"}, Kind: plan.SourceParquet, Patterns: []string{in}, Files: []plan.SourceFile{{Path: in, Size: info.Size(), Rows: killRows}}}},
		Partitions: [][]plan.SourceFile{half(0, killRows/2), half(killRows/2, killRows)},
	}
	for range 2 {
		n = &plan.Exchange{Input: n, How: plan.ExchangeRoundRobin, Partitions: 2}
	}
	return n
}

// readKilled reads a pipelined job of the plan and calls fail when its first rows have
// come, while it runs.
func (l *lakeside) readKilled(c *client.Client, n plan.Node, fail func()) (ids []int64, failed error) {
	l.t.Helper()
	conn, err := grpc.NewClient(l.scheduler.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		l.t.Fatal(err)
	}
	defer conn.Close()
	raw, err := plan.Encode(n)
	if err != nil {
		l.t.Fatal(err)
	}
	resp, err := firnpb.NewClientServiceClient(conn).Execute(l.t.Context(), &firnpb.ExecuteRequest{ProtocolVersion: wire.ProtocolVersion, Physical: raw, Mode: string(client.ModePipelined)})
	if err != nil {
		l.t.Fatal(err)
	}
	job := c.Job(resp.GetJob().GetJobId())
	ctx, cancel := context.WithTimeout(l.t.Context(), 2*time.Minute)
	defer cancel()
	for b, err := range job.Rows(ctx) {
		if err != nil {
			return ids, err
		}
		if len(ids) == 0 {
			if st, err := job.Status(ctx); err != nil || st.State != client.StateRunning {
				l.t.Fatalf("the job is %s when its first rows come: %v", st.State, err)
			}
			fail()
		}
		ids = append(ids, b.Column(0).(*array.Int64).Int64Values()...)
	}
	return ids, nil
}

// An executor is killed, or stands still, or the scheduler is killed, while a client
// reads the rows of a pipelined job: it gets the rows that it would have got, each
// once and in their order.
func TestPipelinedRowsOutliveKilledProcesses(t *testing.T) {
	l := startProcesses(t, "push", 3)
	c, err := client.Dial(t.Context(), l.scheduler.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	n := l.stream(true)
	want, err := l.readKilled(c, n, func() {})
	if err != nil || len(want) != killRows || len(slices.Compact(slices.Sorted(slices.Values(want)))) != killRows {
		t.Fatalf("%d rows: %v", len(want), err)
	}
	check := func(what string, fail func()) {
		t.Helper()
		got, err := l.readKilled(c, n, fail)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %d rows of %d: %v", what, len(got), len(want), err)
		}
	}
	for i, e := range l.executors {
		check(fmt.Sprintf("executor %d is killed", i), e.Kill)
		l.executors[i] = e.Again(t)
	}
	for i, e := range l.executors {
		check(fmt.Sprintf("executor %d stands still", i), func() { e.Signal(t, syscall.SIGSTOP) })
		e.Signal(t, syscall.SIGCONT)
	}
	check("the scheduler is killed", func() {
		l.scheduler.Kill()
		l.scheduler = l.scheduler.Again(t)
	})
}

// Rows that wouldn't come again aren't mixed with others: the job fails, and says so.
func TestPipelinedRowsThatDontComeAgainAfterAKill(t *testing.T) {
	l := startProcesses(t, "push", 3)
	c, err := client.Dial(t.Context(), l.scheduler.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	n := l.stream(false)
	whole := func(ids []int64) bool {
		return len(ids) == killRows && len(slices.Compact(slices.Sorted(slices.Values(ids)))) == killRows
	}
	// A scheduler that is killed loses none.
	restart := func() {
		l.scheduler.Kill()
		l.scheduler = l.scheduler.Again(t)
	}
	if ids, err := l.readKilled(c, n, restart); err != nil || !whole(ids) {
		t.Errorf("the scheduler is killed: %d rows: %v", len(ids), err)
	}
	lost := 0
	for i := range l.executors {
		ids, err := l.readKilled(c, n, func() {
			l.executors[i].Kill()
			if i == 0 {
				restart() // which knows what may have been given
			}
		})
		switch {
		case err == nil && whole(ids):
			// It ran no task whose rows don't come again.
		case commit.CodeOf(err) != commit.CodeResultLost:
			t.Errorf("executor %d: %d rows: %v", i, len(ids), err)
		default:
			lost++
			if e, ok := errors.AsType[*commit.Error](err); !ok || e.Hint == "" {
				t.Errorf("executor %d: %+v", i, err)
			}
		}
		l.executors[i] = l.executors[i].Again(t)
	}
	if lost == 0 {
		t.Error("no run lost rows of the first stage")
	}
}
