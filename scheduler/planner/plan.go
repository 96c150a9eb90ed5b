package planner

import (
	"context"
	"errors"
	"fmt"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// Limits on failures when Options leaves them out.
const (
	DefaultMaxTaskFailures  = 4
	DefaultMaxStageAttempts = 4
)

// Options says how a job is planned.
type Options struct {
	JobID string
	// Mode is how the job's stages run; empty for plan.ModeStaged.
	Mode plan.Mode
	// Frame: the job's rows stay as a cached frame.
	Frame bool
	// Root picks the root operators that run on the scheduler. It is asked once,
	// about the plan's top. Nil: none.
	Root func(plan.Node) bool
	// Bind turns a logical plan into a physical one.
	Bind func(context.Context, *plan.Logical) (plan.Node, error)
	// Adaptive asks for stages that are cut into tasks when the sizes of what they
	// read are known. A pipelined job has none: its stages begin before that.
	Adaptive bool
	// Slots says for how many task slots adaptive stages are cut, and whether a
	// pipelined job's tasks fit. It is asked once the plan is bound. Nil: one.
	Slots func() int
	// MaxTaskFailures and MaxStageAttempts are handed to the graph; 0 for the
	// defaults.
	MaxTaskFailures, MaxStageAttempts int
}

// DefaultRoot picks the commit operators.
func DefaultRoot(n plan.Node) bool {
	_, ok := n.(*plan.Commit)
	return ok
}

// PlanJob binds a logical plan, splits the scheduler root off and cuts what
// remains into stages. Refusals are *commit.Error and come before any task of
// the job exists.
func PlanJob(ctx context.Context, p plan.Plan, opts Options) (*Job, error) {
	top, err := bind(ctx, p, opts.Bind)
	if err != nil {
		return nil, err
	}
	if err := checkShape(top, opts.JobID); err != nil {
		return nil, err
	}
	job := &Job{
		ID: opts.JobID, Mode: opts.Mode,
		maxTaskFailures: opts.MaxTaskFailures, maxStageAttempts: opts.MaxStageAttempts,
	}
	if job.Mode == "" {
		job.Mode = plan.ModeStaged
	}
	if job.askSlots = opts.Slots; job.askSlots == nil {
		job.askSlots = func() int { return 1 }
	}
	if opts.Adaptive || job.Mode == plan.ModePipelined {
		job.slots = max(job.askSlots(), 1)
	}
	if job.maxTaskFailures == 0 {
		job.maxTaskFailures = DefaultMaxTaskFailures
	}
	if job.maxStageAttempts == 0 {
		job.maxStageAttempts = DefaultMaxStageAttempts
	}
	below := top
	if opts.Root != nil && opts.Root(top) {
		if job.Root, below, err = split(top, job, opts.Frame); err != nil {
			return nil, err
		}
	}
	if err := refuseCommit(below, job); err != nil {
		return nil, err
	}
	if err := job.cut(below); err != nil {
		return nil, err
	}
	if job.Root == nil {
		job.ResultColumns = columnsOf(below)
	}
	return job, nil
}

func bind(ctx context.Context, p plan.Plan, f func(context.Context, *plan.Logical) (plan.Node, error)) (plan.Node, error) {
	switch p := p.(type) {
	case *plan.Logical:
		if f == nil {
			return nil, errors.New("planner: a logical plan needs Options.Bind")
		}
		return f(ctx, p)
	case plan.Node:
		return p, nil
	default:
		return nil, fmt.Errorf("planner: unknown kind of plan %T", p)
	}
}

// split takes the root off the plan and checks that a scheduler may run it; frame says
// that the job's rows were to stay as a cached frame.
func split(top plan.Node, job *Job, frame bool) (root, below plan.Node, err error) {
	if job.Mode != plan.ModeStaged {
		why := "has no point where all stages have succeeded"
		if job.Mode == plan.ModeCached {
			why = "would keep the root's input instead of the job's result"
		}
		hint := "Submit it as a staged job (leave the mode out)."
		if frame { // whose mode nobody chose
			hint = "Cache the statement's query, and INSERT from the frame; or run the statement without caching it."
		}
		return nil, nil, &commit.Error{
			Code: commit.CodeModeRefused, Op: "plan job", Object: job.ID,
			Cause: fmt.Errorf("the job's last step (%s) runs on the scheduler after all stages have succeeded, and a %s job %s", describeRoot(top), job.Mode, why),
			Tried: "nothing was run",
			Hint:  hint,
		}
	}
	c, ok := top.(*plan.Commit)
	if !ok {
		return nil, nil, &commit.Error{
			Code: commit.CodeRootInput, Op: "plan job", Object: job.ID,
			Cause: fmt.Errorf("the root predicate picked a %s operator, which gives rows; only operators that read file manifests run on the scheduler", top.Kind()),
			Hint:  "Let the predicate pick commit operators only.",
		}
	}
	below = c.Input
	if co, ok := below.(*plan.Coalesce); ok && co.Limit == nil {
		// The root reads every partition anyway; without the Coalesce the
		// final stage keeps its parallel writers.
		below = co.Input
	}
	if !givesManifests(below) {
		return nil, nil, &commit.Error{
			Code: commit.CodeRootInput, Op: "plan job", Object: job.ID,
			Cause: fmt.Errorf("the input of the scheduler root is a %s operator, which gives rows, not file manifests", below.Kind()),
			Hint:  "Put a write operator directly below the commit.",
		}
	}
	own := *c
	own.Input = nil
	return &own, below, nil
}

// refuseCommit refuses a commit operator in what executors would run.
func refuseCommit(n plan.Node, job *Job) error {
	if c, ok := n.(*plan.Commit); ok {
		return &commit.Error{
			Code: commit.CodeCommitNeedsRoot, Op: "plan job", Object: job.ID,
			Cause: fmt.Errorf("the job ends in a %s, which this scheduler is configured not to run, and an executor can't", describeRoot(c)),
			Hint:  "Let the scheduler's root predicate pick commit operators (the default).",
		}
	}
	for n = input(n); n != nil; n = input(n) {
		if c, ok := n.(*plan.Commit); ok {
			return &commit.Error{
				Code: commit.CodeCommitBelowRoot, Op: "plan job", Object: job.ID,
				Cause: fmt.Errorf("a %s stands below another operator; it can only be the plan's last step", describeRoot(c)),
				Hint:  "Submit the commit as the last operator of a plan of its own.",
			}
		}
	}
	return nil
}

// checkShape walks a plan that may come from a client and refuses what the cut
// and the encoding rely on not to be there.
func checkShape(n plan.Node, jobID string) error {
	refuse := func(format string, args ...any) error {
		return &commit.Error{
			Code: commit.CodeBadPlan, Op: "plan job", Object: jobID, Cause: fmt.Errorf(format, args...),
			Hint: "Submit SQL, or a plan of source, query, exchange, write and commit operators.",
		}
	}
	const deepest = 100
	for depth := 0; ; depth++ {
		if depth > deepest {
			return refuse("the plan has more than %d operators", deepest)
		}
		switch n := n.(type) {
		case *plan.Query:
			if frames := framesOf(n); frames > 0 && n.Parallel && (len(n.Sources) > 1 || len(n.Partitions) > 0) {
				return refuse("the query reads a cached frame and something else in parallel")
			}
			if n.Parallel && len(n.Partitions) > 0 && (n.Partitioned < 0 || n.Partitioned >= len(n.Sources)) {
				return refuse("the query's partitions belong to source %d of %d", n.Partitioned, len(n.Sources))
			}
			return nil
		case *plan.External:
			if n.Tasks < 0 || n.Tasks > maxExternal {
				return refuse("an external write has %d tasks; 0 to %d can be had", n.Tasks, maxExternal)
			}
			return nil
		case *plan.Exchange:
			if n.Partitions < 1 || n.Partitions > maxPartitions {
				return refuse("an exchange has %d partitions; 1 to %d can be had", n.Partitions, maxPartitions)
			}
			if n.How == plan.ExchangeSingle && n.Partitions != 1 {
				return refuse("an exchange to a single partition has %d", n.Partitions)
			}
			if n.How == plan.ExchangeHash && n.Layout == nil {
				return refuse("a hash exchange has no layout to hash by")
			}
		case *plan.Write, *plan.Coalesce, *plan.Commit:
		case *plan.ShuffleRead:
			return refuse("a shuffle read can't be submitted")
		default:
			return refuse("unknown operator %T", n)
		}
		if n = input(n); n == nil {
			return refuse("an operator has no input")
		}
	}
}

func framesOf(q *plan.Query) (n int) {
	for _, s := range q.Sources {
		if s.Frame != nil {
			n++
		}
	}
	return n
}

// maxPartitions bounds the output partitions of a task: each is a file.
const maxPartitions = 10000

// maxExternal bounds the attempts of an external write that are committed.
const maxExternal = 1 << 20

// input is a node's only input, or nil for a leaf. A typed nil counts as none.
func input(n plan.Node) plan.Node {
	ins := n.Inputs()
	if len(ins) == 0 {
		return nil
	}
	return ins[0]
}

// givesManifests says whether a node's output is file manifests.
func givesManifests(n plan.Node) bool {
	switch n := n.(type) {
	case *plan.Write, *plan.External:
		return true
	case *plan.Coalesce:
		return givesManifests(n.Input)
	case *plan.Exchange:
		return givesManifests(n.Input)
	default:
		return false
	}
}

// columnsOf gives the columns of a node's rows; nil for manifests.
func columnsOf(n plan.Node) []plan.Column {
	switch n := n.(type) {
	case *plan.Query:
		return n.Columns
	case *plan.ShuffleRead:
		return n.Columns
	case *plan.Coalesce:
		return columnsOf(n.Input)
	case *plan.Exchange:
		return columnsOf(n.Input)
	default:
		return nil
	}
}
