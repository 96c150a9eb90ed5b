package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
)

// printer writes fields for people and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

// field writes a name and a value; empty values are left out.
func (p *printer) field(name, value string) {
	if value != "" && p.err == nil {
		_, p.err = fmt.Fprintf(p.w, "%-18s %s\n", name, value)
	}
}

// block writes text that has its own lines.
func (p *printer) block(name, text string) {
	if text = strings.TrimSpace(text); text != "" && p.err == nil {
		_, p.err = fmt.Fprintf(p.w, "%s\n    %s\n", name, strings.ReplaceAll(text, "\n", "\n    "))
	}
}

// words joins the parts that aren't empty.
func words(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

func kindOf(err error) commit.Kind { return commit.KindOf(asError(err)) }
