package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// checkSource refuses a source whose parts would become anything but literals and
// types in a statement of the engine's own. The scheduler writes them so; but a
// fragment comes over the wire, and one that lies must not get further than one
// that doesn't.
func checkSource(src plan.Source) error {
	name := strings.Join(src.View, ".")
	for _, option := range slices.Sorted(maps.Keys(src.Options)) {
		if !sql.ReaderTakes(src.Kind, option) && !slices.Contains(ownOptions, option) {
			return refused("the source %s has the reader's argument %q", name, option)
		}
		if err := literalOnly(src.Options[option]); err != nil {
			return refused("the source %s has the argument %s, which %w", name, option, err)
		}
	}
	for _, c := range src.Columns {
		if err := literalOnly(c.Type); err != nil {
			return refused("the source %s has a column %q of a type that %w", name, c.Name, err)
		}
		if err := literalOnly(c.Default); err != nil {
			return refused("the source %s has a column %q with a default that %w", name, c.Name, err)
		}
	}
	return nil
}

// ownOptions are the arguments that statements can't have but plans can.
var ownOptions = []string{"filename", "ignore_errors", "store_rejects", "rejects_limit"}

// callable are the names that may stand before a parenthesis: those that literals
// and types are written with.
var callable = []string{
	"list_value", "struct_pack", "row", "map", "cast", "struct", "decimal", "numeric", "enum", "union", "varchar", "char", "bit",
}

// queries are the words with which DuckDB begins a query, or reaches one.
var queries = []string{
	"select", "from", "values", "table", "pivot", "pivot_wider", "pivot_longer", "unpivot", "describe", "desc", "show", "summarize",
	"lambda", "exists", "case", "array", "columns", "default", "collate",
}

// literalOnly refuses text that could be anything but a literal, or a type, as
// DuckDB writes them: strings, quoted names, numbers, words, brackets. What
// stands before a parenthesis must be callable; there are no operators, comments
// or statements' ends.
func literalOnly(s string) error {
	var open []byte
	// word is the last token, if a parenthesis after it would make a call.
	word := ""
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '\'' || c == '"':
			if c == '\'' && i > 0 && wordByte(s[i-1]) {
				return fmt.Errorf("has a string with a prefix in %q", excerpt(s))
			}
			end := quotedEnd(s, i)
			if end < 0 {
				return fmt.Errorf("has an open quote in %q", excerpt(s))
			}
			word = s[i:end]
			if c == '"' {
				word = strings.Trim(word, `"`)
			}
			i = end
			continue
		case strings.IndexByte(" \t\n,:.+", c) >= 0:
			if strings.IndexByte(",:+", c) >= 0 {
				word = ""
			}
		case c == '=' && i > 0 && s[i-1] == ':', c == '-' && (i == 0 || s[i-1] != '-'):
			word = ""
		case c == '(' || c == '[' || c == '{':
			if c == '(' && word != "" && !slices.Contains(callable, strings.ToLower(word)) {
				return fmt.Errorf("calls %s in %q", excerpt(word), excerpt(s))
			}
			open, word = append(open, c), ""
		case c == ')' || c == ']' || c == '}':
			if len(open) == 0 || open[len(open)-1] != opening[c] {
				return fmt.Errorf("has a stray %q in %q", c, excerpt(s))
			}
			open, word = open[:len(open)-1], "]"
		default:
			end := wordEnd(s, i)
			if end == i {
				return fmt.Errorf("has a %q in %q", s[i], excerpt(s))
			}
			if word = strings.ToLower(s[i:end]); slices.Contains(queries, word) {
				return fmt.Errorf("has the word %s in %q", word, excerpt(s))
			}
			i = end
			continue
		}
		i++
	}
	if len(open) > 0 {
		return fmt.Errorf("has an open bracket in %q", excerpt(s))
	}
	return nil
}

var opening = map[byte]byte{')': '(', ']': '[', '}': '{'}

// quotedEnd is where the quoted text that begins at i ends; -1 if it doesn't.
func quotedEnd(s string, i int) int {
	quote := s[i]
	for j := i + 1; j < len(s); j++ {
		if s[j] != quote {
			continue
		}
		if j+1 < len(s) && s[j+1] == quote {
			j++
			continue
		}
		return j + 1
	}
	return -1
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf
}

// wordEnd is where the word or number that begins at i ends. Letters of all
// scripts are words' parts, but not the many signs that DuckDB takes for blanks.
func wordEnd(s string, i int) int {
	for i < len(s) {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError || r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsMark(r) {
			break
		}
		i += n
	}
	return i
}

// excerpt is text shortened for a message.
func excerpt(s string) string {
	const most = 60
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
