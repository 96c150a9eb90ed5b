package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/render"
	"github.com/spf13/cobra"
)

// usage is wrong usage of a command; nil when no command is at fault alone.
func usage(cmd *cobra.Command, format string, args ...any) error {
	e := &commit.Error{Code: commit.CodeUsage, Op: "run", Object: "firn", Cause: fmt.Errorf(format, args...)}
	if cmd != nil {
		e.Object = cmd.CommandPath()
		e.Hint = "usage: " + cmd.UseLine()
	}
	return e
}

// fail shows an error on stderr and gives the exit code for it.
func (a *app) fail(err error) int {
	e := asError(err)
	kind := commit.KindOf(e)
	if a.output == string(render.JSON) || a.output == string(render.JSONL) {
		_ = render.Object(a.stderr, map[string]any{"error": errorObject(e, kind)}) // nowhere to tell
	} else {
		_, _ = fmt.Fprint(a.stderr, errorText(e))
	}
	return kind.ExitCode()
}

// asError is the *commit.Error in err, or one made for it.
func asError(err error) *commit.Error {
	if e, ok := errors.AsType[*commit.Error](err); ok {
		return e
	}
	if errors.Is(err, errInterrupted) || errors.Is(err, context.Canceled) {
		return &commit.Error{Code: commit.CodeInterrupted, Op: "run", Object: "firn", Cause: errInterrupted}
	}
	if strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "required flag") {
		return &commit.Error{Code: commit.CodeUsage, Op: "run", Object: "firn", Cause: err}
	}
	return &commit.Error{Op: "run", Object: "firn", Cause: err}
}

// completed fills in what the registry knows and the error leaves out.
func completed(e *commit.Error) (title, cause, hint string) {
	info, known := commit.Explain(string(e.Code))
	if !known {
		info = commit.CodeInfo{Title: "failed"}
	}
	cause, hint = info.Cause, e.Hint
	if e.Cause != nil {
		cause = e.Cause.Error()
	}
	if hint == "" {
		hint = info.Hint
	}
	return info.Title, cause, hint
}

// errorText is an error in five parts: what failed and on what, why, what was
// tried, what to do, where to read.
func errorText(e *commit.Error) string {
	title, cause, hint := completed(e)
	var b strings.Builder
	if e.Code == commit.CodeUsage {
		fmt.Fprintf(&b, "error: %s: %s  [%s]\n  %s\n", e.Object, cause, e.Code, hint)
		return b.String()
	}
	fmt.Fprintf(&b, "error: %s", strings.TrimSpace(e.Op+" "+e.Object))
	fmt.Fprintf(&b, ": %s", title)
	if e.Code != "" {
		fmt.Fprintf(&b, "  [%s]", e.Code)
	}
	b.WriteByte('\n')
	part := func(name, text string) {
		if text != "" {
			fmt.Fprintf(&b, "  %-7s%s\n", name+":", strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n         "))
		}
	}
	part("cause", cause)
	part("tried", e.Tried)
	part("hint", hint)
	if e.Code != "" {
		part("see", "firn error explain "+string(e.Code))
	}
	return b.String()
}

type errorJSON struct {
	Code     string `json:"code,omitempty"`
	Kind     string `json:"kind"`
	Title    string `json:"title"`
	Op       string `json:"op"`
	Object   string `json:"object,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Cause    string `json:"cause,omitempty"`
	Tried    string `json:"tried,omitempty"`
	Hint     string `json:"hint,omitempty"`
	ExitCode int    `json:"exit_code"`
}

func errorObject(e *commit.Error, kind commit.Kind) errorJSON {
	title, cause, hint := completed(e)
	return errorJSON{
		Code: string(e.Code), Kind: string(kind), Title: title, Op: e.Op, Object: e.Object, Reason: string(e.Reason),
		Cause: cause, Tried: e.Tried, Hint: hint, ExitCode: kind.ExitCode(),
	}
}
