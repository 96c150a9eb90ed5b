package delta

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// A data file's name goes through two layers. Its directories are partition
// values, escaped as Hive escapes them. The whole relative path is then encoded
// as a URI, and that is what the log has. A store's key is the decoded path:
//
//	value          a/b
//	directory      p=a%2Fb           (the key)
//	path in log    p=a%252Fb/…
//	partitionValues "a/b"            (neither layer)

// hiveNull is the directory of the null partition. It is never a value.
const hiveNull = "__HIVE_DEFAULT_PARTITION__"

// maxPathPart is the longest name of a partition's directory, in bytes. File
// systems take 255.
const maxPathPart = 200

// PartitionDir gives the directories of a partition: column=value for each
// column, joined by slashes. nil and "" are the null partition. A name longer
// than 200 bytes is cut and ends in a hash of the whole: a path is for people,
// and readers take values from the log.
func PartitionDir(columns []string, values map[string]*string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		text := hiveNull
		if v := values[c]; v != nil && *v != "" {
			text = dirValue(*v)
		}
		parts[i] = shortened(escapeHive(c) + "=" + text)
	}
	return strings.Join(parts, "/")
}

// dirValue is a value in a directory's name. One that would be steps in a path, if
// something decoded the name once too often, keeps its letters and a hash of it.
func dirValue(v string) string {
	if !strings.Contains(v, ".") || !strings.ContainsAny(v, `/\%`) {
		return escapeHive(v)
	}
	sum := sha256.Sum256([]byte(v))
	letters := strings.Map(func(r rune) rune {
		if r < 0x20 || strings.ContainsRune("./\\%", r) {
			return '_'
		}
		return r
	}, v)
	return escapeHive(letters) + "-" + hex.EncodeToString(sum[:8])
}

func shortened(part string) string {
	if len(part) <= maxPathPart {
		return part
	}
	sum := sha256.Sum256([]byte(part))
	cut := part[:maxPathPart-17]
	if i := strings.LastIndexByte(cut, '%'); i > len(cut)-3 {
		cut = cut[:i] // not in the middle of an escape
	}
	return strings.ToValidUTF8(cut, "") + "-" + hex.EncodeToString(sum[:8])
}

// escapeHive escapes what Hive and Spark escape in a directory's name.
func escapeHive(s string) string {
	return percent(s, func(c byte) bool { return c < 0x20 || c == 0x7f || strings.IndexByte("\"#%'*/:=?\\{[]^", c) >= 0 })
}

// EncodePath is the path of a file, relative to the table's root, as an add
// action has it. Letters that aren't ASCII are escaped too, as RFC 2396 wants.
func EncodePath(relative string) string {
	return percent(relative, func(c byte) bool { return c <= 0x20 || c >= 0x7f || strings.IndexByte("\"#%<>?[\\]^`{|}", c) >= 0 })
}

func percent(s string, escaped func(byte) bool) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; escaped(c) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// DecodePath undoes EncodePath. A percent sign that doesn't begin an escape stays
// as it is: some writers don't encode.
func DecodePath(path string) string {
	if !strings.Contains(path, "%") {
		return path
	}
	b := make([]byte, 0, len(path))
	for i := 0; i < len(path); i++ {
		if path[i] == '%' && i+2 < len(path) {
			if raw, err := hex.DecodeString(path[i+1 : i+3]); err == nil {
				b = append(b, raw[0])
				i += 2
				continue
			}
		}
		b = append(b, path[i])
	}
	return string(b)
}

// CanonicalPath is a form of an action's path in which two paths of one file are
// equal: decoded, and with one spelling of local absolute paths.
func CanonicalPath(path string) string {
	p := DecodePath(path)
	if rest, ok := strings.CutPrefix(p, "file:"); ok && strings.HasPrefix(rest, "/") {
		return "file:/" + strings.TrimLeft(rest, "/")
	}
	if strings.HasPrefix(p, "/") {
		return "file:/" + strings.TrimLeft(p, "/")
	}
	return p
}

// ResolvePath is the absolute URI of the file that an action's path names: the
// path itself when it is absolute, else below the table's root. The root ends
// without a slash. A relative path that leaves the root is an error.
func ResolvePath(root, path string) (string, error) {
	p := DecodePath(path)
	switch {
	case p == "":
		return "", errors.New("an empty path")
	case strings.ContainsRune(p, 0):
		return "", fmt.Errorf("path %.200q holds a NUL byte", path)
	case strings.HasPrefix(p, "file:/"):
		return "file:///" + strings.TrimLeft(p[len("file:"):], "/"), nil
	case hasScheme(p):
		return p, nil
	case strings.HasPrefix(p, "/"):
		return absoluteOn(root, p), nil
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", fmt.Errorf("path %.200q leaves the table's directory", path)
		}
	}
	return root + "/" + p, nil
}

// hasScheme says whether a path begins with a URI's scheme and "://".
func hasScheme(p string) bool {
	s, _, ok := strings.Cut(p, "://")
	if !ok || s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || strings.IndexByte("0123456789+-.", c) < 0) {
			return false
		}
	}
	return true
}

// absoluteOn is an absolute path on the store of the table's root.
func absoluteOn(root, path string) string {
	scheme, rest, ok := strings.Cut(root, "://")
	if !ok {
		return path
	}
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host + path
}
