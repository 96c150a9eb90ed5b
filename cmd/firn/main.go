// Command firn runs Firn's scheduler and executors and sends statements to them.
// It turns flags into configuration, builds what they ask for, runs it, and turns
// the outcome into output and an exit code; nothing else is here.
package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/firn-project/firn/internal/config"
	"github.com/spf13/cobra"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// errInterrupted is why a command's context ends when a signal comes.
var errInterrupted = errors.New("interrupted by a signal")

// app is one run of the command.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) (string, bool)
	// file is the scheduler's configuration file, when there is one.
	file config.Scheduler
	// giveUp ends at the second signal: whatever is still being closed then is
	// left as it is.
	giveUp context.Context //nolint:containedctx // the life of the process, not of a call
	// given are the flags that stood on the command line.
	given map[string]bool

	output            string
	quiet, noProgress bool
}

// run is main with its surroundings as arguments. The result is the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, giveUp, stop := signals()
	defer stop()
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, getenv: os.LookupEnv, giveUp: giveUp}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil {
		return a.fail(err)
	}
	return 0
}

// signals gives a context that ends at the first SIGINT or SIGTERM and one that
// ends at the second. A third ends the process.
func signals() (first, second context.Context, stop func()) {
	first, cancelFirst := context.WithCancelCause(context.Background())
	second, cancelSecond := context.WithCancelCause(context.Background())
	ch := make(chan os.Signal, 3)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		for n := 1; ; n++ {
			select {
			case <-done:
				return
			case <-ch:
			}
			switch n {
			case 1:
				cancelFirst(errInterrupted)
			case 2:
				cancelSecond(errInterrupted)
			default:
				os.Exit(130)
			}
		}
	}()
	return first, second, func() {
		signal.Stop(ch)
		close(done)
		cancelFirst(nil)
		cancelSecond(nil)
	}
}

// logger writes to stderr, as the flags of a command with logFlags say.
func (a *app) logger(cmd *cobra.Command) (*slog.Logger, error) {
	name, format := cmd.Flag("log-level").Value.String(), cmd.Flag("log-format").Value.String()
	var level slog.Level
	if err := level.UnmarshalText([]byte(name)); err != nil {
		return nil, usage(cmd, "--log-level %q: want debug, info, warn or error", name)
	}
	opts := &slog.HandlerOptions{Level: level}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(a.stderr, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.stderr, opts)), nil
	default:
		return nil, usage(cmd, "--log-format %q: want text or json", format)
	}
}
