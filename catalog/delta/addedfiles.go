package delta

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
)

// AddedFiles calls each with the URI of every file that a version added, named by
// its snapshot id. The commit is read again: it must still be there, and be the
// one meant. A version that only a txn knows isn't known well enough.
func (t *Table) AddedFiles(ctx context.Context, m commit.Metadata, id string, each func(path string) error) error {
	v, ok := m.(*View)
	if !ok {
		return errors.New("the metadata is not of this driver")
	}
	none := func(why string, args ...any) error {
		return newError(commit.CodeSnapshotNotFound, "list the files of version "+id+" of", t.name.String(), fmt.Errorf(why, args...))
	}
	number, _, _ := strings.Cut(id, "-")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil || version < 0 || version > v.snap.Version() {
		return none("the table has no such version")
	}
	meant := false
	var ours error // of each, or about the version
	_, err = v.snap.log.readCommit(ctx, version, true, func(a Action) error {
		switch {
		case a.CommitInfo != nil && !meant:
			if meant = snapshotID(version, a.CommitInfo.TxnID) == id; !meant {
				ours = none("version %d is another commit", version)
			}
		case a.Add != nil && !meant:
			ours = none("version %d doesn't begin with its commitInfo", version)
		case a.Add != nil:
			var uri string
			if uri, ours = delta.ResolvePath(v.Location(), a.Add.Path); ours == nil {
				ours = each(uri)
			}
		}
		return ours
	})
	switch {
	case ours != nil:
		return ours
	case isNotFound(err):
		return none("its commit is gone")
	case err == nil && !meant:
		return none("version %d says nothing of itself", version)
	}
	return err
}
