package commit

import (
	"maps"
	"slices"
	"strings"
)

// CodeInfo is what the registry knows about a code.
type CodeInfo struct {
	Code  Code
	Kind  Kind
	Title string
	// Cause says what leads to the error, Hint what to do about it.
	Cause, Hint string
}

// Explain looks a code up, in any case, with or without the prefix "FIRN-".
func Explain(code string) (CodeInfo, bool) {
	c := strings.ToUpper(strings.TrimSpace(code))
	if !strings.HasPrefix(c, "FIRN-") {
		c = "FIRN-" + c
	}
	info, ok := codeInfos[Code(c)]
	return info, ok
}

// Codes lists every code, in order.
func Codes() []CodeInfo {
	return slices.SortedFunc(maps.Values(codeInfos), func(a, b CodeInfo) int {
		return strings.Compare(string(a.Code), string(b.Code))
	})
}

// KindOf returns the kind of the first *Error in err's chain, or KindFailed.
func KindOf(err error) Kind {
	if info, ok := codeInfos[CodeOf(err)]; ok {
		return info.Kind
	}
	return KindFailed
}
