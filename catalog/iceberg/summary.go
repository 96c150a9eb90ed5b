package iceberg

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// totals are what a snapshot's summary says about all live files.
type totals struct {
	dataFiles, records, size             int64
	deleteFiles, posDeletes, equalityDel int64
}

// fields pairs the totals with their keys.
func (t *totals) fields() []struct {
	key   string
	value *int64
} {
	return []struct {
		key   string
		value *int64
	}{
		{"total-data-files", &t.dataFiles},
		{"total-records", &t.records},
		{"total-files-size", &t.size},
		{"total-delete-files", &t.deleteFiles},
		{"total-position-deletes", &t.posDeletes},
		{"total-equality-deletes", &t.equalityDel},
	}
}

// summaryTotals reads the totals of a snapshot's summary; ok says that all of
// them are there.
func summaryTotals(s *table.Snapshot) (t totals, ok bool) {
	if s == nil {
		return t, true
	}
	if s.Summary == nil {
		return t, false
	}
	for _, f := range t.fields() {
		n, err := strconv.ParseInt(s.Summary.Properties[f.key], 10, 64)
		if err != nil || n < 0 {
			return totals{}, false
		}
		*f.value = n
	}
	return t, true
}

// countManifests finds the totals by reading every manifest.
func countManifests(ctx context.Context, store objstore.Store, manifests []iceberg.ManifestFile) (totals, error) {
	var t totals
	for _, m := range manifests {
		for e, err := range m.Entries(fileIO{ctx, store}, true) {
			if err != nil {
				return t, fmt.Errorf("manifest %s: %w", m.FilePath(), err)
			}
			f := e.DataFile()
			t.size += f.FileSizeBytes()
			switch f.ContentType() {
			case iceberg.EntryContentPosDeletes:
				t.deleteFiles++
				t.posDeletes += f.Count()
			case iceberg.EntryContentEqDeletes:
				t.deleteFiles++
				t.equalityDel += f.Count()
			default:
				t.dataFiles++
				t.records += f.Count()
			}
		}
	}
	return t, nil
}

// summary makes the snapshot's summary as the spec names its keys and Java
// writes them: what was added only where it isn't zero, all totals always. When
// the parent lacks one, all are counted, so that a total is never made from a
// guess.
func (b *build) summary(ctx context.Context, inherited []iceberg.ManifestFile) (*table.Summary, error) {
	t, ok := summaryTotals(b.parent)
	if !ok {
		var err error
		if t, err = countManifests(ctx, b.table.store, inherited); err != nil {
			return nil, newError(commit.CodeMetadataInvalid, "count the files of", b.table.name.String(), err)
		}
	}
	props := iceberg.Properties{"engine-name": "firn", "engine-version": engineVersion()}
	var files, rows, size int64
	partitions := map[string]bool{}
	for _, u := range b.units {
		for _, f := range u.Files.All() {
			files++
			rows += f.Rows
			size += f.Size
			partitions[partitionKey(f.Partition)] = true
		}
	}
	for key, n := range map[string]int64{
		"added-data-files": files, "added-records": rows, "added-files-size": size,
		"changed-partition-count": int64(len(partitions)),
	} {
		if n > 0 {
			props[key] = strconv.FormatInt(n, 10)
		}
	}
	t.dataFiles += files
	t.records += rows
	t.size += size
	for _, f := range t.fields() {
		props[f.key] = strconv.FormatInt(*f.value, 10)
	}
	props[KeyTokens], props[KeyUnits] = formatUnits(b.units)
	return &table.Summary{Operation: table.OpAppend, Properties: props}, nil
}

// partitionKey tells partition tuples apart, null from empty too. An
// unpartitioned table has the one empty tuple.
func partitionKey(values []commit.PartitionValue) string {
	var b []byte
	for _, v := range values {
		if v.Null {
			b = append(b, 0)
			continue
		}
		b = append(b, 1)
		b = binary.AppendUvarint(b, uint64(len(v.Value)))
		b = append(b, v.Value...)
	}
	return string(b)
}

// engineVersion is the version of the module that the binary was built from.
var engineVersion = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
})
