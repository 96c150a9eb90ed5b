package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/answers"
	"github.com/firn-project/firn/scheduler/committer"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
)

// rootRun is one run of a job's scheduler root: one epoch. What is in it was
// fixed when the graph emitted it.
type rootRun struct {
	s         *Scheduler
	job       *job
	epoch     int
	inputs    []graph.Accepted
	locations []plan.ShuffleLocation
	// attempts are the accepted ones of the final stage, expected what they
	// reported to have written.
	attempts []string
	expected *committer.Counts
	// tasks is the number of tasks of the final stage.
	tasks int
	// sealed is the unit that an earlier process sealed, nil when there's none;
	// sent are the requests that it may have sent.
	sealed *journal.Unit
	sent   []commit.Request
	// lost: the journal is a copy, and what it lost may have sent the unit.
	// uncounted stands for those requests until the unit is sealed here.
	lost      bool
	uncounted *commit.Request
	// verified is what a dry run stopped with.
	verified *commit.Unit
	// began is when it had its place; queued and driven are when its unit came into
	// the table's queue and out of it, in nanoseconds since 1970, and 0 before.
	began          time.Time
	queued, driven atomic.Int64
	// share is the memory of its manifests.
	share *answers.Share
	// leave gives the root's place to the next one. It may be called again.
	leave func()
}

// heldBesides is the size of a sealed unit's manifest, in bytes, up to which its
// root waits for the table without a place of its own: a table that can't be
// reached doesn't hold up others then, and more units gather for one request. The
// files of larger ones take too much memory.
const heldBesides = 64 << 10

// errDryRun ends a dry run where its commit would be sealed.
var errDryRun = errors.New("the dry run ends here")

// startRoot runs the root on a goroutine of its own; the pool bounds how many
// run until they wait for their table. A job that ends while its root waits for a place never runs it.
func (s *Scheduler) startRoot(j *job, a graph.RunSchedulerRoot) {
	ctx, stop := context.WithCancel(s.life)
	j.rootEpoch, j.stopRoot = a.Epoch, stop
	views := j.graph.Stages()
	final := views[len(views)-1]
	r := &rootRun{
		s: s, job: j, epoch: a.Epoch, inputs: a.Inputs, lost: j.lost,
		tasks: final.Tasks, expected: &committer.Counts{Files: int64(final.Files), Rows: final.Rows},
	}
	if j.resume != nil {
		// What was sealed was held against the attempts before.
		r.sealed, r.sent = j.resume.unit, j.resume.sent
		r.expected, j.resume = nil, nil
	}
	for _, run := range j.graph.Runs() {
		if r.sealed == nil && run.Task.Stage == final.ID && run.Done {
			r.attempts = append(r.attempts, run.Attempt)
		}
	}
	s.roots.Go(func() {
		defer stop()
		select {
		case s.rootSlots <- struct{}{}:
			r.leave = sync.OnceFunc(func() { <-s.rootSlots })
			defer r.leave()
		case <-ctx.Done():
			return
		}
		if !r.mayStart(ctx) {
			r.giveUpSeal(ctx)
			return
		}
		report, err := r.run(ctx)
		s.loop.put(func() { r.finished(report, err) })
	})
}

// mayStart asks the graph right before the root starts.
func (r *rootRun) mayStart(ctx context.Context) bool {
	ok := false
	defer func() { r.s.sign(r.locations, time.Now().Add(ticketTTL)) }() // aside from the event loop
	// Past this point the graph waits for the root's end, so the question isn't
	// given up when ctx ends.
	_ = r.s.loop.call(context.WithoutCancel(ctx), func() {
		if r.s.handsOver(r.job) && !r.job.graph.Sealed() {
			return
		}
		for _, a := range r.s.apply(r.job, graph.RootStarted{Epoch: r.epoch}) {
			if _, start := a.(graph.StartRoot); start {
				ok = true
				if r.job.external == nil {
					r.locations = r.s.locations(r.job, r.inputs)
				}
			}
		}
	})
	return ok
}

// giveUpSeal gives the unit up of a job that was cancelled when an earlier process
// had sealed it and this one hadn't begun with it.
func (r *rootRun) giveUpSeal(ctx context.Context) {
	if r.sealed == nil {
		return
	}
	select {
	case <-r.job.published:
	case <-ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepTime)
	defer cancel()
	if err := r.s.giveUp(ctx, *r.sealed); err != nil {
		r.s.log.Warn("files of a cancelled commit stay", slog.String("job_id", r.job.id), slog.Any("error", err))
	}
}

