package writes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// Bounds on what requests say.
const (
	maxEngine   = 200
	defaultWait = 30 * time.Second
	maxWait     = 60 * time.Second
	maxTTL      = 10 * 365 * 24 * time.Hour
)

func (s *Service) begin(ctx context.Context, b openwrite.Begin) (openwrite.Answer, error) {
	refuse := func(format string, args ...any) (openwrite.Answer, error) {
		return openwrite.Answer{}, badRequest("begin a write", fmt.Errorf(format, args...))
	}
	switch after := journal.AfterDeadline(b.AfterDeadline); {
	case b.Table == "":
		return refuse("it names no table")
	case b.Branch != "" && b.Branch != commit.MainBranch:
		return refuse("branch %.64q: only %s is written", b.Branch, commit.MainBranch)
	case b.Operation != "" && b.Operation != string(commit.OperationAppend):
		return refuse("operation %.64q: only %s is done", b.Operation, commit.OperationAppend)
	case b.TTLSeconds < 0 || b.TTLSeconds > int64(maxTTL/time.Second):
		return refuse("ttl_seconds is %d", b.TTLSeconds)
	case len(b.Engine) > maxEngine:
		return refuse("engine has %d bytes; %d are the most", len(b.Engine), maxEngine)
	case after != journal.AfterDeadlineLook && after != journal.AfterDeadlineFence && after != journal.AfterDeadlineRetry:
		return refuse("after_deadline %.64q isn't %q, %q or empty", b.AfterDeadline, journal.AfterDeadlineFence, journal.AfterDeadlineRetry)
	case b.DryRun && b.Key != "":
		return refuse("a dry run has no idempotency key")
	}
	w, err := s.host.Begin(ctx, Request{
		Table: b.Table, Key: b.Key, KeyIsNew: b.KeyIsNew, TTL: time.Duration(b.TTLSeconds) * time.Second, DryRun: b.DryRun,
		AfterDeadline: b.AfterDeadline, Engine: b.Engine,
	})
	if err != nil {
		return openwrite.Answer{}, err
	}
	return s.opened(ctx, w)
}

// opened answers with the context of a write that is open, and with how it is
// otherwise.
func (s *Service) opened(ctx context.Context, w Write) (openwrite.Answer, error) {
	id := w.Job.GetJobId()
	state, err := s.journal.WriteState(ctx, id)
	if err != nil && !notFound(err) {
		return openwrite.Answer{}, err
	}
	if s.viewOf(w, state) != openwrite.StateOpen || w.Plan == nil {
		if e := endedEarly(w); err != nil && e != nil {
			// It never was open: what it failed of is the answer to who wanted it.
			return openwrite.Answer{}, e
		}
		return openwrite.Answer{Result: openwrite.ResultStatus, Status: s.statusOf(w, state)}, nil
	}
	c, err := s.contextOf(ctx, w, state, "")
	if err != nil {
		return openwrite.Answer{}, err
	}
	return openwrite.Answer{Result: openwrite.ResultOpen, Status: s.statusOf(w, state), Context: c}, nil
}

func (s *Service) resume(ctx context.Context, r openwrite.Resume) (openwrite.Answer, error) {
	if r.Key == "" {
		return openwrite.Answer{}, badRequest("resume a write", errors.New("it names no idempotency key"))
	}
	w, err := s.host.Newest(ctx, r.Key)
	if err != nil {
		return openwrite.Answer{}, err
	}
	return s.opened(ctx, w)
}

func (s *Service) renew(ctx context.Context, r openwrite.Ref) (openwrite.Answer, error) {
	if err := s.scope(ctx, openwrite.ActionRenew, r.WriteID); err != nil {
		return openwrite.Answer{}, err
	}
	w, err := s.host.Find(ctx, r.WriteID)
	if err != nil {
		return openwrite.Answer{}, err
	}
	state, answer, err := s.step(ctx, r.WriteID, lifecycle.Renew{Now: time.Now()})
	if err != nil {
		return openwrite.Answer{}, err
	}
	if answer.Verdict != lifecycle.Renewed || w.Plan == nil {
		return openwrite.Answer{Result: openwrite.ResultNotOpen, Status: s.statusOf(w, state)}, nil
	}
	c, err := s.contextOf(ctx, w, state, r.Expired)
	if err != nil {
		return openwrite.Answer{}, err
	}
	return openwrite.Answer{Result: openwrite.ResultOpen, Status: s.statusOf(w, state), Context: c}, nil
}

