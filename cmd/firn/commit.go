package main

import (
	"cmp"
	"context"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/render"
	"github.com/spf13/cobra"
)

func (a *app) commitCommand() *cobra.Command {
	return group("commit", "List parked commits, drive them again or give them up",
		a.commitListCommand(), a.commitDescribeCommand(), a.commitResolveCommand(), a.commitRetryCommand(), a.commitDropCommand())
}

type unitJSON struct {
	JobID  string `json:"job_id"`
	Table  string `json:"table"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	Files  int64  `json:"files"`
	Rows   int64  `json:"rows"`
	Prefix string `json:"prefix"`
	Cause  string `json:"cause,omitempty"`
	// WaitsFor is set while the commit is under way.
	WaitsFor string `json:"waits_for,omitempty"`
}

func (a *app) commitListCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var all bool
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List commits that are parked: their files are kept", Args: arguments(),
	}
	cmd.Flags().BoolVar(&all, "all", false, "all commits that the scheduler remembers")
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, _ []string) error {
		units, err := s.Units(ctx, all)
		if err != nil {
			return err
		}
		var items []unitJSON
		for _, u := range units {
			items = append(items, unitObject(u))
		}
		return render.List(a.stdout, f, []string{"job", "table", "state", "reason", "files", "rows", "waits_for", "cause"}, items,
			func(u unitJSON) []string {
				return []string{u.JobID, u.Table, u.State, u.Reason, number(u.Files), number(u.Rows), u.WaitsFor, u.Cause}
			})
	})
	return cmd
}

func unitObject(u client.Unit) unitJSON {
	return unitJSON{u.JobID, u.Table, string(u.State), string(u.Reason), u.Files, u.Rows, u.Prefix, u.Cause, u.WaitsFor}
}

// unitDetails is `firn commit describe -o json`.
type unitDetails struct {
	unitJSON
	Key        string     `json:"idempotency_key"`
	Token      string     `json:"token"`
	Digest     string     `json:"digest"`
	TableUUID  string     `json:"table_uuid"`
	Branch     string     `json:"branch"`
	Bytes      int64      `json:"bytes"`
	Sealed     string     `json:"sealed"`
	Since      string     `json:"since"`
	Quarantine bool       `json:"quarantine"`
	LedgerOnly bool       `json:"ledger_only"`
	After      string     `json:"after_deadline"`
	Sends      []sendJSON `json:"sends"`
}

type sendJSON struct {
	RequestID  string `json:"request_id"`
	SnapshotID string `json:"snapshot_id"`
	Head       string `json:"head"`
	Seat       int64  `json:"seat"`
	At         string `json:"at"`
}

func (a *app) commitDescribeCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	cmd := &cobra.Command{
		Use: "describe JOB", Short: "Show the commit of a job: its state, its token and every request that was sent", Args: arguments("the id of a job"),
	}
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		u, err := s.Unit(ctx, args[0])
		if err != nil {
			return err
		}
		return a.showUnit(f, u)
	})
	return cmd
}

func (a *app) showUnit(f render.Format, u client.Unit) error {
	d := unitDetails{
		unitJSON: unitObject(u), Key: u.Key, Token: u.Token, Digest: u.Digest, TableUUID: u.TableUUID, Branch: u.Branch, Bytes: u.Bytes,
		Sealed: rfc3339(u.Sealed), Since: rfc3339(u.Since), Quarantine: u.Quarantine, LedgerOnly: u.LedgerOnly,
		After: cmp.Or(string(u.AfterDeadline), "look"), Sends: []sendJSON{},
	}
	for _, r := range u.Sends {
		d.Sends = append(d.Sends, sendJSON{r.RequestID, r.SnapshotID, r.Head, r.Seat, rfc3339(r.At)})
	}
	switch f {
	case render.JSON, render.JSONL:
		return render.Object(a.stdout, d)
	case render.CSV:
		return render.List(a.stdout, f, []string{"job", "table", "state", "reason", "files", "rows", "bytes", "token", "sends"}, []unitDetails{d},
			func(d unitDetails) []string {
				return []string{d.JobID, d.Table, d.State, d.Reason, number(d.Files), number(d.Rows), number(d.Bytes), d.Token, number(int64(len(d.Sends)))}
			})
	}
	p := &printer{w: a.stdout}
	p.field("job", d.JobID)
	p.field("table", d.Table+" "+d.TableUUID)
	p.field("branch", d.Branch)
	p.field("state", words(d.State, d.Reason))
	if d.Quarantine {
		p.field("", "a request of it may still land, so its files stay")
	}
	if d.LedgerOnly {
		p.field("", "the table's ledger alone knows it, so its files stay")
	}
	p.field("waits for", d.WaitsFor)
	if u.AfterDeadline != client.AfterDeadlineLook {
		p.field("if unknown", d.After)
	}
	p.field("since", d.Since)
	p.field("sealed", d.Sealed)
	p.field("key", d.Key)
	p.field("token", d.Token)
	p.field("digest", d.Digest)
	p.field("content", thousands(d.Rows)+" rows in "+count(int(d.Files), "file")+" ("+sizeText(d.Bytes)+")")
	p.field("prefix", d.Prefix)
	for _, r := range d.Sends {
		p.field("sent", r.At+" request "+r.RequestID+" snapshot "+r.SnapshotID+" seat "+number(r.Seat))
	}
	p.field("cause", d.Cause)
	return p.err
}

func (a *app) commitResolveCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var fence, yes bool
	cmd := &cobra.Command{
		Use: "resolve JOB [--fence --yes]", Short: "Find out what became of a job's commit; nothing is sent without --fence",
		Long: `Reads the table and says what became of a job's commit.

It stays unknown as long as a request that was sent may still land. The next commit of anybody to the
table ends that. On a table that nobody writes to, --fence does: it puts an empty commit on the table,
as one more snapshot without files, and then finds out. Without --yes it says what it would do.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if yes && !fence {
				return usage(cmd, "--yes is for --fence")
			}
			return arguments("the id of a job")(cmd, args)
		},
	}
	cmd.Flags().BoolVar(&fence, "fence", false, "put an empty commit on the table when that is what it takes")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "really put it there")
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		resolve := s.ResolveUnit
		if fence && yes {
			resolve = s.FenceUnit
		}
		status, err := resolve(ctx, args[0])
		if err != nil {
			return err
		}
		if fence && !yes {
			if err := a.fencePlan(ctx, s, args[0]); err != nil {
				return err
			}
		}
		return a.showJob(f, status)
	})
	return cmd
}

