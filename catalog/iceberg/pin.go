package iceberg

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

// Pin gives a read of the table in the form that a job is planned against.
// storage is what executors get to reach the table's files.
func (m *Metadata) Pin(storage map[string]string) (plan.Pinned, error) {
	p := plan.Pinned{
		Name:             m.name,
		Format:           "iceberg",
		UUID:             m.UUID(),
		Location:         m.Location(),
		MetadataLocation: m.pointer,
		FormatVersion:    m.meta.Version(),
		SnapshotID:       m.Head(commit.MainBranch),
		Properties:       maps.Clone(map[string]string(m.meta.Properties())),
		DataLocation:     dataLocation(m.meta),
		Storage:          storage,
	}
	// Only commits need the ledger, and they read it anew: in each plan, record and
	// task it would be the largest part by far.
	delete(p.Properties, KeyLedger)
	spec := m.meta.PartitionSpec()
	for _, part := range []struct {
		to   *[]byte
		from any
	}{{&p.SchemaJSON, m.meta.CurrentSchema()}, {&p.SpecJSON, &spec}, {&p.SortOrderJSON, m.meta.SortOrder()}} {
		b, err := json.Marshal(part.from)
		if err != nil {
			return plan.Pinned{}, newError(commit.CodeMetadataInvalid, "read table", m.name.String(), err)
		}
		*part.to = b
	}
	return p, nil
}

// dataLocation is where data files go, by the properties that Java knows, the
// old names last.
func dataLocation(m table.Metadata) string {
	props := m.Properties()
	for _, key := range []string{table.WriteDataPathKey, "write.object-storage.path", "write.folder-storage.path"} {
		if p := props[key]; p != "" {
			return strings.TrimRight(p, "/")
		}
	}
	return strings.TrimRight(m.Location(), "/") + "/data"
}

// Totals are the numbers of a table's current snapshot.
type Totals struct {
	Rows, Files, Bytes int64
	Snapshots          int
}

// Totals reads the totals of the current snapshot from its summary, and counts
// its files when the summary doesn't have them.
func (m *Metadata) Totals(ctx context.Context, store objstore.Store) (Totals, error) {
	out := Totals{Snapshots: len(m.meta.Snapshots())}
	s := m.meta.CurrentSnapshot()
	t, ok := summaryTotals(s)
	if !ok {
		manifests, err := readManifestList(ctx, store, s)
		if err == nil {
			t, err = countManifests(ctx, store, manifests)
		}
		if err != nil {
			return out, newError(commit.CodeMetadataInvalid, "describe", m.name.String(), fmt.Errorf("count files: %w", err))
		}
	}
	out.Rows, out.Files, out.Bytes = t.records, t.dataFiles, t.size
	return out, nil
}

// ReadAt reads the metadata of a pinned table again, from the file that it was
// pinned at.
func ReadAt(ctx context.Context, store objstore.Store, p plan.Pinned) (*Metadata, error) {
	meta, err := ReadMetadata(ctx, store, p.MetadataLocation)
	if err != nil {
		return nil, newError(commit.CodeMetadataInvalid, "read table", p.Name.String(), err)
	}
	m := newMetadata(p.Name, meta, p.MetadataLocation, false)
	if m.UUID() != p.UUID {
		return nil, newError(commit.CodeTableChanged, "read table", p.Name.String(), fmt.Errorf("%s is another table's now", p.MetadataLocation))
	}
	return m, nil
}
