package main

import (
	"context"
	"fmt"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/render"
	"github.com/spf13/cobra"
)

func (a *app) jobCommand() *cobra.Command {
	return group("job", "List, describe, wait for and cancel jobs",
		a.jobListCommand(), a.jobDescribeCommand(), a.jobWaitCommand(), a.jobCancelCommand())
}

// jobJSON is a job in JSON output: what a write gives, and the job's own story.
type jobJSON struct {
	writeJSON
	SQL       string      `json:"sql"`
	Phase     string      `json:"phase"`
	Percent   float64     `json:"percent_complete"`
	Submitted string      `json:"submitted,omitempty"`
	Ended     string      `json:"ended,omitempty"`
	Stages    []stageJSON `json:"stages"`
	Error     *errorJSON  `json:"error,omitempty"`
	Rejects   []string    `json:"rejects,omitempty"`
	Plan      string      `json:"plan,omitempty"`
	WaitsFor  string      `json:"waits_for,omitempty"`
}

type stageJSON struct {
	ID    string `json:"id"`
	State string `json:"state"`
	Tasks int    `json:"tasks"`
	Done  int    `json:"tasks_done"`
	Rows  int64  `json:"rows"`
	Bytes int64  `json:"bytes"`
	Files int    `json:"files"`
	Error string `json:"error,omitempty"`
}

func jobObject(s client.JobStatus) jobJSON {
	j := jobJSON{
		writeJSON: writeObject(s), SQL: s.SQL, Phase: s.Phase, Percent: s.Percent,
		Submitted: rfc3339(s.Submitted), Ended: rfc3339(s.Ended), Stages: []stageJSON{}, Rejects: s.Rejects, Plan: s.Plan,
		WaitsFor: s.WaitsFor,
	}
	if s.Report == nil {
		j.Rows = s.Rows
	}
	for _, st := range s.Stages {
		j.Stages = append(j.Stages, stageJSON{st.ID, st.State, st.Tasks, st.Done, st.Rows, st.Bytes, st.Files, st.Error})
	}
	if s.Err != nil {
		e := errorObject(asError(s.Err), kindOf(s.Err))
		j.Error = &e
	}
	return j
}

func rfc3339(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

var jobColumns = []string{"job", "state", "commit", "statement", "table", "rows", "duration", "key"}

func jobCells(j jobJSON) []string {
	d := time.Duration(j.DurationMS) * time.Millisecond
	return []string{j.JobID, j.State, j.Commit, j.Statement, j.Table, number(j.Rows), d.String(), j.Key}
}

func (a *app) jobListCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var filter client.JobFilter
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List jobs, newest first", Args: arguments(),
	}
	cmd.Flags().StringVar((*string)(&filter.State), "state", "", "only jobs in this `state`")
	cmd.Flags().IntVar(&filter.Limit, "limit", 50, "how `many`; 0 for all")
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, _ []string) error {
		var jobs []jobJSON
		for status, err := range s.Jobs(ctx, filter) {
			if err != nil {
				return err
			}
			jobs = append(jobs, jobObject(status))
		}
		return render.List(a.stdout, f, jobColumns, jobs, jobCells)
	})
	return cmd
}

// command adds what the commands about one cluster share, and runs call.
func (a *app) command(cmd *cobra.Command, t *target, call func(context.Context, *session, render.Format, []string) error) {
	t.flags(cmd)
	a.outputFlag(cmd)
	logFlags(cmd, "warn", "text")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := a.format()
		if err != nil {
			return err
		}
		return a.with(cmd, *t, func(ctx context.Context, s *session) error { return call(ctx, s, f, args) })
	}
}

// jobArg takes a job's id, or its key from --key.
type jobArg struct{ key string }

func (j *jobArg) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&j.key, "key", "", "the job's idempotency `key`, instead of its id")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case j.key == "" && len(args) == 0:
			return usage(cmd, "the id of a job is missing")
		case j.key != "" && len(args) > 0:
			return usage(cmd, "an id and --key exclude each other")
		case len(args) > 1:
			return usage(cmd, "%q is one argument too many", args[1])
		}
		return nil
	}
}

