package committer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// Phases that Root.OnPhase hears of, in this order.
const (
	PhaseReading    = "reading"
	PhaseVerifying  = "verifying"
	PhaseQueued     = "queued"
	PhaseCommitting = "committing"
)

// Root is one commit operator to run.
type Root struct {
	JobID string
	// Key is the job's idempotency key, Namespace that of its principal.
	Key       string
	Namespace string
	Plan      *plan.Commit
	// Tasks is the number of tasks of the final stage.
	Tasks int
	// Attempts are the final stage's accepted attempts, one for each task; nil
	// when they aren't known here. Files of any other attempt are refused.
	Attempts []string
	// Expected is what the accepted attempts reported to have written; nil
	// when that isn't known here.
	Expected *Counts
	// Sent are the send records of earlier runs of this unit, when it is driven
	// again: requests that may still be under way. Payload may be missing.
	Sent []commit.Request
	// FindOut: nothing is built or sent for the unit, as whoever was told that its
	// outcome isn't known may have done something about it since. What a read
	// proves is told, and unknown otherwise.
	FindOut bool
	// Fence is FindOut with an empty commit, put on the table when that is what it
	// takes to prove that the requests in Sent can't land any more.
	Fence bool
	// Origin is the seat of the table when the key was first accepted, as the
	// journal has it; zero when it isn't known here.
	Origin commit.Seat
	// LedgerFloor is the lowest origin of the table's other units that are sealed
	// and open, as the journal knows them; nil for none. Those in this
	// committer's queue are known to it.
	LedgerFloor *commit.Seat
	// Read reads the file manifests into a packer. It must have read everything
	// before it returns nil; its error is in the chain of Run's.
	Read func(ctx context.Context, into *commit.Packer) error
	// BeforeSend is called once, before the first request is sent: the point
	// of no return. Its error stops the unit.
	BeforeSend func() error
	// OnPhase hears of phases as they begin, one after the other but not always
	// in the goroutine of Run.
	OnPhase func(phase string)
}

// Counts are sums over the final stage.
type Counts struct{ Files, Rows int64 }

// Run runs one commit operator to its end. The report tells what is known of
// the table also when the error isn't nil; the error is a *commit.Error.
//
// Until BeforeSend has answered, the end of ctx stops the unit and nothing is
// committed. From then on Run goes on to a definite outcome or to the deadline,
// whatever becomes of ctx.
func (c *Committer) Run(ctx context.Context, r Root) (rep commit.Report, err error) {
	rep = commit.Report{JobID: r.JobID, Key: r.Key, State: commit.CommitNone}
	submitted := false
	defer func() {
		if !submitted && len(r.Sent) > 0 {
			// What stopped this run says nothing of what an earlier one sent.
			rep.State = commit.CommitUnknown
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			c.cfg.Logger.LogAttrs(ctx, slog.LevelError, "commit root panicked", slog.String("job_id", r.JobID),
				slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			err = &commit.Error{
				Code: commit.CodeCommitPanic, Op: "run the commit of job", Object: r.JobID,
				Cause: fmt.Errorf("a defect in Firn: %v", p), Tried: "nothing was sent",
			}
		}
	}()
	if r.Plan == nil || r.Read == nil {
		return rep, errInput(r, errors.New("the root has no plan or no input"))
	}
	target := r.Plan.Target
	rep.Table, rep.Format, rep.Operation = target.Name, target.Format, r.Plan.Operation
	l, err := layoutOf(target)
	if err != nil {
		return rep, errInput(r, err)
	}
	u, err := c.collect(ctx, r, l)
	if err != nil {
		return rep, err
	}
	r.phase(PhaseVerifying)
	if err := verify(u, r, l); err != nil {
		rep.State = commit.CommitRefused
		return rep, err
	}
	if err := c.checkFiles(ctx, r, u); err != nil {
		if commit.ReasonOf(err) != "" {
			rep.State = commit.CommitRefused
		}
		return rep, err
	}
	if err := c.cfg.Recorder.RecordSeal(ctx, u); err != nil {
		return rep, errInput(r, fmt.Errorf("seal the commit unit: %w", err))
	}
	r.phase(PhaseQueued)
	submitted = true
	o := c.submit(ctx, r, u)
	fill(&rep, u, o)
	return rep, o.Err
}

func (r Root) phase(p string) {
	if r.OnPhase != nil {
		r.OnPhase(p)
	}
}

// collect reads all manifests and makes the unit.
func (c *Committer) collect(ctx context.Context, r Root, l layout) (commit.Unit, error) {
	target := r.Plan.Target
	r.phase(PhaseReading)
	var files commit.Packer
	err := r.Read(ctx, &files)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		if ctx.Err() != nil {
			return commit.Unit{}, errStopped(r, err)
		}
		return commit.Unit{}, errInput(r, err)
	}
	u := commit.NewUnit(commit.UnitSpec{
		Namespace: r.Namespace, Key: r.Key, JobID: r.JobID, Table: target.Name, TableUUID: target.UUID,
		Branch: r.Plan.Branch, Operation: r.Plan.Operation, SchemaID: l.schemaID, SpecID: l.specID,
		Prefix: r.Plan.Prefix, Tasks: r.Tasks, Packed: files.Files(), Origin: r.Origin,
	})
	u.LedgerFloor = r.LedgerFloor
	return u, nil
}

