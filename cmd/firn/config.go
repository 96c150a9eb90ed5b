package main

import (
	"fmt"

	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/render"
	"github.com/spf13/cobra"
)

// noSecrets marks commands that read a configuration and none of the secrets that
// it refers to.
const noSecrets = "no-secrets"

func (a *app) configCommand() *cobra.Command {
	return group("config", "Show and check a scheduler's configuration", a.configViewCommand(), a.configValidateCommand())
}

// schedulerFlags gives a command the flags of `firn scheduler`.
func (a *app) schedulerFlags(cmd *cobra.Command) {
	cmd.Flags().AddFlagSet(a.schedulerCommand().Flags())
}

func (a *app) configViewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "view [--config FILE]", Short: "Show each setting of a scheduler and where its value comes from, secrets masked",
		Long: `Shows what a scheduler with these flags, these environment variables and this file would run with.
Secrets are masked, and what they refer to (variables, files, commands) is named and not read.`,
		Args: arguments(), Annotations: map[string]string{noSecrets: ""},
	}
	a.schedulerFlags(cmd)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := a.format()
		if err != nil {
			return err
		}
		fs := a.schedulerCommand().Flags()
		settings, err := config.View(cmd.Flags(), fs, a.given, cmd.Flag("config").Value.String(), a.getenv)
		if err != nil {
			return err
		}
		return render.List(a.stdout, f, []string{"key", "value", "origin"}, settings, func(s config.Setting) []string {
			return []string{s.Key, s.Value, s.Origin}
		})
	}
	return cmd
}

func (a *app) configValidateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "validate --config FILE", Short: "Check a configuration file, and that the secrets it refers to can be read",
		Args: arguments(),
	}
	cmd.Flags().String("config", "", "YAML `file` with catalogs and settings")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		path := cmd.Flag("config").Value.String()
		if path == "" {
			return usage(cmd, "--config is missing")
		}
		_, err := fmt.Fprintln(a.stdout, path+" is valid")
		return err
	}
	return cmd
}