func (s *Service) commit(ctx context.Context, c openwrite.Commit) (openwrite.Answer, error) {
	var out openwrite.Answer
	if int64(len(c.Handles)) > s.cfg.MaxManifests {
		return out, badRequest("commit write "+c.WriteID, fmt.Errorf("%d handles; %d are the most", len(c.Handles), s.cfg.MaxManifests))
	}
	if _, err := s.host.Find(ctx, c.WriteID); err != nil {
		return out, err
	}
	state, answer, err := s.decide(ctx, c.WriteID, lifecycle.Seal{Handles: c.Handles})
	switch {
	case commit.CodeOf(err) == commit.CodeWriteNotFound:
		return s.neverOpen(ctx, c.WriteID, err)
	case err != nil:
		return out, unsure{err} // it may be on record
	}
	switch answer.Verdict {
	case lifecycle.VoidHandle:
		return out, &commit.Error{
			Code: commit.CodeHandleVoid, Op: "commit write", Object: c.WriteID, Cause: fmt.Errorf("%s", answer.Detail), Tried: "nothing was sealed",
			Hint: "Collect the handles of this write's attempts and commit them again.",
		}
	case lifecycle.NowSealed:
		out.Result = openwrite.ResultSealed
		s.log.Info("write sealed", slog.String("job_id", c.WriteID), slog.Int("handles", len(state.Handles)), slog.String("digest", state.Digest))
	case lifecycle.Joined:
		out.Result = openwrite.ResultJoined
	case lifecycle.OtherHandles:
		out.Result = openwrite.ResultOtherHandles
		s.log.Warn("write was sealed with other handles", slog.String("job_id", c.WriteID), slog.Int("handles", len(state.Handles)), slog.Int("asked", len(c.Handles)))
	default:
		out.Result = openwrite.ResultNotOpen
	}
	if state.Phase == lifecycle.Sealed {
		// Also for one that was sealed before: whoever sealed it may have died in
		// between.
		if err := s.host.Commit(ctx, c.WriteID); err != nil {
			return out, unsure{err}
		}
	}
	w, err := s.await(ctx, c.WriteID, state, c.WaitSeconds, defaultWait)
	if err != nil {
		return out, unsure{err}
	}
	if out.Status = s.statusOf(w, state); out.Status.State == openwrite.StateCommittedByOther {
		out.Result = openwrite.ResultOtherHandles
		s.log.Warn("another submission of the write's key is in the table", slog.String("job_id", c.WriteID), slog.Int("handles", len(state.Handles)))
	}
	return out, nil
}

// neverOpen answers the commit of a write of which there is no record. Its key may have
// been committed before it could open: then other handles than any of its own were.
func (s *Service) neverOpen(ctx context.Context, id string, notFound error) (openwrite.Answer, error) {
	w, err := s.host.Find(ctx, id)
	if err != nil {
		return openwrite.Answer{}, err
	}
	out := openwrite.Answer{Result: openwrite.ResultOtherHandles, Status: s.statusOf(w, lifecycle.State{})}
	if out.Status.State != openwrite.StateCommitted {
		return openwrite.Answer{}, notFound
	}
	return out, nil
}

// await waits for a sealed write to be told how it ended, for as long as was asked.
func (s *Service) await(ctx context.Context, id string, state lifecycle.State, asked *int64, otherwise time.Duration) (Write, error) {
	wait := otherwise
	if asked != nil {
		wait = time.Duration(max(0, min(*asked, int64(maxWait/time.Second)))) * time.Second
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		w, err := s.host.Find(ctx, id)
		if err != nil || w.Changed == nil || s.viewOf(w, state) != openwrite.StateCommitting {
			return w, err
		}
		select {
		case <-w.Changed:
		case <-limit.C:
			return w, nil
		case <-s.host.Leaving():
			return w, nil
		case <-ctx.Done():
			return w, context.Cause(ctx)
		}
	}
}

