package delta

import "unicode/utf8"

const (
	// defaultPrefix is how many letters of text a bound keeps.
	defaultPrefix = 32
	// maxUpper is how many letters an upper bound may have before it is given up.
	maxUpper = 64
	// lastASCII sorts after all other ASCII letters.
	lastASCII = '\x7f'
)

// cutLower keeps the first letters of a lower bound. What is cut only made it
// greater. ok is false when the bound isn't UTF-8.
func cutLower(s string, prefix int) (out string, ok bool) {
	if !utf8.ValidString(s) {
		return "", false
	}
	if prefix <= 0 {
		prefix = defaultPrefix
	}
	n := 0
	for i := range s {
		if n++; n > prefix {
			return s[:i], true
		}
	}
	return s, true
}

// cutUpper keeps the first letters of an upper bound and puts a letter behind
// them that sorts after the first that was cut. ok is false when the bound isn't
// UTF-8, or when only letters that nothing sorts after follow.
func cutUpper(s string, prefix int) (out string, ok bool) {
	if !utf8.ValidString(s) {
		return "", false
	}
	if prefix <= 0 {
		prefix = defaultPrefix
	}
	n := 0
	for i, r := range s {
		switch n++; {
		case n <= prefix || r == utf8.MaxRune && n <= maxUpper:
		case n > maxUpper && r == utf8.MaxRune:
			return "", false
		case r < lastASCII:
			return s[:i] + string(lastASCII), true
		default:
			return s[:i] + string(utf8.MaxRune), true
		}
	}
	return s, true
}
