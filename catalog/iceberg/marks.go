package iceberg

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

var _ commit.Marked = (*Table)(nil)

// marks makes the ids that files are named by. With a mark, an id is a UUIDv7
// whose random half is the mark: it is unique to the process, and the time and the
// counter in the other half are to the request.
type marks struct {
	mark  string
	begin func(ctx context.Context, tableUUID, dir string) error
}

// id makes the id of files that are about to be written for the table.
func (k *marks) id(ctx context.Context, m *Metadata) (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil || k.mark == "" {
		return id, err
	}
	if id, err = uuid.Parse(id.String()[:19] + k.mark); err != nil {
		return id, fmt.Errorf("mark %q: %w", k.mark, err)
	}
	return id, k.begin(ctx, m.UUID(), metadataDir(m.meta))
}

// Mark implements commit.Marked.
func (t *Table) Mark(mark string, begin func(ctx context.Context, tableUUID, dir string) error) {
	t.marks = marks{mark, begin}
}

// MarkedFiles implements commit.Marked. Each name of a file that Build or the
// merger writes ends in an id and what follows it, and that of the temporary file
// that it is before has it too.
func (t *Table) MarkedFiles(ctx context.Context, dir, mark string, each func(commit.MarkedFile) error) error {
	prefix := strings.TrimRight(dir, "/") + "/"
	if err := markedIn(t.store.List(ctx, prefix), dir, mark, each); err != nil {
		return err
	}
	return markedIn(t.store.ListUnfinished(ctx, prefix), dir, mark, each)
}

func markedIn(list iter.Seq2[objstore.Info, error], dir, mark string, each func(commit.MarkedFile) error) error {
	const before = len("00000000-0000-7000-")
	for info, err := range list {
		if err != nil {
			return newError(commit.CodeStorage, "list", dir, err)
		}
		name := path.Base(info.URI)
		at := strings.LastIndex(name, "-"+mark) + 1
		if at < before {
			continue
		}
		id, err := uuid.Parse(name[at-before : at+len(mark)])
		if err != nil || id.Version() != 7 {
			continue
		}
		seconds, nanos := id.Time().UnixTime()
		if err := each(commit.MarkedFile{Path: info.URI, RequestID: id.String(), Made: time.Unix(seconds, nanos)}); err != nil {
			return err
		}
	}
	return nil
}

// Unreferenced implements commit.Marked. Names are compared without their
// directory: the id in them is in no other file's, however a path is spelled.
func (t *Table) Unreferenced(ctx context.Context, m commit.Metadata, paths map[string]bool) error {
	meta, ok := m.(*Metadata)
	if !ok {
		return errors.New("the metadata is not of this driver")
	}
	byName := map[string]string{}
	for p := range paths {
		byName[path.Base(p)] = p
	}
	referenced := func(p string) {
		if file, ok := byName[path.Base(p)]; ok {
			delete(paths, file)
		}
	}
	referenced(meta.pointer)
	for e := range meta.meta.PreviousFiles() {
		referenced(e.MetadataFile)
	}
	for _, s := range meta.meta.Snapshots() {
		referenced(s.ManifestList)
	}
	for _, s := range meta.meta.Snapshots() {
		if len(paths) == 0 {
			return nil
		}
		manifests, err := readManifestList(ctx, t.store, &s)
		if err != nil {
			return newError(commit.CodeMetadataInvalid, "list manifests of", t.name.String(), err)
		}
		for _, mf := range manifests {
			referenced(mf.FilePath())
		}
	}
	return nil
}