// seal asks the graph for leave to fix what this root commits. From its yes on a
// lost executor changes nothing.
func (r *rootRun) seal(ctx context.Context) error {
	ok := false
	if err := r.s.loop.call(context.WithoutCancel(ctx), func() {
		if r.s.handsOver(r.job) && !r.job.graph.Sealed() {
			return
		}
		for _, a := range r.s.apply(r.job, graph.RootSealed{Epoch: r.epoch}) {
			if _, yes := a.(graph.SealRoot); yes {
				ok = true
			}
		}
	}); err != nil {
		return err
	}
	if !ok {
		return errRootStopped(r.job.id)
	}
	// The acceptances that the unit is made of are durable before its seal.
	return r.s.scribe.record(ctx, journal.Batch{})
}

// run runs the root. A panic is the root's error.
func (r *rootRun) run(ctx context.Context) (report commit.Report, err error) {
	sent := false
	r.began, r.share = time.Now(), r.s.manifests.Join()
	defer r.share.Leave()
	defer func() {
		if p := recover(); p != nil {
			r.s.logPanic(ctx, "scheduler root", p)
			report.State = commit.CommitNone
			if sent {
				report.State = commit.CommitUnknown
			}
			err = &commit.Error{
				Code: commit.CodeRootPanic, Op: "run the root of job", Object: r.job.id, Cause: fmt.Errorf("internal fault: %v", p),
				Hint: "Report it with the scheduler's log. Running the statement again with the same key is safe.",
			}
		}
	}()
	target := r.job.planned.Commit()
	if err := r.s.checkReport(commit.Report{JobID: r.job.id, Key: r.job.key, Table: target.Target.Name, Format: target.Target.Format}); err != nil {
		return commit.Report{JobID: r.job.id, Key: r.job.key, Table: target.Target.Name, State: commit.CommitNone}, err
	}
	r.s.targets.Store(r.job.id, target)
	defer r.s.targets.Delete(r.job.id)
	r.s.running.Store(r.job.id, r)
	defer r.s.running.CompareAndDelete(r.job.id, r)
	sent = len(r.sent) > 0
	if r.lost {
		unsure := commit.CommitNone
		if r.sealed != nil {
			unsure = commit.CommitUnknown
		}
		if err := r.countLost(ctx); err != nil {
			return commit.Report{JobID: r.job.id, Key: r.job.key, Table: target.Target.Name, State: unsure}, err
		}
	}
	floor, err := r.s.journal.LowestOrigin(ctx, target.Target.UUID, r.job.id)
	if err != nil {
		return commit.Report{JobID: r.job.id, Key: r.job.key, Table: target.Target.Name, State: commit.CommitNone}, err
	}
	report, err = r.s.committer.Run(ctx, committer.Root{
		JobID: r.job.id, Key: r.job.key, Namespace: r.job.namespace, Plan: target,
		Tasks: r.tasks, Attempts: r.attempts, Expected: r.expected, Sent: r.sent, Origin: r.job.origin, LedgerFloor: floor,
		FindOut: r.findsOut(), Read: r.read,
		BeforeSend: func() error {
			if err := r.passNoReturn(ctx); err != nil {
				return err
			}
			sent = true
			return nil
		},
		OnPhase: func(phase string) {
			switch phase {
			case committer.PhaseQueued:
				r.queued.Store(time.Now().UnixNano())
			case committer.PhaseCommitting:
				r.driven.Store(time.Now().UnixNano())
			}
			r.s.log.Debug("root phase", slog.String("job_id", r.job.id), slog.String("phase", phase))
		},
	})
	if u := r.verified; u != nil && errors.Is(err, errDryRun) {
		report.State, err = commit.CommitNone, nil
		report.Rows, report.Files, report.Bytes = u.Rows, int64(u.Files.Len()), u.Bytes
	}
	return report, err
}

// findsOut says whether the root builds nothing: the earlier process has told the
// unit as unknown.
func (r *rootRun) findsOut() bool {
	return r.sealed != nil && r.sealed.State == journal.UnitUnknown && r.sealed.AfterDeadline != journal.AfterDeadlineRetry
}

// countLost adds the requests that may have been lost with the journal to those
// that were sent.
func (r *rootRun) countLost(ctx context.Context) error {
	if r.sealed != nil {
		u, err := r.s.countLost(ctx, *r.sealed)
		if err != nil {
			return err
		}
		sends, err := r.s.journal.Sends(ctx, u.Token)
		r.sealed, r.sent = &u, requestsOf(sends, u.Branch)
		return err
	}
	c := r.job.planned.Commit()
	req, err := r.s.lostSends(ctx, c.Target.Name, c.Target.UUID, c.Branch, r.job.token)
	if err == nil {
		r.uncounted, r.sent = &req, append(r.sent, req)
	}
	return err
}

