package scheduler

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/storekeys"
	"github.com/firn-project/firn/scheduler/writes"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// statementWrite is the kind of statement that an external write has in lists.
const statementWrite = "WRITE"

// externalWrite is what a job has that stands for an external write.
//
// Such a job has no graph while its write is open: it waits. When the write is sealed
// it gets the graph of a job whose final stage has one accepted attempt for each
// sealed handle, and is like any other job from then on.
type externalWrite struct {
	TTL    time.Duration `json:"ttl,omitempty"`
	Engine string        `json:"engine,omitempty"`
}

// isOpenWrite says whether the job is a write that isn't sealed, or given up, yet.
func (j *job) isOpenWrite() bool { return j.external != nil && j.graph == nil && !j.hasEnded() }

// openWrite lets workers in once the job is planned, or takes a write up that an
// earlier process left.
func (s *Scheduler) openWrite(j *job) {
	j.store = newWriteStore()
	if j.resume == nil {
		now := time.Now()
		j.early, j.started = graph.Running, now
		prefix := j.planned.Commit().Prefix
		s.noted(j, journal.Batch{
			Plans:   []journal.Plan{{JobID: j.id, Body: j.planBody}},
			Origins: []journal.Origin{{Token: j.token, Seat: j.origin}},
			Writes:  []lifecycle.State{s.cfg.Writes.Opened(j.id, j.external.TTL, now)},
			// Stands for all of its attempts, which others name.
			Started: []journal.Attempt{{ID: newID("a-"), JobID: j.id, Prefix: prefix, Started: now}},
		}, func(err error) {
			if err == nil {
				s.loop.put(func() { s.writeOpened(j) })
			}
		})
		return
	}
	switch lifecycle.Resume(j.write) {
	case lifecycle.Finish:
		close(j.opened)
		s.resumeGraph(j)
	case lifecycle.Reopen:
		j.resume = nil
		j.early, j.started = graph.Running, j.submitted
		s.writeOpened(j)
	case lifecycle.End:
		close(j.opened)
		s.endWrite(j, j.write.Phase)
	}
}

// takeUpAgain is the pause before a write that couldn't be taken up is tried again.
const takeUpAgain = 2 * time.Second

// planLater plans a job again after a while.
func (s *Scheduler) planLater(j *job) {
	s.wg.Go(func() {
		t := time.NewTimer(takeUpAgain)
		defer t.Stop()
		select {
		case <-t.C:
			s.loop.put(func() {
				if !j.hasEnded() {
					s.startPlanning(j)
				}
			})
		case <-s.life.Done():
		}
	})
}

// writeOpened tells that the write is open.
func (s *Scheduler) writeOpened(j *job) {
	close(j.opened)
	s.noteChanges(j)
	j.touch()
}

// endWrite ends the job of a write that was given up before it was sealed.
func (s *Scheduler) endWrite(j *job, phase lifecycle.Phase) {
	if j.graph != nil {
		return
	}
	if phase == lifecycle.Expired {
		s.endEarly(j, graph.JobFailed, &commit.Error{
			Code: commit.CodeWriteNotOpen, Op: "keep open write", Object: j.id, Cause: errors.New("it has expired: nobody renewed it in time"),
			Tried: "nothing was committed; its files are deleted", Hint: "Begin the write again with the same idempotency key, and renew it while its tasks run.",
		})
		return
	}
	s.endEarly(j, graph.Cancelled, nil)
}

// recoverWrite reads what is on record of a job's external write, if it has one.
func (s *Scheduler) recoverWrite(ctx context.Context, j *job) (err error) {
	if j.external == nil {
		return nil
	}
	if j.write, err = s.journal.WriteState(ctx, j.id); err == nil {
		j.handed, err = s.journal.WriteManifests(ctx, j.id)
	}
	if err != nil {
		return fmt.Errorf("take up write %s: %w", j.id, err)
	}
	return nil
}

// acceptedHandles are the tasks of the job's only stage, one for each handle that its
// write was sealed with, as the graph knows successes.
func (j *job) acceptedHandles() []graph.TaskSucceeded {
	byAttempt := make(map[string]lifecycle.Manifest, len(j.handed))
	for _, m := range j.handed {
		byAttempt[m.Attempt] = m
	}
	var all []graph.TaskSucceeded
	for i, attempt := range j.write.SealedAttempts() {
		m := byAttempt[attempt]
		all = append(all, graph.TaskSucceeded{
			Task: graph.TaskID{Task: i}, StageAttempt: 1, Attempt: attempt, Rows: m.Rows, Bytes: m.Size, Files: int(m.Files),
			Outputs: []graph.Output{{Rows: m.Files, Bytes: m.Bytes}},
		})
	}
	return all
}

