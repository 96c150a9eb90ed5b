package objstore

import (
	"errors"
	"regexp"
	"strings"
)

// LocalPattern gives the path of a location that a statement reads from, and whether
// it is a local one. Percent signs are taken as they are.
func LocalPattern(location string) (string, bool) {
	if p, ok := strings.CutPrefix(location, "file:"); ok {
		for strings.HasPrefix(p, "//") {
			p = p[1:]
		}
		return p, true
	}
	return location, !strings.Contains(location, "://")
}

// Glob translates a pattern of names as DuckDB reads it: ** crosses directories, *
// and ? don't.
func Glob(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString("^")
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; c {
		case '*':
			if strings.HasPrefix(pattern[i:], "**/") {
				b.WriteString("(?:.*/)?")
				i += 2
			} else if strings.HasPrefix(pattern[i:], "**") {
				b.WriteString(".*")
				i++
			} else {
				b.WriteString("[^/]*")
			}
		case '?':
			b.WriteString("[^/]")
		case '[':
			end := strings.IndexByte(pattern[i+1:], ']')
			if end < 1 {
				return nil, errors.New("the pattern has a [ without its ]")
			}
			set := pattern[i+1 : i+1+end]
			if set[0] == '!' {
				set = "^" + set[1:]
			}
			b.WriteString("[" + strings.ReplaceAll(set, `\`, `\\`) + "]")
			i += end + 1
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	return regexp.Compile(b.String() + "$")
}
