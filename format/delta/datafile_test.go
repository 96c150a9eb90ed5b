package delta

import (
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
)

// What a manifest says of a file is held against the schema; leaves are numbered
// without the partition columns, through structs.
func TestFileStats(t *testing.T) {
	schema := &Struct{Fields: []Field{
		{Name: "p", Type: String},
		{Name: "id", Type: Long},
		{Name: "place", Type: &Struct{Fields: []Field{{Name: "zip", Type: Integer}, {Name: "city", Type: String, Nullable: true}}}},
		{Name: "may", Type: &Struct{Fields: []Field{{Name: "x", Type: Integer}}}, Nullable: true},
		{Name: "ts", Type: TimestampNTZ, Nullable: true},
	}}
	good := func() commit.File {
		return commit.File{
			Rows: 3, NullCounts: map[int]int64{1: 0, 2: 0, 3: 2, 4: 3, 5: 1},
			Lower: map[int][]byte{1: []byte("-5"), 5: []byte(`"2026-01-31T23:59:59.123456"`)}, Upper: map[int][]byte{1: []byte("7"), 5: []byte(`"2026-01-31T23:59:59.123456"`)},
		}
	}
	stats, err := FileStats(schema, []string{"p"}, good())
	if err != nil {
		t.Fatal(err)
	}
	// Times are rounded away from the values, whichever way a reader takes them.
	if text, err := stats.JSON(0); err != nil || text != `{"numRecords":3,"minValues":{"id":-5,"ts":"2026-01-31T23:59:59.123"},`+
		`"maxValues":{"id":7,"ts":"2026-01-31T23:59:59.124"},"nullCount":{"id":0,"place":{"zip":0,"city":2},"may":{"x":3},"ts":1}}` {
		t.Errorf("%s, %v", text, err)
	}
	for name, c := range map[string]struct {
		change func(*commit.File)
		says   string
	}{
		"no rows":                 {func(f *commit.File) { f.Rows = 0 }, "no rows"},
		"nulls where none may be": {func(f *commit.File) { f.NullCounts[1] = 1 }, `column "id": 1 nulls in a column that may not be null`},
		"nulls inside a struct":   {func(f *commit.File) { f.NullCounts[2] = 1 }, `column "place.zip": 1 nulls`},
		"more nulls than rows":    {func(f *commit.File) { f.NullCounts[3] = 4 }, "4 nulls in column 3 of 5"},
		"count of no column":      {func(f *commit.File) { f.NullCounts[6] = 0 }, "column 6 of 5"},
		"bound of no column":      {func(f *commit.File) { f.Lower[6] = []byte("1") }, "column 6 of 5"},
		"bound of another type":   {func(f *commit.File) { f.Lower[1] = []byte(`"red"`) }, `column "id"`},
		"bound in binary":         {func(f *commit.File) { f.Lower[1] = []byte{1, 0, 0, 0} }, `column "id"`},
		"bounds swapped":          {func(f *commit.File) { f.Lower[1] = []byte("8") }, `column "id": the lower bound is above`},
	} {
		f := good()
		c.change(&f)
		if _, err := FileStats(schema, []string{"p"}, f); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: want an error that says %q: %v", name, c.says, err)
		}
	}
}
