package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/render"
	"github.com/firn-project/firn/internal/wire"
	"github.com/spf13/cobra"
)

func (a *app) errorCommand() *cobra.Command {
	return group("error", "List and explain error codes", a.errorListCommand(), a.errorExplainCommand())
}

type codeJSON struct {
	Code     string `json:"code"`
	Kind     string `json:"kind"`
	ExitCode int    `json:"exit_code"`
	Title    string `json:"title"`
	Cause    string `json:"cause"`
	Hint     string `json:"hint"`
}

func codeObject(c commit.CodeInfo) codeJSON {
	return codeJSON{string(c.Code), string(c.Kind), c.Kind.ExitCode(), c.Title, c.Cause, c.Hint}
}

func (a *app) errorListCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Aliases: []string{"ls"}, Short: "List all error codes", Args: arguments()}
	a.outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		f, err := a.format()
		if err != nil {
			return err
		}
		var codes []codeJSON
		for _, c := range commit.Codes() {
			codes = append(codes, codeObject(c))
		}
		return render.List(a.stdout, f, []string{"code", "kind", "exit", "title"}, codes, func(c codeJSON) []string {
			return []string{c.Code, c.Kind, number(int64(c.ExitCode)), c.Title}
		})
	}
	return cmd
}

func (a *app) errorExplainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain CODE", Short: "Explain an error code", Args: arguments("a code, such as FIRN-2003,"),
		Example: "  firn error explain FIRN-2003",
	}
	a.outputFlag(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		f, err := a.format()
		if err != nil {
			return err
		}
		info, ok := commit.Explain(args[0])
		if !ok {
			return unknownCode(args[0])
		}
		c := codeObject(info)
		if f == render.JSON || f == render.JSONL {
			return render.Object(a.stdout, c)
		}
		p := &printer{w: a.stdout}
		p.field(c.Code, c.Title)
		p.field("kind", fmt.Sprintf("%s, exit code %d", c.Kind, c.ExitCode))
		p.field("cause", c.Cause)
		p.field("hint", c.Hint)
		return p.err
	}
	return cmd
}

func unknownCode(code string) error {
	var known []string
	for _, c := range commit.Codes() {
		known = append(known, string(c.Code))
	}
	e := &commit.Error{Code: commit.CodeCodeNotFound, Op: "explain", Object: code, Cause: fmt.Errorf("no error has the code %q", code)}
	if best, ok := config.Nearest(strings.ToUpper(code), known); ok {
		e.Hint = "Did you mean " + best + "? `firn error list` lists all codes."
	}
	return e
}

type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Protocol int    `json:"protocol_version"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Show the version", Args: arguments()}
	a.outputFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		f, err := a.format()
		if err != nil {
			return err
		}
		v := buildVersion()
		if f == render.JSON || f == render.JSONL {
			return render.Object(a.stdout, v)
		}
		_, err = fmt.Fprintf(a.stdout, "firn %s, protocol %d, %s, %s\n", words(v.Version, v.Revision), v.Protocol, v.Go, v.Platform)
		return err
	}
	return cmd
}

// buildVersion is what the Go tool recorded in the binary.
func buildVersion() versionJSON {
	v := versionJSON{Version: "devel", Protocol: wire.ProtocolVersion, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value[:min(12, len(s.Value))]
		}
	}
	return v
}