// readHandedIn reads the manifests of a sealed write's handles, which are in the
// journal.
func (r *rootRun) readHandedIn(ctx context.Context, into *commit.Packer) error {
	for _, in := range r.inputs {
		raw, err := r.s.journal.WriteManifest(ctx, r.job.id, in.Attempt)
		if err != nil {
			return err
		}
		if err := readManifest(ctx, bytes.NewReader(raw), in.Attempt, in.Output.Rows, r.share, into); err != nil {
			return fmt.Errorf("manifest of attempt %s: %w", in.Attempt, err)
		}
	}
	return nil
}

// writeHost is the scheduler as the open write protocol's service has it.
type writeHost struct{ s *Scheduler }

var _ writes.Host = writeHost{}

// Begin implements writes.Host.
func (h writeHost) Begin(ctx context.Context, r writes.Request) (writes.Write, error) {
	s := h.s
	name, err := s.tableName(ctx, r.Table, plan.Session{})
	if err != nil {
		return writes.Write{}, err
	}
	if err := s.analyzer.Writable(ctx, name); err != nil {
		return writes.Write{}, err
	}
	sub := submission{
		namespace: defaultNamespace, key: r.Key, newKey: r.KeyIsNew, statement: statementWrite,
		sql: "external write by " + cmp.Or(r.Engine, "others"), target: name, mode: plan.ModeStaged, timeZone: "UTC",
		plan:   &plan.Commit{Input: &plan.External{}, Target: plan.Pinned{Name: name}},
		dryRun: r.DryRun, afterDeadline: journal.AfterDeadline(r.AfterDeadline), external: &externalWrite{TTL: r.TTL, Engine: r.Engine},
		fingerprint: fingerprint("external", name.String(), commit.MainBranch, string(commit.OperationAppend)),
	}
	if sub.key == "" {
		sub.key, sub.newKey = newID(""), true
	}
	st, err := s.submit(ctx, sub)
	if err != nil {
		return writes.Write{}, err
	}
	w, err := h.Find(ctx, st.GetJobId())
	if err == nil && endedState(st.GetState()) {
		w.Job = st // it says that an earlier write did it
	}
	return w, err
}

// admitWrite refuses a write beside too many others, and else has add count it.
func (s *Scheduler) admitWrite(ctx context.Context, j *job, add func() error) error {
	s.admitting.Lock()
	defer s.admitting.Unlock()
	open, own := 0, 0
	if err := s.loop.call(ctx, func() {
		for _, o := range s.state.jobs {
			if !o.isOpenWrite() {
				continue
			}
			if open++; o.namespace == j.namespace {
				own++
			}
		}
	}); err != nil {
		return err
	}
	if why := lifecycle.Admit(open, own, s.cfg.Writes.MaxOpen, s.cfg.Writes.MaxOpenPrincipal); why != "" {
		return &commit.Error{
			Code: commit.CodeTooManyWrites, Op: "begin a write to", Object: j.target.String(), Cause: errors.New(why), Tried: "nothing was begun",
			Hint: "Commit or abort some, or wait until those that nobody renews expire.",
		}
	}
	return add()
}

// Find implements writes.Host.
func (h writeHost) Find(ctx context.Context, id string) (writes.Write, error) {
	return h.find(ctx, id, &firnpb.JobRequest{JobId: id})
}

// Newest implements writes.Host.
func (h writeHost) Newest(ctx context.Context, key string) (writes.Write, error) {
	return h.find(ctx, key, &firnpb.JobRequest{IdempotencyKey: key})
}

func (h writeHost) find(ctx context.Context, what string, r *firnpb.JobRequest) (writes.Write, error) {
	j, st, err := h.s.find(ctx, r)
	switch {
	case commit.CodeOf(err) == commit.CodeJobNotFound || err == nil && j == nil && st.GetStatement() != statementWrite || j != nil && j.external == nil:
		return writes.Write{}, writes.NotFound(what)
	case err != nil:
		return writes.Write{}, err
	case j == nil:
		return h.ended(ctx, st)
	}
	select {
	case <-j.opened:
	case <-j.published:
	case <-ctx.Done():
		return writes.Write{}, context.Cause(ctx)
	case <-h.s.leave:
		return writes.Write{}, errClosing()
	}
	w := writes.Write{DryRun: j.dryRun}
	var changed chan struct{}
	if w.Job, changed, err = h.s.viewChanged(ctx, j); err != nil {
		return w, err
	}
	if endedState(w.Job.GetState()) {
		return w, nil
	}
	w.Changed = changed
	return w, h.s.loop.call(ctx, func() {
		if j.planned == nil {
			return
		}
		c := *j.planned.Commit()
		c.Input = j.planned.Final().Top
		w.Plan, w.Warnings = &c, j.warnings
	})
}

