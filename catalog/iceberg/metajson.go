package iceberg

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"
)

// metaJSON is a metadata file without what grows with the table's history. The
// library's own encoder writes each snapshot anew for each commit, which is most
// of what a commit costs on a table that keeps many.
type metaJSON struct {
	FormatVersion      int                             `json:"format-version"`
	UUID               uuid.UUID                       `json:"table-uuid"`
	Location           string                          `json:"location"`
	LastSequenceNumber int64                           `json:"last-sequence-number"`
	LastUpdatedMS      int64                           `json:"last-updated-ms"`
	LastColumnID       int                             `json:"last-column-id"`
	Schemas            []*iceberg.Schema               `json:"schemas"`
	CurrentSchemaID    int                             `json:"current-schema-id"`
	Specs              []iceberg.PartitionSpec         `json:"partition-specs"`
	DefaultSpecID      int                             `json:"default-spec-id"`
	LastPartitionID    *int                            `json:"last-partition-id,omitempty"`
	Properties         iceberg.Properties              `json:"properties,omitempty"`
	CurrentSnapshotID  *int64                          `json:"current-snapshot-id,omitempty"`
	MetadataLog        []table.MetadataLogEntry        `json:"metadata-log,omitempty"`
	SortOrders         []table.SortOrder               `json:"sort-orders"`
	DefaultSortOrderID int                             `json:"default-sort-order-id"`
	Refs               map[string]table.SnapshotRef    `json:"refs,omitempty"`
	Statistics         []table.StatisticsFile          `json:"statistics,omitempty"`
	PartitionStats     []table.PartitionStatisticsFile `json:"partition-statistics,omitempty"`
	EncryptionKeys     []table.EncryptionKey           `json:"encryption-keys,omitempty"`
	NextRowID          *int64                          `json:"next-row-id,omitempty"`
}

// encodeNext encodes the metadata that base becomes with one more snapshot, and
// returns the part of it that holds the snapshots, for the commit after it. That
// part is copied from base's, so that the cost is that of writing the bytes. raw
// is nil when the metadata isn't of that form; the library encodes it then.
func encodeNext(base *Metadata, next table.Metadata, added *table.Snapshot) (raw, snapshots []byte, err error) {
	if next.Version() < 2 || next.CurrentSnapshot() == nil {
		return nil, nil, nil
	}
	head, err := encodeHead(next)
	if err != nil {
		return nil, nil, err
	}
	before, err := base.encodedSnapshots()
	if err != nil {
		return nil, nil, err
	}
	one, err := json.Marshal(added)
	if err != nil {
		return nil, nil, err
	}
	var log []byte
	for e := range next.SnapshotLogs() {
		log = append(log, `,{"snapshot-id":`...)
		log = strconv.AppendInt(log, e.SnapshotID, 10)
		log = append(log, `,"timestamp-ms":`...)
		log = strconv.AppendInt(log, e.TimestampMs, 10)
		log = append(log, '}')
	}
	b := bytes.NewBuffer(make([]byte, 0, len(head)+len(before)+len(one)+len(log)+64))
	b.Write(head[:len(head)-1]) // without the closing brace
	b.WriteString(`,"snapshots":[`)
	from := b.Len()
	b.Write(before)
	if len(before) > 0 {
		b.WriteByte(',')
	}
	b.Write(one)
	to := b.Len()
	b.WriteByte(']')
	if len(log) > 0 {
		b.WriteString(`,"snapshot-log":[`)
		b.Write(log[1:])
		b.WriteByte(']')
	}
	b.WriteByte('}')
	return b.Bytes(), b.Bytes()[from:to:to], nil
}

func encodeHead(m table.Metadata) ([]byte, error) {
	h := metaJSON{
		FormatVersion: m.Version(), UUID: m.TableUUID(), Location: m.Location(), LastSequenceNumber: m.LastSequenceNumber(),
		LastUpdatedMS: m.LastUpdatedMillis(), LastColumnID: m.LastColumnID(),
		Schemas: m.Schemas(), CurrentSchemaID: m.CurrentSchema().ID,
		Specs: m.PartitionSpecs(), DefaultSpecID: m.DefaultPartitionSpec(), LastPartitionID: m.LastPartitionSpecID(),
		Properties: m.Properties(), CurrentSnapshotID: &m.CurrentSnapshot().SnapshotID,
		MetadataLog: slices.Collect(m.PreviousFiles()), SortOrders: m.SortOrders(), DefaultSortOrderID: m.DefaultSortOrder(),
		Refs: maps.Collect(m.Refs()), Statistics: slices.Collect(m.Statistics()), PartitionStats: slices.Collect(m.PartitionStatistics()),
		EncryptionKeys: slices.Collect(m.EncryptionKeys()),
	}
	if m.Version() >= 3 {
		n := m.NextRowID()
		h.NextRowID = &n
	}
	return json.Marshal(h)
}

// encodedSnapshots is the JSON of the snapshots, separated by commas.
func (m *Metadata) encodedSnapshots() ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.snapshots == nil {
		raw, err := json.Marshal(m.meta.Snapshots())
		if err != nil {
			return nil, err
		}
		m.snapshots = bytes.TrimSuffix(bytes.TrimPrefix(raw, []byte("[")), []byte("]"))
		if string(raw) == "null" {
			m.snapshots = []byte{}
		}
	}
	return m.snapshots, nil
}

// encodeMetadata encodes the metadata file of a table with one more snapshot and
// gives the Metadata that it will be read as.
func encodeMetadata(location string, base *Metadata, meta table.Metadata, added *table.Snapshot) (*Metadata, []byte, error) {
	next := newMetadata(base.name, meta, location, base.swaps)
	next.base, next.added = base, added
	raw, snapshots, err := encodeNext(base, meta, added)
	if err == nil && raw == nil {
		raw, err = json.Marshal(meta)
	}
	if err == nil {
		raw, err = compressed(location, raw)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("metadata file %s: %w", location, err)
	}
	next.snapshots = snapshots
	return next, raw, nil
}
