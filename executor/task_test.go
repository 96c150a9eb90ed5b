package executor_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// fetch reads an output of an attempt over Flight, as numbers.
func (h *harness) fetch(t *testing.T, l plan.ShuffleLocation) ([]int64, error) {
	t.Helper()
	c := flightread.New(flightread.Config{})
	defer c.Close()
	r := c.Open(t.Context(), flightread.Source{Address: l.Address, Ticket: l.Ticket, Executor: l.Executor, Attempt: l.Attempt})
	defer r.Close()
	var out []int64
	for {
		b, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, b.Column(0).(*array.Int64).Int64Values()...)
		b.Release()
	}
}

func TestQueryToExchange(t *testing.T) {
	h := start(t, newScheduler(t, "push"), nil)
	d := def(t, "a-1", &plan.Exchange{Input: query("rows 5000"), How: plan.ExchangeRoundRobin, Partitions: 2})
	d.Outputs = 2
	h.launch(t, d)
	st := h.wait(t, "a-1")
	if st.GetState() != "succeeded" || st.GetRowsIn() != 5000 || st.GetRowsOut() != 5000 || len(st.GetOutputs()) != 2 {
		t.Fatalf("status is %v", st)
	}
	if st.GetStartedUnixMs() == 0 || st.GetEndedUnixMs() < st.GetStartedUnixMs() {
		t.Errorf("times are %d to %d", st.GetStartedUnixMs(), st.GetEndedUnixMs())
	}
	var all []int64
	for i, o := range st.GetOutputs() {
		got, err := h.fetch(t, h.location("a-1", i))
		if err != nil || int64(len(got)) != o.GetRows() || o.GetBytes() == 0 {
			t.Errorf("output %d: %d rows, %v; status says %v", i, len(got), err, o)
		}
		all = append(all, got...)
	}
	slices.Sort(all)
	if len(all) != 5000 || all[0] != 0 || all[4999] != 4999 {
		t.Errorf("%d rows", len(all))
	}
}

// A second task reads the first one's output, with a limit over it.
func TestShuffleReadWithLimit(t *testing.T) {
	for _, remote := range []bool{false, true} {
		s := newScheduler(t, "push")
		h := start(t, s, nil)
		reader := h
		if remote {
			reader = start(t, s, nil)
		}
		h.launch(t, def(t, "a-1", query("rows 2500")))
		if st := h.wait(t, "a-1"); st.GetState() != "succeeded" {
			t.Fatal(st)
		}
		limit := int64(1700)
		read := &plan.ShuffleRead{Stage: 1, Locations: []plan.ShuffleLocation{h.location("a-1", 0), h.location("a-1", 0)}}
		reader.launch(t, def(t, "a-2", &plan.Coalesce{Input: read, Limit: &limit}))
		if st := h.wait(t, "a-2"); st.GetState() != "succeeded" || st.GetRowsOut() != 1700 {
			t.Fatal(st)
		}
		got, err := h.fetch(t, reader.location("a-2", 0))
		if err != nil || len(got) != 1700 || got[1699] != 1699 {
			t.Errorf("remote %v: %d rows, %v", remote, len(got), err)
		}
		reader.launch(t, def(t, "a-3", &plan.Coalesce{Input: read}))
		if st := h.wait(t, "a-3"); st.GetRowsOut() != 5000 {
			t.Errorf("without a limit: %v", st)
		}
	}
}

// manifestOf are the files that an attempt's status has.
func manifestOf(st *firnpb.TaskStatus) (files []commit.File, err error) {
	err = wire.EachFileIPC(bytes.NewReader(st.GetManifestIpc()), func(f commit.File) error {
		files = append(files, f)
		return nil
	})
	return files, err
}

