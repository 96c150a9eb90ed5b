package main

import (
	"context"
	"strings"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/render"
	"github.com/spf13/cobra"
)

type frameJSON struct {
	ID        string   `json:"id"`
	State     string   `json:"state"`
	Rows      int64    `json:"rows"`
	Bytes     int64    `json:"bytes"`
	Pieces    int      `json:"pieces"`
	Lost      int      `json:"lost"`
	Users     int      `json:"users"`
	Executors []string `json:"executors"`
	Created   string   `json:"created"`
	Expires   string   `json:"expires"`
	TTL       string   `json:"ttl"`
	Repeats   bool     `json:"repeats"`
	JobID     string   `json:"job_id"`
	SQL       string   `json:"sql"`
}

func frameObject(s client.FrameStatus) frameJSON {
	return frameJSON{
		s.ID, s.State, s.Rows, s.Bytes, s.Pieces, s.Lost, s.Users, append([]string{}, s.Executors...), rfc3339(s.Created), rfc3339(s.Expires),
		s.TTL.String(), s.Repeats, s.Job, s.SQL,
	}
}

var frameColumns = []string{"frame", "state", "rows", "bytes", "pieces", "lost", "users", "expires", "sql"}

func frameCells(f frameJSON) []string {
	return []string{f.ID, f.State, number(f.Rows), number(f.Bytes), number(int64(f.Pieces)), number(int64(f.Lost)), number(int64(f.Users)), f.Expires, strings.Join(strings.Fields(f.SQL), " ")}
}

func (a *app) cacheCommand() *cobra.Command {
	return group("cache", "Keep the rows of queries on the executors, for later statements", a.cacheCreateCommand(), a.cacheListCommand(), a.cacheReleaseCommand())
}

func (a *app) cacheCreateCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var ttl time.Duration
	var key string
	cmd := &cobra.Command{
		Use: "create SELECT", Args: arguments("a SELECT"),
		Short: "Run a query and keep its rows on the executors",
		Long: `Runs the query, and prints the cached frame. Its name stands for a table in later statements:
firn_cache."ID". It is kept until it is released, or not used for its time to live. It needs the
--server of a cluster that stays up: the embedded one ends with the command, and its rows with it.`,
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "how long it is kept without being used; 0 for the scheduler's setting")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "answer a repeated call with the frame that the first one made")
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		frame, err := s.Cache(ctx, client.Statement{SQL: args[0], Key: key}, client.CacheOptions{TTL: ttl})
		if err != nil {
			return err
		}
		st, err := frame.Status(ctx)
		if err != nil {
			return err
		}
		return a.printFrame(f, st)
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if t.server == "" || a.given["dir"] && !a.given["server"] {
			return usage(cmd, "--server is missing: an embedded cluster ends with the command, and cached rows with it")
		}
		return run(cmd, args)
	}
	return cmd
}

func (a *app) printFrame(f render.Format, st client.FrameStatus) error {
	if f == render.JSON || f == render.JSONL {
		return render.Object(a.stdout, frameObject(st))
	}
	return render.List(a.stdout, f, frameColumns, []frameJSON{frameObject(st)}, frameCells)
}

func (a *app) cacheListCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List the cached frames", Args: arguments()}
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, _ []string) error {
		frames, err := s.Frames(ctx)
		if err != nil {
			return err
		}
		var all []frameJSON
		for _, st := range frames {
			all = append(all, frameObject(st))
		}
		return render.List(a.stdout, f, frameColumns, all, frameCells)
	})
	return cmd
}

func (a *app) cacheReleaseCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	cmd := &cobra.Command{
		Use: "release ID", Aliases: []string{"rm"}, Args: arguments("the id of a cached frame"),
		Short: "Release a cached frame: its rows go when the jobs that read them have ended",
	}
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		st, err := s.Frame(args[0]).Status(ctx)
		if err == nil {
			err = s.Frame(args[0]).Release(ctx)
		}
		if err != nil {
			return err
		}
		return a.printFrame(f, st)
	})
	return cmd
}
