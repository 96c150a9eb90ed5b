package iceberg

import (
	"testing"

	"github.com/apache/iceberg-go"
)

// A batch whose partition values are all null, by its number in
// docs/explanation/proven.md: one partition, no bounds, counted nulls.
func TestScenario71_OnlyNullPartitions(t *testing.T) {
	tb := newTable(t, iceberg.NewSchema(0, field(1, "k", p.String), field(2, "v", p.Int32)), []iceberg.PartitionField{identity(1, 1000, "k")}, nil)
	files := tb.write(t, tb.batch(t, `[{"k":null,"v":1},{"k":null,"v":2}]`))
	if len(files) != 1 {
		t.Fatalf("%d files, want 1", len(files))
	}
	f := files[0]
	if _, lower := f.Lower[1]; lower || f.NullCounts[1] != 2 || f.Rows != 2 {
		t.Errorf("bounds %v, nulls %d, rows %d", f.Lower, f.NullCounts[1], f.Rows)
	}
	if _, upper := f.Upper[1]; upper {
		t.Errorf("an upper bound of nulls: %v", f.Upper)
	}
}
