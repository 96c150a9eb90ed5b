package catalog

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
)

// newLocation picks the directory of a new table:
// <warehouse>/<namespace>/<table>-<8 hex digits>. The digits are there always.
// A dropped table's files stay, and two tables in one directory would each take
// the other's files for orphans; looking whether the directory is empty would
// leave a race between two creations, and a listing isn't cheap everywhere.
func newLocation(warehouse, namespaceLocation string, name commit.TableName) (string, error) {
	root := namespaceLocation
	if root == "" {
		if warehouse == "" {
			return "", errors.New("the catalog has no warehouse, and the namespace no location")
		}
		root = warehouse
		for _, p := range name.Namespace {
			root = strings.TrimRight(root, "/") + "/" + pathPart(p)
		}
	}
	root, err := absolute(root)
	if err != nil {
		return "", err
	}
	return root + "/" + pathPart(name.Name) + "-" + uuid.NewString()[:8], nil
}

// absolute turns a path into a file URI and leaves a URI as it is, without a
// slash at the end.
func absolute(location string) (string, error) {
	if i := strings.Index(location, "://"); i > 0 {
		return strings.TrimRight(location, "/"), nil
	}
	p, err := filepath.Abs(strings.TrimPrefix(location, "file:"))
	if err != nil {
		return "", err
	}
	return "file://" + strings.TrimRight(p, "/"), nil
}

// pathPart makes one part of a path of a name: nothing in it may end the part,
// climb, or mean something in a URI.
func pathPart(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r < 0x20 || r == 0x7f || strings.ContainsRune(`/\%?#"<>|*: `, r) || (i == 0 && (r == '.' || r == '_')) {
			for _, c := range []byte(string(r)) {
				fmt.Fprintf(&b, "%%%02X", c)
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
