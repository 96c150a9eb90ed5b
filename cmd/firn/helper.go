package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/firn-project/firn/internal/binder"
	"github.com/spf13/cobra"
)

// helperCommand is how the scheduler starts its helpers: this program once more.
func helperCommand() ([]string, error) {
	if runtime.GOOS == "linux" {
		// Also when the file was replaced since, as by an upgrade.
		return []string{"/proc/self/exe", binder.Argument}, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the program for the helper: %w", err)
	}
	return []string{self, binder.Argument}, nil
}

// helper is the command that a helper is. It isn't for people.
func (a *app) helper() *cobra.Command {
	return &cobra.Command{
		Use: binder.Argument, Hidden: true, Args: arguments(),
		Run: func(*cobra.Command, []string) { os.Exit(binder.Main(a.stdin, a.stdout, a.stderr)) },
	}
}
