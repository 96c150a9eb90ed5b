package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// stepping is a journal that tells when a step of a write is on record, and that fails
// where it's told to.
type stepping struct {
	journal.Journal
	mu sync.Mutex
	// stepped is called before a step is recorded and after it; what it returns is the
	// step's error.
	stepped func(ev lifecycle.Event, recorded bool) error
	// state is the error of looks at a write.
	state error
}

func (s *stepping) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *stepping) StepWrite(ctx context.Context, id string, ev lifecycle.Event, body []byte) (lifecycle.State, lifecycle.Answer, error) {
	s.mu.Lock()
	stepped := s.stepped
	s.mu.Unlock()
	if stepped == nil {
		return s.Journal.StepWrite(ctx, id, ev, body)
	}
	if err := stepped(ev, false); err != nil {
		return lifecycle.State{}, lifecycle.Answer{}, err
	}
	state, a, err := s.Journal.StepWrite(ctx, id, ev, body)
	return state, a, errors.Join(err, stepped(ev, true))
}

func (s *stepping) WriteState(ctx context.Context, id string) (lifecycle.State, error) {
	s.mu.Lock()
	err := s.state
	s.mu.Unlock()
	if err != nil {
		return lifecycle.State{}, err
	}
	return s.Journal.WriteState(ctx, id)
}

func startStepping(t *testing.T) (*harness, *stepping) {
	s := &stepping{}
	return start(t, func(c *Config) {
		c.openJournal = func(ctx context.Context, dir string) (journal.Journal, error) {
			var err error
			s.Journal, err = journal.Open(ctx, dir)
			return s, err
		}
	}), s
}

// leaver is a driver's call whose end is its own.
type leaver struct {
	grpc.ServerStream
	ctx context.Context
}

func (l *leaver) Context() context.Context  { return l.ctx }
func (*leaver) Send(r *flight.Result) error { return nil }

// isOpen says whether the job of a write still waits.
func (h *harness) isOpen(id string) (open bool) {
	h.t.Helper()
	must(h.t, h.s.loop.call(h.t.Context(), func() {
		j := h.s.state.jobs[id]
		open = j != nil && j.isOpenWrite()
	}))
	return open
}

// TestADriverThatLeavesWhileItsWriteIsDecided: a seal or an abort that was asked for has
// its consequence though the driver leaves right before it is on record, or right after.
func TestADriverThatLeavesWhileItsWriteIsDecided(t *testing.T) {
	h, s := startStepping(t)
	d := h.driver()
	for name, c := range map[string]struct {
		action    string
		afterward bool
		want      openwrite.State
	}{
		"before the seal":  {openwrite.ActionCommit, false, openwrite.StateCommitted},
		"after the seal":   {openwrite.ActionCommit, true, openwrite.StateCommitted},
		"before the abort": {openwrite.ActionAbort, false, openwrite.StateAborted},
		"after the abort":  {openwrite.ActionAbort, true, openwrite.StateAborted},
	} {
		w := d.begin(name)
		body, err := json.Marshal(ref(w.WriteID))
		if c.action == openwrite.ActionCommit {
			body, err = json.Marshal(openwrite.Commit{Version: 1, WriteID: w.WriteID, Handles: []string{d.write(w, "a")}})
		}
		must(t, err)
		ctx, leave := context.WithCancelCause(t.Context())
		s.set(func() {
			s.stepped = func(_ lifecycle.Event, recorded bool) error {
				if recorded == c.afterward {
					leave(errors.New("the connection broke"))
				}
				return nil
			}
		})
		_ = h.s.writes.DoAction(&flight.Action{Type: c.action, Body: body}, &leaver{ctx: ctx}) // nobody hears the answer
		s.set(func() { s.stepped = nil })
		if h.isOpen(w.WriteID) {
			t.Errorf("%s: its job still waits", name)
		}
		wait := int64(30)
		if a := d.must(openwrite.ActionStatus, openwrite.Ref{Version: 1, WriteID: w.WriteID, WaitSeconds: &wait}); a.Status.State != c.want {
			t.Errorf("%s: %+v", name, a.Status)
		}
	}
}

// TestWhatIsOnRecordOfAWriteIsFollowed: when the journal fails between the record of a
// seal, an abort or an expiry and what follows from it, that follows all the same, and
// nobody has to ask again or to start the scheduler anew.
func TestWhatIsOnRecordOfAWriteIsFollowed(t *testing.T) {
	h, s := startStepping(t)
	d := h.driver()
	failure := errors.New("the disk was away")
	ends := func(name, id string, want openwrite.State) {
		t.Helper()
		st := h.wait(id)
		if want == openwrite.StateCommitted {
			wantState(t, st, graph.Succeeded, commit.CommitCommitted)
		}
		if a := d.must(openwrite.ActionStatus, ref(id)); a.Status.State != want {
			t.Errorf("%s: %+v", name, a.Status)
		}
	}
	for name, c := range map[string]struct {
		want openwrite.State
		do   func(w *openwrite.Context) error
	}{
		"a seal": {openwrite.StateCommitted, func(w *openwrite.Context) error {
			_, err := d.do(openwrite.ActionCommit, openwrite.Commit{Version: 1, WriteID: w.WriteID})
			return err
		}},
		"an abort": {openwrite.StateAborted, func(w *openwrite.Context) error { _, err := d.do(openwrite.ActionAbort, ref(w.WriteID)); return err }},
		"an expiry": {openwrite.StateExpired, func(w *openwrite.Context) error {
			h.s.writes.Follow(t.Context(), w.MaxExpires.Add(time.Second))
			return failure
		}},
	} {
		w := d.begin(name + ", told as failed")
		s.set(func() {
			s.stepped = func(_ lifecycle.Event, recorded bool) error {
				if recorded {
					return failure
				}
				return nil
			}
		})
		err := c.do(w)
		s.set(func() { s.stepped = nil })
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		ends(name, w.WriteID, c.want)

		w = d.begin(name + ", then nothing")
		s.set(func() {
			s.stepped = func(_ lifecycle.Event, recorded bool) error {
				if recorded {
					s.set(func() { s.state = failure })
				}
				return nil
			}
		})
		err = c.do(w)
		s.set(func() { s.stepped, s.state = nil, nil })
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		ends(name, w.WriteID, c.want)
	}
}
