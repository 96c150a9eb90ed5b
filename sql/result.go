package sql

import (
	"fmt"
	"slices"
	"strings"

	"github.com/firn-project/firn/plan"
)

// result is the text and the columns of a SELECT whose rows go to a client. Columns
// of types that Arrow can't hold become text: DuckDB would hand them over as
// something else without a word, UHUGEINT with its highest bit for the sign, TIME
// WITH TIME ZONE without the zone, BIT and BIGNUM as their inner bytes.
func (b *bound) result() (string, []plan.Column) {
	columns := slices.Clone(b.probe.Columns)
	var list, names []string
	changed := false
	for i := range columns {
		c := &columns[i]
		name, value := fmt.Sprintf("c%d", i+1), fmt.Sprintf("q.c%d", i+1)
		if typ := arrowType(c.Type); typ != c.Type {
			c.Type, changed = typ, true
			value = fmt.Sprintf("CAST(%s AS %s)", value, typ)
		}
		names = append(names, name)
		list = append(list, value+" AS "+QuoteIdent(c.Name))
	}
	if !changed {
		return b.sql, columns
	}
	return "SELECT " + strings.Join(list, ", ") + " FROM (" + b.sql + ") AS q(" + strings.Join(names, ", ") + ")", columns
}

// arrowType is a DuckDB type's text with VARCHAR for all in it that Arrow can't
// hold. Names of fields stay: a type is followed by nothing, a comma, a bracket or
// a parenthesis, a name by a space.
func arrowType(t string) string {
	var s strings.Builder
	for i := 0; i < len(t); {
		n := 1
		switch c := t[i]; {
		case c == '"' || c == '\'':
			if end := strings.IndexByte(t[i+1:], c); end >= 0 {
				n = end + 2 // a doubled quote begins the next part
			}
		case isTypeWord(c):
			if n = homeless(t[i:]); n > 0 {
				s.WriteString("VARCHAR")
				i += n
				continue
			}
			for n = 1; i+n < len(t) && isTypeWord(t[i+n]); n++ {
			}
		}
		s.WriteString(t[i : i+n])
		i += n
	}
	return s.String()
}

// homeless is how long the type is that t begins with, if Arrow can't hold it; 0
// otherwise.
func homeless(t string) int {
	for _, typ := range []string{"UHUGEINT", "BIT", "BIGNUM", "VARIANT", "TIME WITH TIME ZONE"} {
		rest, ok := strings.CutPrefix(t, typ)
		if ok && (rest == "" || strings.ContainsRune(",)[", rune(rest[0]))) {
			return len(typ)
		}
	}
	if !strings.HasPrefix(t, "UNION(") {
		return 0
	}
	depth, quote := 0, byte(0)
	for i := range len(t) {
		switch c := t[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '(':
			depth++
		case c == ')':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

func isTypeWord(c byte) bool {
	return c == '_' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 0x80
}
