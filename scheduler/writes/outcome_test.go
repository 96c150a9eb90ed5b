package writes

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// broken is a scheduler, and a journal, that fail where they are told to.
type broken struct {
	Host
	Journal
	step, commit, find error
	state              lifecycle.State
	finds              int
}

func (b *broken) Find(context.Context, string) (Write, error) {
	if b.finds++; b.finds > 1 && b.find != nil {
		return Write{}, b.find
	}
	return Write{Job: &firnpb.JobStatus{JobId: "w", State: "running", Commit: "none"}}, nil
}

func (b *broken) Commit(context.Context, string) error { return b.commit }

func (b *broken) StepWrite(_ context.Context, _ string, ev lifecycle.Event, _ []byte) (lifecycle.State, lifecycle.Answer, error) {
	if b.step != nil {
		return b.state, lifecycle.Answer{}, b.step
	}
	var a lifecycle.Answer
	b.state, a = lifecycle.Step(b.state, func(string) (lifecycle.Manifest, bool) { return lifecycle.Manifest{}, false }, ev)
	return b.state, a, nil
}

// TestAFailedCommitDoesNotSayThatNothingHappened: from the moment when the seal may be
// on record, a call that fails doesn't know what becomes of the table.
func TestAFailedCommitDoesNotSayThatNothingHappened(t *testing.T) {
	failure := errors.New("it broke")
	for name, c := range map[string]struct {
		broken  broken
		handles []string
		want    commit.CommitState
	}{
		"the seal's record":  {broken{step: failure}, nil, commit.CommitUnknown},
		"after the seal":     {broken{commit: failure}, nil, commit.CommitUnknown},
		"while it waits":     {broken{find: failure}, nil, commit.CommitUnknown},
		"a void handle":      {broken{}, []string{"x"}, commit.CommitNone},
		"more than may be":   {broken{}, make([]string, 30_000), commit.CommitNone},
		"a write that isn't": {broken{step: NotFound("w")}, nil, commit.CommitNone},
	} {
		b := c.broken
		b.state = lifecycle.State{WriteID: "w", Phase: lifecycle.Open, Expires: time.Now().Add(time.Hour)}
		s := New(Parts{Host: &b, Journal: &b, Logger: slog.New(slog.DiscardHandler)})
		body, err := json.Marshal(openwrite.Commit{Version: 1, WriteID: "w", Handles: c.handles})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.act(t.Context(), openwrite.ActionCommit, body)
		f := openwrite.FaultIn(status.Convert(toStatus(err)).Message())
		if f == nil || f.Outcome != string(c.want) {
			t.Errorf("%s: %+v of %v, want the outcome %s", name, f, err, c.want)
		}
	}
}

// TestAWriteTakesItsOwnPlacesOnly: whoever sends manifests of one write and doesn't
// end keeps nobody of another write from handing in.
func TestAWriteTakesItsOwnPlacesOnly(t *testing.T) {
	p := places{most: 2, writes: map[string]*place{}}
	var done []func()
	for range 2 {
		d, err := p.take(t.Context(), "w")
		if err != nil {
			t.Fatal(err)
		}
		done = append(done, d)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("left"))
	if _, err := p.take(ctx, "w"); err == nil {
		t.Error("a third manifest is read beside two")
	}
	other, err := p.take(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan func())
	go func() {
		d, err := p.take(context.WithoutCancel(t.Context()), "w")
		if err != nil {
			t.Error(err)
		}
		waiting <- d
	}()
	done[0]()
	(<-waiting)()
	done[1]()
	other()
	if len(p.writes) != 0 {
		t.Errorf("places are kept: %v", p.writes)
	}
}
