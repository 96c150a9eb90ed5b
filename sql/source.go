package sql

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/firn-project/firn/commit"
)

// source is a script, kept for the places that errors name.
type source struct{ text string }

// place gives line and column of a byte offset, both from 1, the column in
// characters, and the line's text.
func (s *source) place(offset int) (line, column int, text string) {
	offset = max(0, min(offset, len(s.text)))
	before := s.text[:offset]
	line = strings.Count(before, "\n") + 1
	start := strings.LastIndexByte(before, '\n') + 1
	column = utf8.RuneCountInString(s.text[start:offset]) + 1
	text = s.text[start:]
	if end := strings.IndexByte(text, '\n'); end >= 0 {
		text = text[:end]
	}
	return line, column, strings.TrimSuffix(text, "\r")
}

// snippetWidth is how many characters of a long line are shown around a place.
const snippetWidth = 100

// snippet is the line with a caret under the place, on two lines.
func snippet(text string, column int) string {
	runes := []rune(strings.ReplaceAll(text, "\t", " "))
	at := min(column-1, len(runes))
	from, lead := 0, ""
	if at > snippetWidth*3/4 {
		from, lead = at-snippetWidth/2, "…"
	}
	to, tail := len(runes), ""
	if to-from > snippetWidth {
		to, tail = from+snippetWidth, "…"
	}
	pad := strings.Repeat(" ", at-from+utf8.RuneCountInString(lead))
	return "  " + lead + string(runes[from:to]) + tail + "\n  " + pad + "^"
}

// errorAt is an error about a place in the script. The hint may be empty; the
// line with a caret follows it.
func (s *source) errorAt(code commit.Code, op string, offset int, cause, hint string) *commit.Error {
	line, column, text := s.place(offset)
	if hint != "" {
		hint += "\n"
	}
	return &commit.Error{
		Code:   code,
		Op:     op,
		Object: fmt.Sprintf("at line %d, column %d", line, column),
		Cause:  errors.New(cause),
		Hint:   hint + snippet(text, column),
	}
}

// syntax is a syntax error at a place.
func (s *source) syntax(offset int, cause, hint string) *commit.Error {
	return s.errorAt(commit.CodeSQLSyntax, "parse statement", offset, cause, hint)
}

// quoteIdent writes an identifier with double quotes, as DuckDB reads it.
func quoteIdent(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// quoteString writes a string literal.
func quoteString(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// quoteIfNeeded quotes an identifier that isn't a plain lower-case word.
func quoteIfNeeded(s string) string {
	for i := range len(s) {
		c := s[i]
		if c == '_' || c >= 'a' && c <= 'z' || i > 0 && c >= '0' && c <= '9' {
			continue
		}
		return quoteIdent(s)
	}
	if s == "" || reserved[s] {
		return quoteIdent(s)
	}
	return s
}

// reserved words can't be identifiers without quotes, here or in DuckDB.
var reserved = setOf("all analyse analyze and any array as asc asymmetric both case cast check collate column " +
	"constraint create default deferrable desc describe distinct do else end except false fetch for foreign from " +
	"group having in initially intersect into lambda lateral leading limit not null offset on only or order pivot " +
	"pivot_longer pivot_wider placing primary qualify references returning select show some summarize symmetric " +
	"table then to trailing true union unique unpivot using variadic when where window with")

// setOf makes a set of the words of a text.
func setOf(words string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		set[w] = true
	}
	return set
}