// passNoReturn asks the graph for leave to send. From its yes on no cancel
// wins.
func (r *rootRun) passNoReturn(ctx context.Context) error {
	proceed := false
	if err := r.s.loop.call(context.WithoutCancel(ctx), func() {
		for _, a := range r.s.apply(r.job, graph.RootInFlight{Epoch: r.epoch}) {
			if _, ok := a.(graph.ProceedRoot); ok {
				proceed = true
			}
		}
	}); err != nil {
		return err
	}
	if !proceed {
		return errRootStopped(r.job.id)
	}
	return nil
}

func errRootStopped(id string) error {
	return &commit.Error{
		Code: commit.CodeJobCancelled, Op: "commit job", Object: id, Cause: errors.New("the job ended before its commit was sent"),
		Tried: "nothing was committed", Hint: "The statement can be run again with the same idempotency key.",
	}
}

// finished tells the graph how the root ended.
func (r *rootRun) finished(report commit.Report, err error) {
	s, j := r.s, r.job
	if err != nil && s.handsOver(j) && (report.State == commit.CommitNone || report.State == commit.CommitUnknown) {
		return
	}
	if lost, ok := errors.AsType[*wire.LostInputError](err); ok {
		s.log.Warn("root lost its input", slog.String("job_id", j.id), slog.Int("epoch", r.epoch), slog.Any("error", err))
		s.unreachable(j, lost)
		s.apply(j, graph.RootLostInput{Epoch: r.epoch, Lost: []graph.LostInput{*lostOf(lost)}, Err: lost})
		return
	}
	wait := time.Duration(max(0, r.driven.Load()-r.queued.Load()))
	s.cfg.Metrics.Commit(report, err, time.Since(r.began), wait)
	ev := graph.RootFinished{Epoch: r.epoch, Commit: report.State, Err: err}
	if err == nil {
		var encErr error
		if ev.Result, encErr = wire.EncodeReport(report); encErr != nil {
			// The commit stands; the report is also in the status's own field.
			s.log.Error("report not encoded", slog.String("job_id", j.id), slog.Any("error", encErr))
		}
	}
	if report.State == commit.CommitUnknown && !j.hasEnded() {
		// It runs on until somebody finds out. Who waits is told what it is.
		j.unresolved = err
		s.apply(j, ev)
		j.touch()
		return
	}
	if r.epoch == j.rootEpoch {
		j.report = &report
		if !j.hasEnded() {
			j.inline = ev.Result
		}
	}
	ended := j.hasEnded()
	s.apply(j, ev)
	if ended {
		// Cancelled while the root ran: the result is discarded, but what
		// became of the table is recorded.
		s.publish(j)
	}
	j.touch()
}

// read reads the file manifests of all accepted outputs, always over Flight,
// also from an executor on this machine. The copy that came with a success
// stands in only for an executor that is gone.
//
// A unit that was sealed is read from the journal: from the seal on executors
// aren't needed.
func (r *rootRun) read(ctx context.Context, into *commit.Packer) error {
	if r.sealed != nil {
		return r.s.readSealed(ctx, *r.sealed, r.share, into)
	}
	if r.job.external != nil {
		return r.readHandedIn(ctx, into)
	}
	taken := answers.Manifests{Share: r.share, Into: into}
	for i, l := range r.locations {
		err := errors.New("the executor is gone")
		if l.Address != "" {
			err = r.readRemote(ctx, l, &taken)
			if err == nil {
				r.s.cfg.Metrics.Manifest()
				continue
			}
			if _, lost := errors.AsType[*wire.LostInputError](err); !lost {
				return err
			}
		}
		if copied := r.inputs[i].Manifest; copied != nil && !r.executorLives(ctx, l) {
			r.s.log.Info("manifest copy used", slog.String("job_id", r.job.id), slog.String("attempt", l.Attempt), slog.String("executor", l.Executor))
			if err := readManifest(ctx, bytes.NewReader(copied), l.Attempt, l.Rows, r.share, into); err != nil {
				return fmt.Errorf("copy of the file manifest of attempt %s: %w", l.Attempt, err)
			}
			r.s.cfg.Metrics.Manifest()
			continue
		}
		if _, lost := errors.AsType[*wire.LostInputError](err); lost {
			return err
		}
		return &wire.LostInputError{Stage: l.Stage, Task: l.Task, Attempt: l.Attempt, Executor: l.Executor, Cause: err}
	}
	return nil
}

