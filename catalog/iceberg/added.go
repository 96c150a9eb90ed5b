package iceberg

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/firn-project/firn/commit"
)

// AddedFiles calls each with the path of every file that one snapshot added: what
// the manifests list that were added with it, whatever has become of the files
// since. m is a read of this driver that shows the snapshot, by its id as in
// commit.Landed. Manifests are read one after the other and entry by entry.
func (t *Table) AddedFiles(ctx context.Context, m commit.Metadata, snapshotID string, each func(path string) error) error {
	meta, ok := m.(*Metadata)
	if !ok {
		return errors.New("the metadata is not of this driver")
	}
	id, err := strconv.ParseInt(snapshotID, 10, 64)
	if err != nil {
		return fmt.Errorf("snapshot id %q isn't a number", snapshotID)
	}
	s := meta.meta.SnapshotByID(id)
	if s == nil {
		return meta.noSnapshot(snapshotID)
	}
	manifests, err := readManifestList(ctx, t.store, s)
	if err != nil {
		return newError(commit.CodeMetadataInvalid, "list files of", t.name.String(), err)
	}
	for _, mf := range manifests {
		// What was merged with this commit holds nothing new. Version 1 lists may
		// lack the count, -1 then.
		if mf.SnapshotID() != id || mf.AddedDataFiles() == 0 {
			continue
		}
		for e, err := range mf.Entries(fileIO{ctx, t.store}, true) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return newError(commit.CodeMetadataInvalid, "list files of", t.name.String(), fmt.Errorf("manifest %s: %w", mf.FilePath(), err))
			}
			if err := each(e.DataFile().FilePath()); err != nil {
				return err
			}
		}
	}
	return nil
}