func (j *jobArg) job(s *session, args []string) *client.Job {
	if j.key != "" {
		return s.JobByKey(j.key)
	}
	return s.Job(args[0])
}

func (a *app) jobDescribeCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var arg jobArg
	cmd := &cobra.Command{Use: "describe ID", Short: "Show a job: state, commit, stages, error, plan"}
	arg.flags(cmd)
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		status, err := arg.job(s, args).Status(ctx)
		if err != nil {
			return err
		}
		return a.showJob(f, status)
	})
	return cmd
}

func (a *app) jobWaitCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var arg jobArg
	var timeout time.Duration
	cmd := &cobra.Command{Use: "wait ID", Short: "Wait for a job's end; the exit code is the job's"}
	arg.flags(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0 for ever")
	cmd.Flags().BoolVarP(&a.quiet, "quiet", "q", false, "no progress on stderr")
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, timeout, errWaited)
			defer cancel()
		}
		job := arg.job(s, args)
		status, err := a.watch(ctx, job)
		if why := stopped(ctx, err); err != nil && why != nil {
			r := &runner{app: a, session: s, format: f, flags: sqlFlags{target: t}}
			return r.abandon(ctx, job, why)
		}
		if status.ID == "" {
			return err
		}
		if serr := a.showJob(f, status); err == nil {
			err = serr
		}
		return err
	})
	return cmd
}

func (a *app) jobCancelCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var arg jobArg
	cmd := &cobra.Command{Use: "cancel ID", Short: "Stop a job, unless its commit is on its way"}
	arg.flags(cmd)
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		answer, status, err := arg.job(s, args).Cancel(ctx)
		if err != nil {
			return err
		}
		if f == render.JSON || f == render.JSONL {
			return render.Object(a.stdout, struct {
				Answer string `json:"answer"`
				jobJSON
			}{string(answer), jobObject(status)})
		}
		_, err = fmt.Fprintf(a.stdout, "%s: job %s is %s, commit %s\n", answer, status.ID, status.State, status.Commit)
		return err
	})
	return cmd
}

// showJob writes one job.
func (a *app) showJob(f render.Format, s client.JobStatus) error {
	j := jobObject(s)
	switch f {
	case render.JSON, render.JSONL:
		return render.Object(a.stdout, j)
	case render.CSV:
		return render.List(a.stdout, f, jobColumns, []jobJSON{j}, jobCells)
	}
	p := &printer{w: a.stdout}
	p.field("job", j.JobID)
	p.field("key", j.Key)
	p.field("statement", j.Statement)
	p.field("state", words(j.State, j.Phase))
	p.field("commit", j.Commit)
	p.field("waits for", j.WaitsFor)
	p.field("table", j.Table)
	if s.Report != nil {
		p.field("written", fmt.Sprintf("%s rows, %s files, %s", thousands(j.Rows), thousands(j.Files), sizeText(j.Bytes)))
		p.field("snapshot", s.Report.SnapshotID)
	} else {
		p.field("rows", thousands(j.Rows))
	}
	p.field("submitted", j.Submitted)
	p.field("duration", (time.Duration(j.DurationMS) * time.Millisecond).String())
	for _, st := range s.Stages {
		p.field("stage "+st.ID, fmt.Sprintf("%s, %d of %d tasks, %s rows, %s", st.State, st.Done, st.Tasks, thousands(st.Rows), sizeText(st.Bytes)))
	}
	for _, e := range j.Executors {
		p.field("executor", fmt.Sprintf("%s: %s", e.ID, count(e.Tasks, "task")))
	}
	if s.Err != nil {
		p.field("error", s.Err.Error())
	}
	p.block("plan", j.Plan)
	p.block("sql", j.SQL)
	return p.err
}
