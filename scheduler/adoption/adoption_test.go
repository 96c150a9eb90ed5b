package adoption

import (
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/journal"
)

const columns = `{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}},{"name":"p","type":"string","nullable":true,"metadata":{}}]}`

// TestFitDelta: files of a Delta table go into one of the same columns in the same
// directory, and into no other.
func TestFitDelta(t *testing.T) {
	unit := journal.Unit{SchemaJSON: []byte(columns), SpecJSON: []byte(`["p"]`)}
	good := plan.Pinned{
		Name: commit.TableName{Catalog: "lake", Name: "t"}, Format: "delta", Location: "file:///t",
		SchemaJSON: []byte(strings.ReplaceAll(columns, "{}", `{"comment":"x"}`)), SpecJSON: []byte(`["p"]`),
	}
	for name, c := range map[string]struct {
		change func(*plan.Pinned)
		says   string
	}{
		"the same":        {func(*plan.Pinned) {}, ""},
		"Iceberg":         {func(p *plan.Pinned) { p.Format = "iceberg" }, "is of format iceberg"},
		"other columns":   {func(p *plan.Pinned) { p.SchemaJSON = []byte(strings.Replace(columns, "long", "integer", 1)) }, "don't fit"},
		"not partitioned": {func(p *plan.Pinned) { p.SpecJSON = []byte(`[]`) }, "another way"},
		"elsewhere":       {func(p *plan.Pinned) { p.Location = "file:///tt" }, "outside"},
	} {
		p := good
		c.change(&p)
		files, err := Fit(unit, p, commit.PackFiles(commit.File{Path: "file:///t/j/x.parquet"}))
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && files.At(0).SchemaID != delta.SchemaID(string(p.SchemaJSON)) {
			t.Errorf("%s: the files have another schema's id", name)
		}
	}
	if FormatOf(unit) != "delta" || FormatOf(journal.Unit{SpecJSON: []byte(` {"spec-id":0}`)}) != "iceberg" {
		t.Error("formats are mixed up")
	}
}