// fencePlan says what a fence for a job's commit would do.
func (a *app) fencePlan(ctx context.Context, s *session, job string) error {
	u, err := s.Unit(ctx, job)
	if err != nil {
		return err
	}
	if u.State != commit.Unknown && !u.Quarantine {
		a.hint("nothing to fence: the commit is %s", words(string(u.State), string(u.Reason)))
		return nil
	}
	var last int64
	for _, r := range u.Sends {
		last = max(last, r.Seat)
	}
	a.hint("would put an empty commit on %s (branch %s), so that %s of this job, up to seat %d, can't land any more; nothing was sent, --yes does it",
		u.Table, u.Branch, count(len(u.Sends), "request"), last)
	return nil
}

func (a *app) commitRetryCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var table string
	cmd := &cobra.Command{
		Use: "retry JOB", Short: "Commit the kept files of a job again, without running it again", Args: arguments("the id of a job"),
	}
	cmd.Flags().StringVar(&table, "table", "", "adopt the files into this `table` instead of the job's own")
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		status, err := s.RetryUnit(ctx, args[0], table)
		if err != nil {
			return err
		}
		return a.showJob(f, status)
	})
	return cmd
}

func (a *app) commitDropCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var yes bool
	cmd := &cobra.Command{
		Use: "drop JOB --yes", Short: "Give the kept files of a job up: they are deleted",
		Args: func(cmd *cobra.Command, args []string) error {
			if err := arguments("the id of a job")(cmd, args); err != nil {
				return err
			}
			if !yes {
				return usage(cmd, "this deletes the files that the job wrote; say so with --yes")
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "really delete the files")
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		status, err := s.DropUnit(ctx, args[0])
		if err != nil {
			return err
		}
		return a.showJob(f, status)
	})
	return cmd
}
