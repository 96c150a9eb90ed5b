package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
	"github.com/firn-project/firn/internal/render"
	"github.com/spf13/cobra"
)

type executorStateJSON struct {
	ID      string   `json:"id"`
	State   string   `json:"state"`
	Address string   `json:"address"`
	Slots   int      `json:"slots"`
	Running int      `json:"running"`
	Memory  int64    `json:"memory_bytes"`
	Holds   []string `json:"holds"`
	Seen    string   `json:"seen"`
}

func executorObject(e client.Executor) executorStateJSON {
	return executorStateJSON{e.ID, string(e.State), e.Address, e.Slots, e.Running, e.Memory, append([]string{}, e.Holds...), rfc3339(e.Seen)}
}

var executorColumns = []string{"executor", "state", "address", "slots", "running", "holds"}

func executorCells(e executorStateJSON) []string {
	return []string{e.ID, e.State, e.Address, number(int64(e.Slots)), number(int64(e.Running)), strings.Join(e.Holds, " ")}
}

// listExecutors writes all jobs that are held, except for people: a busy executor
// holds those of five minutes, and a line of a thousand columns can't be read.
func listExecutors(w io.Writer, f render.Format, executors []executorStateJSON) error {
	cells := executorCells
	if f == render.Text {
		cells = func(e executorStateJSON) []string {
			line := executorCells(e)
			if more := len(e.Holds) - 1; more > 0 {
				line[len(line)-1] = e.Holds[0] + " and " + number(int64(more)) + " more"
			}
			return line
		}
	}
	return render.List(w, f, executorColumns, executors, cells)
}

func (a *app) executorListCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List the executors of a scheduler", Args: arguments()}
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, _ []string) error {
		executors, err := s.Executors(ctx)
		if err != nil {
			return err
		}
		var all []executorStateJSON
		for _, e := range executors {
			all = append(all, executorObject(e))
		}
		return listExecutors(a.stdout, f, all)
	})
	return cmd
}

// drainPause is between two looks at an executor that drains.
const drainPause = 500 * time.Millisecond

func (a *app) executorDrainCommand() *cobra.Command {
	t := target{executors: cluster.NoExecutors}
	var timeout time.Duration
	var noWait bool
	cmd := &cobra.Command{
		Use: "drain ID", Args: arguments("the id of an executor"),
		Short: "Have an executor take no more tasks, and wait until it can be stopped",
		Long: `The executor gets no more tasks, for as long as its process lives. The command waits until those
that it runs have ended and nobody reads what it holds any more: the output of running jobs, and
rows of SELECTs that can still be fetched (results.keep, 5 minutes by default). When it is stopped then, with SIGTERM,
nothing has to run again. Stopped before that, the lost work runs again on other executors.`,
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "how long to wait; 0 for ever")
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "only ask for it")
	a.command(cmd, &t, func(ctx context.Context, s *session, f render.Format, args []string) error {
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeoutCause(ctx, timeout, errWaited)
			defer cancel()
		}
		e, err := s.DrainExecutor(ctx, args[0])
		if err == nil && !noWait && e.State != client.ExecutorDrained {
			_, _ = fmt.Fprintf(a.stderr, "firn: executor %s takes no more tasks; waiting: %s\n", e.ID, waitsFor(e))
		}
		for err == nil && !noWait && e.State != client.ExecutorDrained {
			select {
			case <-time.After(drainPause):
				// Asked again and not only looked at: the scheduler may have
				// started again meanwhile.
				e, err = s.DrainExecutor(ctx, args[0])
			case <-ctx.Done():
				err = notDrained(context.Cause(ctx), e)
			}
		}
		if err != nil {
			return err
		}
		if f == render.JSON || f == render.JSONL {
			return render.Object(a.stdout, executorObject(e))
		}
		return listExecutors(a.stdout, f, []executorStateJSON{executorObject(e)})
	})
	return cmd
}

// waitsFor says what keeps an executor from being drained.
func waitsFor(e client.Executor) string {
	return fmt.Sprintf("it runs %s, and holds what may be read for %s (rows of a SELECT for results.keep, 5 minutes by default)", count(e.Running, "attempt"), count(len(e.Holds), "job"))
}

// notDrained says what a drain still waited for.
func notDrained(why error, e client.Executor) error {
	out := &commit.Error{
		Code: commit.CodeInterrupted, Op: "drain executor", Object: e.ID, Cause: why,
		Tried: "it takes no more tasks; " + waitsFor(e),
		Hint:  "`firn executor drain " + e.ID + "` waits on, `firn executor list -o json` names the jobs.",
	}
	if errors.Is(why, errWaited) {
		out.Code = commit.CodeWaitTimeout
	}
	return out
}