func (s *Service) status(ctx context.Context, r openwrite.Ref) (openwrite.Answer, error) {
	if _, err := s.host.Find(ctx, r.WriteID); err != nil {
		return openwrite.Answer{}, err
	}
	state, err := s.state(ctx, r.WriteID)
	if err != nil && commit.CodeOf(err) != commit.CodeWriteNotFound {
		return openwrite.Answer{}, err
	}
	w, err := s.await(ctx, r.WriteID, state, r.WaitSeconds, 0)
	if err != nil {
		return openwrite.Answer{}, err
	}
	return openwrite.Answer{Result: openwrite.ResultStatus, Status: s.statusOf(w, state)}, nil
}

func (s *Service) abort(ctx context.Context, r openwrite.Ref) (openwrite.Answer, error) {
	if _, err := s.host.Find(ctx, r.WriteID); err != nil {
		return openwrite.Answer{}, err
	}
	state, _, err := s.decide(ctx, r.WriteID, lifecycle.Abort{})
	if err != nil {
		return openwrite.Answer{}, err
	}
	out := openwrite.Answer{Result: openwrite.ResultNotOpen}
	if state.Phase == lifecycle.Aborted {
		out.Result = openwrite.ResultAborted
		if err := s.host.End(ctx, r.WriteID); err != nil {
			return out, err
		}
	}
	w, err := s.host.Find(ctx, r.WriteID)
	if err != nil {
		return out, err
	}
	out.Status = s.statusOf(w, state)
	return out, nil
}

// step applies an event to the record.
func (s *Service) step(ctx context.Context, id string, ev lifecycle.Event) (lifecycle.State, lifecycle.Answer, error) {
	state, answer, err := s.journal.StepWrite(ctx, id, ev, nil)
	if notFound(err) {
		err = NotFound(id)
	}
	return state, answer, err
}

// decide is step for an event that decides what becomes of the write. A caller that
// leaves meanwhile doesn't stop it.
func (s *Service) decide(ctx context.Context, id string, ev lifecycle.Event) (lifecycle.State, lifecycle.Answer, error) {
	return s.step(context.WithoutCancel(ctx), id, ev)
}

// followEvery is how often the writes of running jobs are looked through.
const followEvery = time.Second

// Run follows the writes until ctx ends, or the scheduler leaves them to the next
// process.
func (s *Service) Run(ctx context.Context) {
	t := time.NewTicker(followEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.Follow(ctx, time.Now())
		case <-s.host.Leaving():
			return
		case <-ctx.Done():
			return
		}
	}
}

// Follow expires the writes whose time is over, and has the jobs of all others do what
// is on record of them: whoever sealed, aborted or expired one may have failed in
// between.
func (s *Service) Follow(ctx context.Context, now time.Time) {
	running, err := s.journal.RunningWrites(ctx)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("writes not listed", slog.Any("error", err))
		}
		return
	}
	for _, w := range running {
		if ctx.Err() != nil {
			return
		}
		if err := s.follow(ctx, w, now); err != nil && ctx.Err() == nil {
			s.log.Warn("write not followed", slog.String("job_id", w.WriteID), slog.String("phase", string(w.Phase)), slog.Any("error", err))
		}
	}
}

func (s *Service) follow(ctx context.Context, w lifecycle.State, now time.Time) error {
	phase := w.Phase
	if phase == lifecycle.Open && !now.Before(w.Expires) {
		state, answer, err := s.decide(ctx, w.WriteID, lifecycle.Expire{Now: now})
		if err != nil {
			return err
		}
		if answer.Verdict == lifecycle.NowEnded {
			s.log.Info("write expired", slog.String("job_id", w.WriteID), slog.Time("expired_at", w.Expires), slog.Int64("manifests", w.Manifests))
		}
		phase = state.Phase
	}
	switch phase {
	case lifecycle.Sealed:
		return s.host.Commit(ctx, w.WriteID)
	case lifecycle.Aborted, lifecycle.Expired:
		return s.host.End(ctx, w.WriteID)
	}
	return nil
}
