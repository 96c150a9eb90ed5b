package iceberg

import (
	"encoding/json"
	"fmt"
	"testing"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
)

// What is spliced must say what the library's own encoder says.
func TestSplicedMetadataEqualsTheLibrarys(t *testing.T) {
	for _, version := range []string{"2", "3"} {
		t.Run("v"+version, func(t *testing.T) {
			schema := ice.NewSchema(0, ice.NestedField{ID: 1, Name: "id", Type: ice.PrimitiveTypes.Int64, Required: true},
				ice.NestedField{ID: 2, Name: "snapshots\":null,", Type: ice.PrimitiveTypes.String})
			spec := ice.NewPartitionSpec(ice.PartitionField{SourceIDs: []int{1}, FieldID: 1000, Name: "id", Transform: ice.IdentityTransform{}})
			meta, err := table.NewMetadata(schema, &spec, table.UnsortedSortOrder, "file:///t",
				ice.Properties{table.PropertyFormatVersion: version, "odd": `"},<é>` + "\u2028", "write.metadata.previous-versions-max": "2"})
			if err != nil {
				t.Fatal(err)
			}
			base := newMetadata(commit.TableName{Name: "t"}, meta, "file:///t/metadata/0.json", true)
			for n := range int64(6) {
				s := &table.Snapshot{
					SnapshotID: 100 + n, SequenceNumber: n + 1, TimestampMs: meta.LastUpdatedMillis() + n, ManifestList: fmt.Sprintf("file:///t/%d.avro", n),
					Summary: &table.Summary{Operation: table.OpAppend, Properties: ice.Properties{"a": "<b>", "n": fmt.Sprint(n)}}, SchemaID: new(int),
				}
				if n > 0 {
					parent := 99 + n
					s.ParentSnapshotID = &parent
				}
				if version == "3" {
					first, rows := base.meta.NextRowID(), int64(7)
					s.FirstRowID, s.AddedRows = &first, &rows
				}
				updates := []table.Update{table.NewAddSnapshotUpdate(s), table.NewSetSnapshotRefUpdate("main", s.SnapshotID, table.BranchRef, 0, 0, 0)}
				if n == 2 {
					updates = append(updates, table.NewSetSnapshotRefUpdate("snapshots", 101, table.TagRef, 5000, 0, 0),
						table.NewSetStatisticsUpdate(table.StatisticsFile{SnapshotID: 101, StatisticsPath: "file:///s", FileSizeInBytes: 3, BlobMetadata: []table.BlobMetadata{}}),
						table.NewSetPartitionStatisticsUpdate(table.PartitionStatisticsFile{SnapshotID: 101, StatisticsPath: "file:///p", FileSizeInBytes: 4}))
				}
				next, err := table.UpdateTableMetadata(base.meta, updates, base.pointer)
				if err != nil {
					t.Fatal(err)
				}
				raw, snapshots, err := encodeNext(base, next, s)
				if err != nil || raw == nil {
					t.Fatal(err)
				}
				want, err := json.Marshal(next)
				if err != nil {
					t.Fatal(err)
				}
				var g, w any
				if err := json.Unmarshal(raw, &g); err != nil {
					t.Fatalf("%v\n%s", err, raw)
				}
				if err := json.Unmarshal(want, &w); err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(w, g); d != "" {
					t.Errorf("commit %d:\n%s", n, d)
				}
				parsed, err := table.ParseMetadataBytes(raw)
				if err != nil || !parsed.Equals(next) {
					t.Errorf("commit %d: read back: %v", n, err)
				}
				base = newMetadata(base.name, next, fmt.Sprintf("file:///t/metadata/%d.json", n+1), true)
				if n%2 == 0 {
					base.snapshots = snapshots // else they are encoded from the metadata
				}
			}
		})
	}
}
