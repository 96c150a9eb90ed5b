package committest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
)

// Epoch is when Drive's clock starts.
var Epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Runner is one machine at work: a synchronous shell with a clock that only waits
// move.
type Runner struct {
	Table   commit.Table
	Machine *commit.Machine
	Now     time.Time
	// Outcomes are those told so far.
	Outcomes map[commit.Token]commit.Outcome
	// Answers are what the sends came back with, by request id.
	Answers map[string]commit.Answer
	// Each is called with each action before it is carried out, when set.
	// Events that it returns are fed to the machine first.
	Each func(commit.Action) []commit.Event
	// BuildErr, Deny and RecordErr answer Build, Permit and Record, when set.
	BuildErr  func(commit.Build) error
	Deny      func(commit.Permit) map[commit.Token]error
	RecordErr func(commit.Record) error
	// Trace has one line for each action and answer.
	Trace []string

	pending []commit.Action
	begun   bool
}

// NewRunner makes a runner for a machine over a table.
func NewRunner(t commit.Table, m *commit.Machine) *Runner {
	return &Runner{Table: t, Machine: m, Now: Epoch, Outcomes: map[commit.Token]commit.Outcome{}, Answers: map[string]commit.Answer{}}
}

// Drive runs units over a table to their outcomes and returns these.
func Drive(t commit.Table, units []commit.Unit, opts commit.Options) map[commit.Token]commit.Outcome {
	r := NewRunner(t, commit.NewMachine(units, opts))
	for r.Step() {
	}
	return r.Outcomes
}

// Step carries out the pending actions and feeds their answer back. False:
// the machine is done.
func (r *Runner) Step() bool {
	if !r.begun {
		r.begun = true
		r.pending = r.Machine.Step(commit.Begin{}, r.Now)
	}
	actions := r.pending
	r.pending = nil
	var reply commit.Event
	for _, a := range actions {
		if r.Each != nil {
			for _, ev := range r.Each(a) {
				r.finishes(r.Machine.Step(ev, r.Now))
			}
		}
		if ev := r.do(a); ev != nil {
			reply = ev
		}
	}
	if reply != nil {
		r.pending = r.Machine.Step(reply, r.Now)
	}
	return reply != nil && (!r.Machine.Done() || len(r.pending) > 0)
}

func (r *Runner) finishes(actions []commit.Action) {
	for _, a := range actions {
		r.do(a)
	}
}

func (r *Runner) do(a commit.Action) commit.Event {
	ctx := context.Background()
	switch a := a.(type) {
	case commit.Read:
		m, err := r.Table.Read(ctx)
		r.trace("read", readText(m, err))
		return commit.ReadDone{Metadata: m, Err: err}
	case commit.Build:
		if r.BuildErr != nil {
			if err := r.BuildErr(a); err != nil {
				r.trace("build", errText(err))
				return commit.BuildDone{Err: err}
			}
		}
		q, err := r.Table.Build(ctx, a.Base, a.Units)
		r.trace("build", fmt.Sprintf("%d units, seat %d%s", len(a.Units), q.Seat.Number, errText(err)))
		return commit.BuildDone{Request: q, Err: err}
	case commit.Permit:
		var denied map[commit.Token]error
		if r.Deny != nil {
			denied = r.Deny(a)
		}
		r.trace("permit", fmt.Sprintf("%d units, %d denied", len(a.Tokens), len(denied)))
		return commit.Permitted{Denied: denied}
	case commit.Record:
		var err error
		if r.RecordErr != nil {
			err = r.RecordErr(a)
		}
		r.trace("record", fmt.Sprintf("seat %d%s", a.Request.Seat.Number, errText(err)))
		return commit.RecordDone{Err: err}
	case commit.Send:
		ans := r.Table.Send(ctx, a.Request)
		r.Answers[a.Request.ID] = ans
		r.trace("send", fmt.Sprintf("seat %d -> %s%s", a.Request.Seat.Number, ans.Class, errText(ans.Err)))
		return commit.SendDone{Answer: ans}
	case commit.Wait:
		r.trace("wait", "")
		if a.Until.After(r.Now) {
			r.Now = a.Until
		}
		return commit.Woke{}
	case commit.Discard:
		r.trace("discard", fmt.Sprintf("seat %d%s", a.Request.Seat.Number, errText(r.Table.Discard(ctx, a.Request))))
	case commit.Finish:
		r.Outcomes[a.Token] = a.Outcome
		r.trace("finish", OutcomeText(a.Outcome))
	}
	return nil
}

func (r *Runner) trace(what, text string) {
	r.Trace = append(r.Trace, strings.TrimSpace(what+" "+text))
}

func readText(m commit.Metadata, err error) string {
	if err != nil {
		return "-> " + err.Error()
	}
	return fmt.Sprintf("-> head %s, clock %d, schema %d", orNone(m.Head(commit.MainBranch)), m.Clock().Number, m.SchemaID())
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

// OutcomeText is an outcome in a few words.
func OutcomeText(o commit.Outcome) string {
	words := []string{string(o.State)}
	if o.Reason != "" {
		words = append(words, string(o.Reason))
	}
	if o.Landed.SnapshotID != "" {
		words = append(words, "snapshot="+o.Landed.SnapshotID)
	}
	for _, f := range []struct {
		on   bool
		word string
	}{
		{o.Deduplicated, "deduplicated"},
		{o.OtherSubmission, "other-submission"},
		{o.RolledBack, "rolled-back"},
		{o.TokenStripped, "token-stripped"},
		{o.Quarantine, "quarantine"},
	} {
		if f.on {
			words = append(words, f.word)
		}
	}
	return fmt.Sprintf("%s attempts=%d conflicts=%d", strings.Join(words, " "), o.Attempts, o.Conflicts)
}
