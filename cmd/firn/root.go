package main

import (
	"strings"

	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/render"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// rootCommand is the tree of commands.
func (a *app) rootCommand() *cobra.Command {
	root := group("firn", "Distributed writes into lake tables with one atomic commit, exactly once",
		a.schedulerCommand(), a.executorCommand(), a.devCommand(), a.sqlCommand(),
		a.jobCommand(), a.tableCommand(), a.commitCommand(), a.cacheCommand(), a.catalogCommand(), a.tokenCommand(), a.configCommand(), a.errorCommand(), a.versionCommand(), a.helper())
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.applyFlags(cmd) }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmd, "%s%s", err, flagSuggestion(cmd, err))
	})
	root.AddCommand(exitCodesTopic())
	return root
}

// applyFlags fills in what the command line leaves out.
func (a *app) applyFlags(cmd *cobra.Command) error {
	a.given = map[string]bool{}
	cmd.Flags().Visit(func(f *pflag.Flag) { a.given[f.Name] = true })
	if f := cmd.Flags().Lookup("config"); f != nil {
		path := f.Value.String()
		if env, ok := a.getenv(config.EnvName("config")); ok && path == "" {
			path = env
		}
		if path != "" {
			load := config.LoadScheduler
			if _, ok := cmd.Annotations[noSecrets]; ok {
				load = func(path string, _ func(string) (string, bool)) (config.Scheduler, error) {
					return config.ReadScheduler(path)
				}
			}
			var err error
			if a.file, err = load(path, a.getenv); err != nil {
				return err
			}
		}
	}
	return config.ApplyFlags(cmd.Flags(), a.file.FileValues(), a.getenv)
}

// group is a command that only has other commands below it.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short}
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		var names []string
		for _, c := range cmd.Commands() {
			names = append(append(names, c.Name()), c.Aliases...)
		}
		hint := ""
		if best, ok := config.Nearest(args[0], names); ok {
			hint = "; did you mean " + best + "?"
		}
		return usage(cmd, "unknown command %q%s", args[0], hint)
	}
	cmd.AddCommand(commands...)
	return cmd
}

// flagSuggestion names the flag that was probably meant.
func flagSuggestion(cmd *cobra.Command, err error) string {
	_, word, ok := strings.Cut(err.Error(), "unknown flag: --")
	if !ok {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	if best, ok := config.Nearest(word, names); ok {
		return "; did you mean --" + best + "?"
	}
	return ""
}

// arguments wants exactly the named arguments.
func arguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage(cmd, "%s is missing", names[len(args)])
		case len(args) > len(names):
			return usage(cmd, "%q is one argument too many", args[len(names)])
		}
		return nil
	}
}

// outputFlag adds -o.
func (a *app) outputFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&a.output, "output", "o", "text", "`format` of the output: text, json, jsonl or csv")
}

// format is the output format that was asked for.
func (a *app) format() (render.Format, error) {
	f, err := render.ParseFormat(a.output)
	if err != nil {
		return "", usage(nil, "--output %s", err)
	}
	return f, nil
}

// logFlags adds the flags of logs, which go to stderr. Their defaults differ from
// command to command, so they have no variable in common: each would set it.
func logFlags(cmd *cobra.Command, level, format string) {
	cmd.Flags().String("log-level", level, "least `level` that is logged: debug, info, warn or error")
	cmd.Flags().String("log-format", format, "`format` of the log: text or json")
}

// exitCodesTopic is `firn help exit-codes`.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use: "exit-codes", Short: "What firn's exit codes mean",
		Long: `firn's exit codes:

    0  done; for writes: committed and verified
    1  failed; nothing was committed
    4  not permitted
    5  not found
    6  refused by a commit conflict; nothing was committed
    7  commit state unknown; don't resubmit under another key
    8  timed out waiting; the job goes on
   64  wrong usage or configuration
  130  interrupted; the message says what is still running

Any other code is a failure.`,
	}
}
