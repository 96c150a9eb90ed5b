package iceberg

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/plan"
)

// filePathFieldID is the reserved field id of file_path in position delete
// files (Iceberg spec, Reserved Field IDs).
const filePathFieldID = 2147483546

// deleteIndex finds the delete files that apply to a data file (Iceberg spec,
// Scan Planning):
//
//   - a position delete file applies to data files of its own spec and
//     partition whose data sequence number is not above its own;
//   - an equality delete file applies to data files of its own spec and
//     partition, or to all of them when its spec is unpartitioned, whose data
//     sequence number is below its own.
type deleteIndex struct {
	positions  map[string][]iceberg.ManifestEntry
	equalities map[string][]iceberg.ManifestEntry
	global     []iceberg.ManifestEntry
	// unpartitioned says which specs have no field but dropped ones.
	unpartitioned func(specID int32) bool
}

func newDeleteIndex(unpartitioned func(int32) bool) *deleteIndex {
	return &deleteIndex{unpartitioned: unpartitioned, positions: map[string][]iceberg.ManifestEntry{}, equalities: map[string][]iceberg.ManifestEntry{}}
}

func (x *deleteIndex) add(e iceberg.ManifestEntry, specID int32) error {
	f := e.DataFile()
	key := tupleKey(f)
	switch f.ContentType() {
	case iceberg.EntryContentPosDeletes:
		x.positions[key] = append(x.positions[key], e)
	case iceberg.EntryContentEqDeletes:
		if len(f.EqualityFieldIDs()) == 0 {
			return fmt.Errorf("equality delete file %s names no fields", f.FilePath())
		}
		if x.unpartitioned(specID) {
			x.global = append(x.global, e)
			return nil
		}
		x.equalities[key] = append(x.equalities[key], e)
	default:
		return fmt.Errorf("delete manifest of spec %d lists the data file %s", specID, f.FilePath())
	}
	return nil
}

// attach puts what applies to a data file beside it.
func (x *deleteIndex) attach(e iceberg.ManifestEntry, file *plan.SourceFile) {
	if len(x.positions) == 0 && len(x.equalities) == 0 && len(x.global) == 0 {
		return
	}
	key, seq := tupleKey(e.DataFile()), e.SequenceNum()
	for _, d := range x.positions[key] {
		if d.SequenceNum() >= seq && mayName(d.DataFile(), file.Path) {
			file.PositionDeletes = append(file.PositionDeletes, d.DataFile().FilePath())
		}
	}
	for _, list := range [][]iceberg.ManifestEntry{x.equalities[key], x.global} {
		for _, d := range list {
			if d.SequenceNum() > seq {
				file.EqualityDeletes = append(file.EqualityDeletes, plan.EqualityDelete{
					Path: d.DataFile().FilePath(), FieldIDs: d.DataFile().EqualityFieldIDs(),
				})
			}
		}
	}
}

// mayName says whether a position delete file may have rows for a data file, by
// the file that it references and by the bounds of its paths.
func mayName(d iceberg.DataFile, path string) bool {
	if ref := d.ReferencedDataFile(); ref != nil {
		return *ref == path
	}
	if lo, ok := d.LowerBoundValues()[filePathFieldID]; ok && bytes.Compare(lo, []byte(path)) > 0 {
		return false
	}
	if up, ok := d.UpperBoundValues()[filePathFieldID]; ok && bytes.Compare(up, []byte(path)) < 0 {
		return false
	}
	return true
}

// tupleKey tells the partitions of all specs apart.
func tupleKey(f iceberg.DataFile) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", f.SpecID())
	p := f.Partition()
	for _, id := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "|%d=%#v", id, p[id])
	}
	return b.String()
}