// executorLives says whether the executor that wrote the output is registered
// and serves at the same address.
func (r *rootRun) executorLives(ctx context.Context, l plan.ShuffleLocation) bool {
	lives := true
	if err := r.s.loop.call(ctx, func() {
		e := r.s.state.executors[l.Executor]
		lives = e != nil && e.flight == l.Address
	}); err != nil {
		return true
	}
	return lives
}

// readRemote reads one manifest over Flight. Nothing of it is left when not all of it
// was read, so that a lost executor leaves no half. One that holds its manifest back is
// as good as lost: a root must not wait for it without end.
func (r *rootRun) readRemote(ctx context.Context, l plan.ShuffleLocation, taken *answers.Manifests) error {
	waits, wait := answers.NewWait(ctx, r.s.cfg.ExecutorTimeout)
	defer wait.End()
	rd := r.s.flight.Open(waits, sourceOf(l))
	defer rd.Close()
	before := taken.Into.Len()
	err := taken.Collect(ctx, wait, l.Attempt, l.Rows, func() (arrow.RecordBatch, error) {
		// Before a batch is read: what isn't a manifest may have any size.
		schema, err := rd.Schema()
		if err == nil {
			err = wire.CheckManifestSchema(schema)
		}
		if err != nil {
			return nil, err
		}
		wait.Progress()
		return rd.Next()
	})
	if err != nil {
		if ctx.Err() == nil && waits.Err() != nil {
			return &wire.LostInputError{Stage: l.Stage, Task: l.Task, Attempt: l.Attempt, Executor: l.Executor, Cause: context.Cause(waits)}
		}
		return err
	}
	return checkRows(taken.Into.Len()-before, l.Rows)
}

// askedAfter is after how much more memory a manifest that is read asks for it.
const askedAfter = 1 << 20

// readManifest reads a manifest that comes as an Arrow IPC stream. Its memory is held
// by the share as it is read, and not after all of it is there: it may be larger than
// what one job gets.
func readManifest(ctx context.Context, raw io.Reader, of string, rows int64, share *answers.Share, into *commit.Packer) error {
	before, asked := into.Len(), into.Bytes()
	if err := wire.EachFileIPC(raw, func(f commit.File) error {
		if into.Add(f); into.Bytes()-asked < askedAfter {
			return nil
		}
		asked = into.Bytes()
		return share.Keep(ctx, into, of)
	}); err != nil {
		return err
	}
	if err := checkRows(into.Len()-before, rows); err != nil {
		return err
	}
	return share.Keep(ctx, into, of)
}

// readSealed reads the manifest of a sealed unit.
func (s *Scheduler) readSealed(ctx context.Context, u journal.Unit, share *answers.Share, into *commit.Packer) error {
	raw, err := s.journal.OpenManifest(ctx, u.JobID)
	if err != nil {
		return err
	}
	defer raw.Close() //nolint:errcheck // it was only read
	if err := readManifest(ctx, raw, u.JobID, u.Files, share, into); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, raw) // to its end, which says that it is whole
	return err
}

// checkRows checks that the manifest has as many rows as its attempt reported; rows
// below 0 aren't known.
func checkRows(n int, rows int64) error {
	if rows >= 0 && int64(n) != rows {
		return fmt.Errorf("a file manifest has %d rows; its attempt reported %d (rule: a manifest has as many rows as its attempt reported)", n, rows)
	}
	return nil
}

// checkReport refuses a commit whose report could be larger than may be sent
// back. It's asked before the commit: afterwards it would fail what has landed.
func (s *Scheduler) checkReport(r commit.Report) error {
	// Encoded, a report is its texts, the table's twice, and a few kilobytes.
	const besides = 64 << 10
	if len(r.JobID)+len(r.Key)+len(r.Format)+2*len(r.Table.String()) < s.cfg.MaxResult-besides {
		return nil
	}
	r.Operation, r.State = commit.OperationAppend, commit.CommitCommitted
	r.Rows, r.Files, r.Bytes = math.MaxInt64, math.MaxInt64, math.MaxInt64
	r.SnapshotID = "-9223372036854775808"
	raw, err := wire.EncodeReport(r)
	if err != nil {
		return err
	}
	if len(raw) > s.cfg.MaxResult {
		return &commit.Error{
			Code: commit.CodeReportTooLarge, Op: "commit job", Object: r.JobID,
			Cause: fmt.Errorf("its report would have %d bytes; at most %d can be sent back", len(raw), s.cfg.MaxResult),
			Tried: "nothing was committed", Hint: "Use a shorter idempotency key or table name.",
		}
	}
	return nil
}
