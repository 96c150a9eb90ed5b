package answers_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/answers"
)

func TestRegistrations(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*firnpb.RegisterRequest)
		ok   bool
	}{
		"good":            {func(*firnpb.RegisterRequest) {}, true},
		"no id":           {func(r *firnpb.RegisterRequest) { r.ExecutorId = "" }, false},
		"a giant id":      {func(r *firnpb.RegisterRequest) { r.ExecutorId = strings.Repeat("e", 1<<20) }, false},
		"a giant address": {func(r *firnpb.RegisterRequest) { r.FlightAddress = strings.Repeat("e", 1<<20) }, false},
		"an odd id":       {func(r *firnpb.RegisterRequest) { r.ExecutorId = "\xff" }, false},
		"no incarnation":  {func(r *firnpb.RegisterRequest) { r.Incarnation = "" }, false},
		"no slots":        {func(r *firnpb.RegisterRequest) { r.Slots = 0 }, false},
		"many slots":      {func(r *firnpb.RegisterRequest) { r.Slots = 1 << 31 }, false},
		"negative memory": {func(r *firnpb.RegisterRequest) { r.MemoryBytes = -1 }, false},
	} {
		r := &firnpb.RegisterRequest{ExecutorId: "e", Incarnation: "i", ControlAddress: "h:1", FlightAddress: "h:1", Slots: 1}
		c.edit(r)
		err := answers.Registration(r)
		if (err == nil) != c.ok || err != nil && (commit.CodeOf(err) != commit.CodeBadRequest || len(err.Error()) > 2<<10) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := answers.Heartbeat(&firnpb.HeartbeatRequest{RunningAttempts: make([]string, 1<<17)}); commit.CodeOf(err) != commit.CodeBadRequest {
		t.Errorf("a heartbeat of 131,072 attempts: %v", err)
	}
	if err := answers.Statuses(&firnpb.ReportStatusRequest{Statuses: make([]*firnpb.TaskStatus, 1<<13)}); commit.CodeOf(err) != commit.CodeBadRequest {
		t.Errorf("8,192 statuses: %v", err)
	}
}

// TestStatusesAreCut: what is kept of a status is small, whatever its texts are.
func TestStatusesAreCut(t *testing.T) {
	giant := strings.Repeat("é", 1<<20)
	r := &firnpb.ReportStatusRequest{Statuses: []*firnpb.TaskStatus{{
		ManifestIpc: make([]byte, 1<<20),
		Error: &firnpb.TaskError{
			Class: giant, Code: giant, Op: giant, Object: giant, Cause: giant, Hint: giant, Tried: giant, Reason: giant,
			LostInput: &firnpb.LostInput{AttemptId: giant, ExecutorId: giant},
		},
	}, {ManifestIpc: make([]byte, 1<<10), Error: &firnpb.TaskError{Cause: "short"}}}}
	for range 100 {
		r.Statuses[0].Rejects = append(r.Statuses[0].Rejects, giant)
	}
	if err := answers.Statuses(r); err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, s := range append(r.GetStatuses()[0].GetRejects(), r.GetStatuses()[0].GetError().String()) {
		size += len(s)
	}
	if s := r.GetStatuses()[0]; size > 100<<10 || s.GetManifestIpc() != nil || len(s.GetRejects()) != 10 || !strings.Contains(s.GetError().GetCause(), "bytes more") {
		t.Errorf("%d bytes are kept, %d rejects", size, len(s.GetRejects()))
	}
	if s := r.GetStatuses()[1]; len(s.GetManifestIpc()) != 1<<10 || s.GetError().GetCause() != "short" {
		t.Error("an honest status was changed")
	}
}

func manifest(t *testing.T, rows int) arrow.RecordBatch {
	t.Helper()
	b, err := wire.EncodeManifest(make([]commit.File, rows))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestManifestsAreBounded: a manifest that doesn't end is left where it is too much.
func TestManifestsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		reported int64
		batch    int
		rule     string
		most     int // batches read
	}{
		"more than reported":   {5, 2, "as many rows as its attempt reported", 3},
		"more than is allowed": {-1, 20_000, "bytes of memory", 8},
		"a lie about the rows": {1 << 40, 20_000, "bytes of memory", 8},
		"many at once":         {-1, 300_000, "bytes of memory", 1},
		"empty batches":        {0, 0, "", 10},
	} {
		b := manifest(t, c.batch)
		read := 0
		pool := answers.NewPool(16 << 20)
		m := answers.Manifests{Share: pool.Join(), Into: &commit.Packer{}}
		err := m.Collect(t.Context(), nil, "a-1", c.reported, func() (arrow.RecordBatch, error) {
			if read++; c.rule == "" && read > c.most {
				return nil, io.EOF
			}
			b.Retain()
			return b, nil
		})
		b.Release()
		m.Share.Leave()
		if used, jobs := pool.Used(); used != 0 || jobs != 0 || m.Into.Len() != 0 {
			t.Errorf("%s: %d bytes of %d jobs are held, %d files", name, used, jobs, m.Into.Len())
		}
		if c.rule == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if commit.CodeOf(err) != commit.CodeVerification || !strings.Contains(err.Error(), c.rule) || read > c.most {
			t.Errorf("%s: after %d batches: %v", name, read, err)
		}
	}
	// Many manifests of one job, each of a size that is taken.
	files := []commit.File{{Path: "p", Lower: map[int][]byte{1: make([]byte, 1<<20)}, Upper: map[int][]byte{1: make([]byte, 1<<20)}}}
	b, err := wire.EncodeManifest(files)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	m := answers.Manifests{Share: answers.NewPool(128 << 20).Join(), Into: &commit.Packer{}}
	for n := 0; ; n++ {
		given := false
		err := m.Collect(t.Context(), nil, "a-1", 1, func() (arrow.RecordBatch, error) {
			if given {
				return nil, io.EOF
			}
			given = true
			b.Retain()
			return b, nil
		})
		if err != nil {
			if !strings.Contains(err.Error(), "bytes") || n < 10 || n > 40 {
				t.Errorf("after %d manifests: %v", n, err)
			}
			return
		}
		if n > 60 {
			t.Fatal("120 MiB of manifests were taken")
		}
	}
}

// TestWait: an executor that says nothing isn't waited for, nor one that says
// something from time to time.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, w := answers.NewWait(t.Context(), 20*time.Second)
		<-ctx.Done()
		if d := time.Since(began); d != 20*time.Second || !strings.Contains(context.Cause(ctx).Error(), "nothing came") {
			t.Errorf("after %v: %v", d, context.Cause(ctx))
		}
		w.End()

		began = time.Now()
		ctx, w = answers.NewWait(t.Context(), 20*time.Second)
		defer w.End()
		for ctx.Err() == nil {
			time.Sleep(19 * time.Second)
			w.Progress()
		}
		if d := time.Since(began); d < 200*time.Second || d > 220*time.Second || !strings.Contains(context.Cause(ctx).Error(), "more than 3m20s") {
			t.Errorf("after %v: %v", d, context.Cause(ctx))
		}

		parent, cancel := context.WithCancelCause(t.Context())
		ctx, w2 := answers.NewWait(parent, time.Second)
		defer w2.End()
		why := errors.New("stopped")
		cancel(why)
		if <-ctx.Done(); !errors.Is(context.Cause(ctx), why) {
			t.Errorf("cancelled: %v", context.Cause(ctx))
		}
	})
}
