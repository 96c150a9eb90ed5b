package lazyfile

import "slices"

// span is a stretch of bytes, without its end.
type span struct{ start, end int64 }

func (s span) overlaps(o span) bool { return s.start < o.end && o.start < s.end }

// spans are stretches in order that neither overlap nor touch.
type spans []span

// add puts a stretch in.
func (s *spans) add(n span) {
	if n.start >= n.end {
		return
	}
	// Those that it overlaps or touches become one with it.
	i, _ := slices.BinarySearchFunc(*s, n.start, func(o span, at int64) int {
		if o.end < at {
			return -1
		}
		return 1
	})
	j := i
	for ; j < len(*s) && (*s)[j].start <= n.end; j++ {
		n.start, n.end = min(n.start, (*s)[j].start), max(n.end, (*s)[j].end)
	}
	*s = slices.Replace(*s, i, j, n)
}

// missing gives what of a stretch isn't there.
func (s spans) missing(want span) []span {
	var out []span
	i, _ := slices.BinarySearchFunc(s, want.start, func(o span, at int64) int {
		if o.end <= at {
			return -1
		}
		return 1
	})
	for ; i < len(s) && s[i].start < want.end; i++ {
		if want.start < s[i].start {
			out = append(out, span{want.start, s[i].start})
		}
		want.start = max(want.start, s[i].end)
	}
	if want.start < want.end {
		out = append(out, want)
	}
	return out
}
