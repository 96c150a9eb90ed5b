package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/firn-project/firn/commit"
)

// quoteName quotes each part of a dotted name as an identifier. Parts that hold
// dots are given in double quotes or backticks, as in SQL.
func quoteName(name string) (string, error) {
	var parts []string
	rest := name
	for {
		part, tail, err := namePart(rest)
		if err != nil {
			return "", &commit.Error{
				Code: commit.CodeBadCall, Op: "read name", Object: name, Cause: err,
				Hint: `Write it as catalog.namespace.table, with parts in double quotes where they hold dots.`,
			}
		}
		parts = append(parts, quoteIdent(part))
		if tail == "" {
			return strings.Join(parts, "."), nil
		}
		if tail[0] != '.' {
			return "", &commit.Error{
				Code: commit.CodeBadCall, Op: "read name", Object: name,
				Cause: fmt.Errorf("%q follows a quoted part; want a dot", tail),
			}
		}
		rest = tail[1:]
	}
}

// namePart cuts the first part off a dotted name. The tail begins with what
// follows it.
func namePart(s string) (part, tail string, err error) {
	if s == "" {
		return "", "", errors.New("a part is empty")
	}
	q := s[0]
	if q != '"' && q != '`' {
		part, _, _ = strings.Cut(s, ".")
		if part == "" {
			return "", "", errors.New("a part is empty")
		}
		return part, s[len(part):], nil
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] != q:
			b.WriteByte(s[i])
		case i+1 < len(s) && s[i+1] == q:
			b.WriteByte(q)
			i++
		case b.Len() == 0:
			return "", "", errors.New("a part is empty")
		default:
			return b.String(), s[i+1:], nil
		}
	}
	return "", "", errors.New("a quote isn't closed")
}

func quoteIdent(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

func quoteText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