// ended is a write whose job isn't in memory any more.
func (h writeHost) ended(ctx context.Context, st *firnpb.JobStatus) (writes.Write, error) {
	w := writes.Write{Job: st}
	raw, err := h.s.journal.Submission(ctx, st.GetJobId())
	if err != nil {
		return w, err
	}
	j, err := jobOf(journal.Job{ID: st.GetJobId()}, raw)
	if err == nil {
		w.DryRun = j.dryRun
	}
	return w, err
}

// waitsForSeal says whether the job is that of an open write, and ready to go on once
// it is sealed.
func (j *job) waitsForSeal() bool {
	return j != nil && j.isOpenWrite() && j.planned != nil && j.early == graph.Running
}

// Commit implements writes.Host.
func (h writeHost) Commit(ctx context.Context, id string) error {
	s := h.s
	// The seal is on record: who asked may leave, and the job goes on all the same.
	ctx = context.WithoutCancel(ctx)
	waits := false
	if err := s.loop.call(ctx, func() { waits = s.state.jobs[id].waitsForSeal() }); err != nil || !waits {
		return err // it goes on already: manifests needn't be listed for that
	}
	state, err := s.journal.WriteState(ctx, id)
	if err != nil {
		return err
	}
	handed, err := s.journal.WriteManifests(ctx, id)
	if err != nil {
		return err
	}
	closing := false
	err = s.loop.call(ctx, func() {
		j := s.state.jobs[id]
		if !j.waitsForSeal() || state.Phase != lifecycle.Sealed {
			return
		}
		if closing = s.state.closing; closing {
			return // it's on record: the next process goes on
		}
		j.write, j.handed = state, handed
		j.planned = j.planned.WithTasks(len(state.Handles))
		j.planText = textOf(j.planned, nil, j.warnings)
		started := j.started
		j.resume = &resume{}
		s.resumeGraph(j)
		j.started = started
	})
	if err == nil && closing {
		return errClosing()
	}
	return err
}

// End implements writes.Host.
func (h writeHost) End(ctx context.Context, id string) error {
	s := h.s
	state, err := s.journal.WriteState(context.WithoutCancel(ctx), id)
	if err != nil {
		return err
	}
	var j *job
	if err := s.loop.call(context.WithoutCancel(ctx), func() {
		if j = s.state.jobs[id]; j != nil {
			s.endWrite(j, state.Phase)
		}
	}); err != nil || j == nil {
		return err
	}
	select {
	case <-j.published:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.life.Done():
		return errClosing()
	}
}

// Keys implements writes.Host.
func (h writeHost) Keys(ctx context.Context, id, expired string) (objstore.Keys, error) {
	var keys *storekeys.Job
	if err := h.s.loop.call(ctx, func() {
		if j := h.s.state.jobs[id]; j != nil {
			keys = j.storeKeys
		}
	}); err != nil {
		return objstore.Keys{}, err
	}
	return keys.Keys(ctx, storekeys.KeysOfWrite, expired)
}

// Store implements writes.Host.
func (h writeHost) Store(ctx context.Context, w writes.Write) (objstore.Store, error) {
	s := h.s
	if s.cfg.OpenStore == nil {
		return nil, nil
	}
	store := newWriteStore()
	if err := s.loop.call(ctx, func() {
		if j := s.state.jobs[w.Job.GetJobId()]; j != nil && j.store != nil {
			store = j.store
		}
	}); err != nil {
		return nil, err
	}
	return store.get(ctx, func() (objstore.Store, error) {
		return s.openStore(ctx, w.Plan.Target.Storage, w.Plan.Prefix, w.Plan.Target.Name)
	})
}

// storeKept is how long the store of a write is kept: its keys may end.
const storeKept = time.Minute

// writeStore reaches the files of one write, for all who hand them in.
type writeStore struct {
	// turn has a token while somebody opens it.
	turn   chan struct{}
	store  objstore.Store
	opened time.Time
}

func newWriteStore() *writeStore { return &writeStore{turn: make(chan struct{}, 1)} }

func (w *writeStore) get(ctx context.Context, open func() (objstore.Store, error)) (objstore.Store, error) {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if w.store != nil && time.Since(w.opened) < storeKept {
		return w.store, nil
	}
	now := time.Now()
	store, err := open()
	if err == nil {
		w.store, w.opened = store, now
	}
	return store, err
}

// WaitsFor implements writes.Host.
func (h writeHost) WaitsFor(id string) string { return h.s.committer.WaitsFor(id) }

// Leaving implements writes.Host.
func (h writeHost) Leaving() <-chan struct{} { return h.s.leave }
