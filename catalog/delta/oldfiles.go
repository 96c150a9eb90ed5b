package delta

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
)

// checkOld makes sure that the files of a unit that took long are there still. An
// engine's VACUUM deletes files that no version has when they are older than the
// table keeps removed ones; from half of that age on each is looked at. The age is
// that of the unit's job, whose id, with its time, ends the prefix of its files.
func (t *Table) checkOld(ctx context.Context, v *View, u commit.Unit) error {
	id := path.Base(u.Prefix)
	made, known := commit.KeyTime(id[strings.IndexByte(id, '-')+1:])
	keep, err := delta.FileRetention(v.snap.definition.Properties)
	if err != nil {
		keep = 0 // nobody knows, so each file is looked at
	}
	if !known || t.now().Sub(made) < keep/2 {
		return nil
	}
	for _, f := range u.Files.All() {
		size, err := t.store.Stat(ctx, f.Path)
		switch {
		case isNotFound(err):
			err = errors.New("it is gone; another engine's VACUUM deletes files that no version has")
		case err != nil:
			return newError(commit.CodeStorage, "look whether a file of an old job is there", f.Path, err)
		case size != f.Size:
			err = fmt.Errorf("it has %d bytes, and %d were written", size, f.Size)
		default:
			continue
		}
		return commit.Misfit(u, f.Path, "the files of a job that took long are there", err.Error())
	}
	return nil
}