// checkFiles looks at the unit's files. A unit that was sent, or is only found out
// about, is past that: what the files are now says nothing about the table.
func (c *Committer) checkFiles(ctx context.Context, r Root, u commit.Unit) error {
	if c.cfg.CheckFiles == nil || len(r.Sent) > 0 || r.FindOut || r.Fence {
		return nil
	}
	err := c.cfg.CheckFiles(ctx, r.Plan.Target.Storage, u)
	switch {
	case err == nil || commit.CodeOf(err) == commit.CodeVerification:
		return err
	case ctx.Err() != nil:
		return errStopped(r, err)
	default:
		return &commit.Error{
			Code: commit.CodeStorage, Op: "look at the files before the commit of job", Object: r.JobID, Cause: err, Tried: "nothing was committed",
			Hint: "Run the statement again with the same idempotency key when the store answers.",
		}
	}
}

func errStopped(r Root, cause error) error {
	return &commit.Error{
		Code: commit.CodeCommitStopped, Op: "commit to", Object: r.Plan.Target.Name.String(), Cause: cause,
		Tried: "it was stopped before its unit was sealed; nothing was committed",
	}
}

// fill puts the outcome into the report. Numbers of a unit that was there
// already are those of the table, not of this run's files.
func fill(rep *commit.Report, u commit.Unit, o commit.Outcome) {
	rep.Attempts, rep.Conflicts = o.Attempts, o.Conflicts
	rep.Deduplicated, rep.OtherSubmission, rep.RolledBack = o.Deduplicated, o.ByOthers(), o.RolledBack
	switch o.State {
	case commit.Committed:
		rep.State = commit.CommitCommitted
		rep.SnapshotID, rep.CommittedAt = o.Landed.SnapshotID, o.Landed.CommittedAt
		rep.Rows, rep.Files, rep.Bytes = o.Landed.Rows, o.Landed.Files, o.Landed.Bytes
		if !o.Deduplicated {
			rep.Rows, rep.Files, rep.Bytes = u.Rows, int64(u.Files.Len()), u.Bytes
		}
	case commit.Refused:
		rep.State = commit.CommitRefused
		if o.Reason == "" { // stopped by a cancel before anything was sent
			rep.State = commit.CommitNone
		}
	default:
		rep.State = commit.CommitUnknown
	}
}

func errInput(r Root, cause error) error {
	return &commit.Error{
		Code: commit.CodeCommitInput, Op: "read the file manifests of job", Object: r.JobID, Cause: cause,
		Tried: "nothing was sent to the table",
		Hint:  "Run the statement again with the same idempotency key.",
	}
}
