package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// checkNested refuses a table's file whose nested fields DuckDB would mix up. It
// finds columns by field id, but the fields inside a struct by name: a nested
// field renamed since the file was written would be read as NULL. When a struct
// has names that only the file knows and names that only the table knows, that may
// be such a field.
func (s *session) checkNested(ctx context.Context, src plan.Source, f input) error {
	nested := func(c plan.Column) bool { return strings.Contains(c.Type, "STRUCT(") }
	if f.NoFieldIDs || !slices.ContainsFunc(src.Columns, nested) {
		return nil
	}
	has, err := s.fieldTypes(ctx, f)
	if err != nil {
		return err
	}
	for _, c := range src.Columns {
		if !nested(c) || has[c.FieldID] == c.Type {
			continue
		}
		if err := driftedNested(f, c, has[c.FieldID]); err != nil {
			return err
		}
	}
	return nil
}

// driftedNested refuses a column whose type in the file has a nested field that
// may have been renamed.
func driftedNested(f input, c plan.Column, has string) error {
	old, now := renamed(has, c.Type)
	if old == "" {
		return nil
	}
	return &commit.Error{
		Code: commit.CodeSchemaDrift, Op: "read file", Object: f.Path,
		Cause: fmt.Errorf("inside column %q the file has the field %q and the table has %q: %w", c.Name, old, now, errNested),
		Hint:  "Rewrite the table's old files with a reader that follows nested field ids, or leave the column out.",
	}
}

var errNested = errors.New("nested fields that were renamed can't be told from others")

// renamed compares two types and gives a field that only the first has and one
// that only the second has, of the same struct; empty if there's no such pair.
func renamed(file, table string) (old, now string) {
	a, b := fieldsOf(file), fieldsOf(table)
	if a == nil || b == nil {
		return "", ""
	}
	for _, f := range a {
		i := slices.IndexFunc(b, func(o field) bool { return strings.EqualFold(o.name, f.name) })
		if i < 0 {
			old = f.name
		} else if o, n := renamed(f.typ, b[i].typ); o != "" {
			return o, n
		}
	}
	for _, f := range b {
		if !slices.ContainsFunc(a, func(o field) bool { return strings.EqualFold(o.name, f.name) }) {
			now = f.name
		}
	}
	if old == "" || now == "" {
		return "", ""
	}
	return old, now
}

// field is a part of a nested type: a struct's field, or a map's key or value.
type field struct{ name, typ string }

// fieldsOf reads the text of a struct's or a map's type, or of lists of them;
// nil for others.
func fieldsOf(t string) []field {
	for strings.HasSuffix(t, "]") {
		t = t[:strings.LastIndexByte(t, '[')]
	}
	isMap := strings.HasPrefix(t, "MAP(")
	if !isMap && !strings.HasPrefix(t, "STRUCT(") || !strings.HasSuffix(t, ")") {
		return nil
	}
	parts := splitTop(t[strings.IndexByte(t, '(')+1 : len(t)-1])
	fields := make([]field, len(parts))
	for i, p := range parts {
		if isMap {
			fields[i] = field{name: strconv.Itoa(i), typ: p}
			continue
		}
		fields[i].name, fields[i].typ = cutName(p)
	}
	return fields
}

// splitTop splits at the commas that stand in no bracket and no quotes.
func splitTop(s string) []string {
	var parts []string
	depth, start := 0, 0
	var quote byte
	for i := range len(s) {
		switch c := s[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, strings.TrimSpace(s[start:i]))
			start = i + 1
		}
	}
	return append(parts, strings.TrimSpace(s[start:]))
}

// cutName takes the field's name, in quotes or not, off its type.
func cutName(s string) (name, typ string) {
	if !strings.HasPrefix(s, `"`) {
		name, typ, _ = strings.Cut(s, " ")
		return name, typ
	}
	for i := 1; i < len(s); i++ {
		if s[i] != '"' {
			continue
		}
		if i+1 < len(s) && s[i+1] == '"' {
			i++
			continue
		}
		return strings.ReplaceAll(s[1:i], `""`, `"`), strings.TrimSpace(s[i+1:])
	}
	return s, ""
}
