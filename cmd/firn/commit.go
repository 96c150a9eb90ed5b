package main

import (
	"context"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/render"
	"github.com/spf13/cobra"
)

func (a *app) commitCommand() *cobra.Command {
	return group("commit", "List parked commits, drive them again or give them up",
		a.commitListCommand(), a.commitRetryCommand(), a.commitDropCommand())
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
		return render.List(a.stdout, f, []string{"job", "table", "state", "reason", "files", "rows", "cause"}, items,
			func(u unitJSON) []string {
				return []string{u.JobID, u.Table, u.State, u.Reason, number(u.Files), number(u.Rows), u.Cause}
			})
	})
	return cmd
}

func unitObject(u client.Unit) unitJSON {
	return unitJSON{u.JobID, u.Table, string(u.State), string(u.Reason), u.Files, u.Rows, u.Prefix, u.Cause}
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