func TestWriteGivesManifests(t *testing.T) {
	h := start(t, newScheduler(t, "push"), nil)
	for attempt, rows := range map[string]string{"a-some": "rows 2500", "a-none": "rows 0"} {
		n, dir := write(t, query(rows))
		d := def(t, attempt, n)
		d.Manifests = true
		h.launch(t, d)
		st := h.wait(t, attempt)
		if st.GetState() != "succeeded" {
			t.Fatal(st)
		}
		files, err := manifestOf(st)
		if err != nil {
			t.Fatal(err)
		}
		if int(st.GetFiles()) != len(files) || len(st.GetOutputs()) != 1 || st.GetOutputs()[0].GetRows() != int64(len(files)) {
			t.Errorf("%s: status is %v", attempt, st)
		}
		if attempt == "a-none" {
			if len(files) != 0 {
				t.Errorf("files without rows: %v", files)
			}
		} else {
			if len(files) != 1 || files[0].Rows != 2500 || files[0].Attempt != attempt || st.GetRowsOut() != 2500 || st.GetBytesOut() != files[0].Size {
				t.Fatalf("files are %+v, status %v", files, st)
			}
			path := strings.TrimPrefix(files[0].Path, "file://")
			if info, err := os.Stat(path); err != nil || info.Size() != files[0].Size || !strings.HasPrefix(path, dir) {
				t.Errorf("file %s: %v, %v", path, info, err)
			}
		}
		// The manifests are the task's output also without files.
		c := flightread.New(flightread.Config{})
		l := h.location(attempt, 0)
		r := c.Open(t.Context(), flightread.Source{Address: l.Address, Ticket: l.Ticket})
		schema, err := r.Schema()
		if err != nil || !schema.Equal(wire.ManifestSchema()) {
			t.Errorf("%s: schema is %v, %v", attempt, schema, err)
		}
		if len(files) > 0 {
			b, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			remote, err := wire.DecodeManifest(b)
			b.Release()
			if err != nil || len(remote) != 1 || remote[0].Path != files[0].Path {
				t.Errorf("over Flight: %v, %v", remote, err)
			}
		}
		r.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// files lists all regular files below a directory.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // not made yet, or removed while others run
		}
		if err == nil && d.Type().IsRegular() {
			out = append(out, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFailuresLeaveNothingAndSayWhy(t *testing.T) {
	h := start(t, newScheduler(t, "push"), nil)
	bad, _ := write(t, query("rows 1"))
	bad.Context.Layout.SchemaJSON = []byte("bad")
	foreign, _ := write(t, query("rows 1"))
	foreign.Context.Layout.Format = "lance"
	broken, brokenDir := write(t, query("rows 4321"))
	cases := map[string]struct {
		def   *firnpb.TaskDefinition
		class string
		code  commit.Code
		text  string
	}{
		"a-fail":     {def(t, "a-fail", query("fail FIRN-3521")), wire.ClassRetryable, commit.CodeShuffleFull, ""},
		"a-final":    {def(t, "a-final", query("fail FIRN-3523")), wire.ClassNotRetryable, commit.CodeShuffleColumns, ""},
		"a-panic":    {def(t, "a-panic", query("panic")), wire.ClassNotRetryable, commit.CodeTaskPanic, "the engine broke"},
		"a-encoder":  {def(t, "a-encoder", broken), wire.ClassNotRetryable, commit.CodeTaskPanic, "the encoder broke"},
		"a-bind":     {def(t, "a-bind", bad), wire.ClassRetryable, "", "bad schema"},
		"a-format":   {def(t, "a-format", foreign), wire.ClassNotRetryable, commit.CodeTaskPlan, "lance"},
		"a-junk":     {&firnpb.TaskDefinition{JobId: "j-1", AttemptId: "a-junk", Fragment: []byte("{")}, wire.ClassNotRetryable, commit.CodeTaskPlan, "plan"},
		"a-root":     {def(t, "a-root", &plan.Commit{Input: query("rows 1")}), wire.ClassNotRetryable, commit.CodeTaskPlan, "commit"},
		"a-exchange": {def(t, "a-exchange", &plan.Exchange{Input: query("rows 1"), How: "range", Partitions: 1}), wire.ClassNotRetryable, commit.CodeTaskPlan, "range"},
		"a-hash":     {def(t, "a-hash", &plan.Exchange{Input: query("rows 1"), How: plan.ExchangeHash, Partitions: 1}), wire.ClassNotRetryable, commit.CodeTaskPlan, "layout"},
		"a-none":     {def(t, "a-none", &plan.Exchange{Input: query("rows 1"), How: plan.ExchangeSingle}), wire.ClassNotRetryable, commit.CodeTaskPlan, "0 partitions"},
		"a-input":    {def(t, "a-input", &plan.ShuffleRead{}), wire.ClassNotRetryable, commit.CodeTaskPlan, "no input"},
		"../a":       {def(t, "../a", query("rows 1")), wire.ClassNotRetryable, commit.CodeTaskPlan, "path"},
	}
	for id, c := range cases {
		t.Run(id, func(t *testing.T) {
			h.launch(t, c.def)
			st := h.wait(t, id)
			if st.GetState() != "failed" || st.GetError().GetClass() != c.class {
				t.Fatalf("status is %v", st)
			}
			err := wire.TaskErrorFromProto(st.GetError())
			if commit.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("error is %v, want %s and %q", err, c.code, c.text)
			}
		})
	}
	if left := files(t, brokenDir); len(left) > 0 {
		t.Errorf("data files left: %v", left)
	}
	h.launch(t, def(t, "a-good", query("rows 1")))
	if st := h.wait(t, "a-good"); st.GetState() != "succeeded" {
		t.Errorf("afterwards: %v", st)
	}
	if left := files(t, filepath.Join(h.dir, "shuffle")); len(left) > 0 {
		t.Errorf("shuffle files left: %v", left) // a-good's are small
	}
}

func TestLostInputIsTyped(t *testing.T) {
	s := newScheduler(t, "push")
	h, other := start(t, s, nil), start(t, s, nil)
	gone := other.location("a-gone", 0)
	gone.Task = 7
	h.launch(t, def(t, "a-1", &plan.ShuffleRead{Stage: 1, Locations: []plan.ShuffleLocation{gone}}))
	st := h.wait(t, "a-1")
	l := st.GetError().GetLostInput()
	if st.GetState() != "failed" || st.GetError().GetClass() != wire.ClassRetryable ||
		l.GetStage() != 1 || l.GetTask() != 7 || l.GetAttemptId() != "a-gone" || l.GetExecutorId() != other.ID() {
		t.Errorf("status is %v", st)
	}
}

func TestRejectsAreReported(t *testing.T) {
	h := start(t, newScheduler(t, "push"), nil)
	h.launch(t, def(t, "a-1", query("reject 3")))
	st := h.wait(t, "a-1")
	if st.GetRejectedRows() != 3 || !slices.Equal(st.GetRejects(), []string{"x.csv:3: not a number"}) {
		t.Errorf("status is %v", st)
	}
}

func TestUploadIsReadByAQuery(t *testing.T) {
	h := start(t, newScheduler(t, "push"), nil)
	h.launch(t, def(t, "a-1", query("rows 10")))
	h.wait(t, "a-1")
	q := &plan.Query{SQL: "upload", Sources: []plan.Source{{Upload: &plan.Upload{ID: "u", Location: h.location("a-1", 0)}}}}
	h.launch(t, def(t, "a-2", q))
	if st := h.wait(t, "a-2"); st.GetState() != "succeeded" || st.GetRowsOut() != 10 {
		t.Errorf("status is %v", st)
	}
}

func TestCancel(t *testing.T) {
	h := start(t, newScheduler(t, "push"), nil)
	n, dir := write(t, query("block"))
	h.launch(t, def(t, "a-1", n), def(t, "a-2", query("block")), def(t, "a-queued", query("block")))
	h.started(t, "a-1")
	if _, err := h.control.CancelTasks(t.Context(), &firnpb.CancelTasksRequest{AttemptIds: []string{"a-queued", "a-1", "no-such"}}); err != nil {
		t.Fatal(err)
	}
	ended := map[string]*firnpb.TaskStatus{}
	for len(ended) < 2 {
		if st := <-h.statuses; st.GetState() != "running" {
			ended[st.GetAttemptId()] = st
		}
	}
	for _, id := range []string{"a-1", "a-queued"} {
		if st := ended[id]; st.GetState() != "cancelled" || st.GetError().GetClass() != wire.ClassCancelled {
			t.Errorf("%s: %v", id, st)
		}
	}
	if left := append(files(t, dir), files(t, filepath.Join(h.dir, "shuffle"))...); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	// The slot is free again.
	h.launch(t, def(t, "a-3", query("rows 1")))
	if st := h.wait(t, "a-3"); st.GetState() != "succeeded" {
		t.Error(st)
	}
}

func TestFreeJobData(t *testing.T) {
	h := start(t, newScheduler(t, "push"), nil)
	h.launch(t, def(t, "a-1", query("rows 10")), def(t, "a-2", query("block")))
	h.wait(t, "a-1")
	free := func(stages ...uint32) {
		t.Helper()
		if _, err := h.control.FreeJobData(t.Context(), &firnpb.FreeJobDataRequest{JobId: "j-1", Stages: stages}); err != nil {
			t.Fatal(err)
		}
	}
	free(7)
	if got, err := h.fetch(t, h.location("a-1", 0)); err != nil || len(got) != 10 {
		t.Errorf("another stage's data went: %d rows, %v", len(got), err)
	}
	free(1)
	if _, err := h.fetch(t, h.location("a-1", 0)); err == nil {
		t.Error("freed data is still there")
	}
	// All of it: what still runs is of no use, and leaves nothing.
	free()
	if st := h.wait(t, "a-2"); st.GetState() != "cancelled" {
		t.Errorf("status is %v", st)
	}
	for _, bad := range []*firnpb.FreeJobDataRequest{{JobId: "../x"}, {JobId: "j-2", MoreJobs: []string{"../x"}}} {
		if _, err := h.control.FreeJobData(t.Context(), bad); err == nil {
			t.Errorf("a path was taken as a job: %v", bad)
		}
	}
	// Several jobs at once.
	h.launch(t, def(t, "a-3", query("rows 10")))
	h.wait(t, "a-3")
	if _, err := h.control.FreeJobData(t.Context(), &firnpb.FreeJobDataRequest{JobId: "j-0", MoreJobs: []string{"j-1", "j-2"}}); err != nil {
		t.Error(err)
	}
	if _, err := h.fetch(t, h.location("a-3", 0)); err == nil {
		t.Error("data of the second job that was freed is still there")
	}
}

func TestProbe(t *testing.T) {
	s := newScheduler(t, "push")
	entered := make(chan struct{}, 1)
	h := start(t, s, nil)
	h.lock.Lock()
	h.probed = func(ctx context.Context) (plan.ProbeResult, error) {
		entered <- struct{}{}
		return plan.ProbeResult{Why: "one scan", RowWise: true}, ctx.Err()
	}
	h.lock.Unlock()
	// All slots are busy: the extra one takes the probe.
	h.launch(t, def(t, "a-1", query("block")), def(t, "a-2", query("block")))
	h.started(t, "a-1", "a-2")
	res, err := h.probe(t)
	if err != nil || res.Why != "one scan" || !res.RowWise {
		t.Errorf("got %+v, %v", res, err)
	}
	<-entered
}

func TestProbeErrors(t *testing.T) {
	block := func(ctx context.Context) (plan.ProbeResult, error) {
		<-ctx.Done()
		return plan.ProbeResult{}, ctx.Err()
	}
	cases := map[string]struct {
		probed func(context.Context) (plan.ProbeResult, error)
		want   commit.Code
	}{
		"error": {func(context.Context) (plan.ProbeResult, error) {
			return plan.ProbeResult{}, &commit.Error{Code: commit.CodeTaskPlan, Op: "bind", Object: "column x"}
		}, commit.CodeTaskPlan},
		"panic":   {func(context.Context) (plan.ProbeResult, error) { panic("broken") }, commit.CodeTaskPanic},
		"timeout": {block, commit.CodeProbeTimeout},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := start(t, newScheduler(t, "push"), shortProbes)
			h.lock.Lock()
			h.probed = c.probed
			h.lock.Unlock()
			if _, err := h.probe(t); commit.CodeOf(err) != c.want {
				t.Errorf("got %v", err)
			}
			// The slots are given back.
			h.launch(t, def(t, "a-1", query("rows 1")))
			if st := h.wait(t, "a-1"); st.GetState() != "succeeded" {
				t.Error(st)
			}
		})
	}
}
