package deltatables

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// PathCatalog is the catalog part of the names of tables that are named by their
// paths: such a name has no namespace.
const PathCatalog = "delta"

// ByPath says whether a table is named by its path.
func ByPath(name commit.TableName) bool {
	return name.Catalog == PathCatalog && len(name.Namespace) == 0
}

// Place is a directory, or a prefix in a bucket, below which statements may name
// Delta tables by path.
type Place struct {
	// Location is an absolute path, or a URI such as s3://bucket/prefix.
	Location string
	Access
}

// Access is how the files of tables are reached.
type Access struct {
	// Properties are those of the place or of the catalog; they hold secrets.
	Properties map[string]string
	// Objects is what they say of the object store.
	Objects objstore.Config
}

// Locate gives the location of a path as people write it: a URI without a slash at
// the end. It is the same for all spellings of one place.
func Locate(text string) (string, error) {
	scheme, rest, remote := strings.Cut(text, "://")
	if !remote || strings.EqualFold(scheme, "file") {
		p := strings.TrimPrefix(text, "file://")
		if !filepath.IsAbs(p) {
			return "", fmt.Errorf("%q isn't an absolute path", text)
		}
		return inside("file://", filepath.Clean(p))
	}
	scheme = strings.ToLower(scheme)
	if scheme == "s3a" || scheme == "s3n" {
		scheme = "s3"
	}
	if scheme != "s3" {
		return "", fmt.Errorf("there is no store for %s://", scheme)
	}
	bucket, key, _ := strings.Cut(rest, "/")
	if bucket == "" || strings.Trim(key, "/") == "" {
		return "", fmt.Errorf("%q isn't a bucket with a prefix in it", text)
	}
	if key = strings.Trim(key, "/"); path.Clean("/"+key) != "/"+key {
		return "", fmt.Errorf("%q has a part that steps up, stands still or is empty", text)
	}
	return inside(scheme+"://", bucket+"/"+key)
}

// inside refuses places in a log, and those that can't be named in one.
func inside(scheme, p string) (string, error) {
	for part := range strings.SplitSeq(p, "/") {
		if part == "_delta_log" {
			return "", fmt.Errorf("%s%s lies in the log of a table", scheme, p)
		}
	}
	if strings.ContainsFunc(p, func(r rune) bool { return r < 0x20 || r == 0x7f }) || strings.ContainsAny(p, `*?#%\`) {
		return "", errors.New(`a table's path can't hold * ? # % \ or control characters`)
	}
	if p == "/" {
		return "", errors.New("the root directory can't be a table")
	}
	return scheme + p, nil
}

// below says whether a location is at or below another.
func below(location, of string) bool {
	of = strings.TrimRight(of, "/")
	return location == of || strings.HasPrefix(location, of+"/")
}

// placeOf finds the place with the longest location above a table's. A symbolic
// link doesn't lead a local table out of its place.
func (t *Tables) placeOf(location string) (Place, bool) {
	p, ok := t.longest(location)
	if local, is := strings.CutPrefix(location, "file://"); ok && is {
		of, err := filepath.EvalSymlinks(strings.TrimPrefix(p.Location+"/", "file://"))
		if err != nil {
			of = strings.TrimPrefix(p.Location, "file://")
		}
		ok = below(resolved(local), of)
	}
	return p, ok
}

// resolved is a path with the symbolic links resolved of what is there of it.
func resolved(p string) string {
	if r, err := filepath.EvalSymlinks(p); err == nil || p == "/" {
		return r
	}
	return filepath.Join(resolved(filepath.Dir(p)), filepath.Base(p))
}

func (t *Tables) longest(location string) (Place, bool) {
	var best Place
	found := false
	for _, p := range t.config.Places {
		if below(location, p.Location) && (!found || len(p.Location) > len(best.Location)) {
			best, found = p, true
		}
	}
	return best, found
}
