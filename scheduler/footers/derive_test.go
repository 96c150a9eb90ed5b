package footers_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/footers"
)

// pinned is a table of one column, of each format.
func pinned(format string) plan.Pinned {
	if format == "delta" {
		return plan.Pinned{
			Format: format, SpecJSON: []byte("[]"),
			SchemaJSON: []byte(`{"type":"struct","fields":[{"name":"column_with_a_long_name_0","type":"long","nullable":true,"metadata":{}}]}`),
		}
	}
	return plan.Pinned{
		Format: "iceberg", FormatVersion: 2,
		SchemaJSON: []byte(`{"type":"struct","schema-id":3,"fields":[{"id":1,"name":"column_with_a_long_name_0","required":false,"type":"long"}]}`),
		SpecJSON:   []byte(`{"spec-id":5,"fields":[]}`),
		Properties: map[string]string{"schema.name-mapping.default": `[{"field-id":1,"names":["column_with_a_long_name_0"]}]`},
	}
}

func derive(t *testing.T, target plan.Pinned, row openwrite.PathsRow) (commit.File, error) {
	t.Helper()
	return deriveAt(t, objstore.New(objstore.Config{}), target, row)
}

func deriveAt(t *testing.T, store objstore.Store, target plan.Pinned, row openwrite.PathsRow) (commit.File, error) {
	t.Helper()
	d, err := footers.New(false, 0).For(target)
	if err != nil {
		return commit.File{}, err
	}
	return d(t.Context(), store, "a1", row)
}

func place(t *testing.T, raw []byte) openwrite.PathsRow {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a1-0.parquet")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return openwrite.PathsRow{Path: "file://" + path, Size: -1, Rows: -1}
}

// A file is described as a complete manifest would, for both formats.
func TestDerive(t *testing.T) {
	raw := parquetFile(t, 20, 1)
	row := place(t, raw)
	f, err := derive(t, pinned("iceberg"), row)
	if err != nil {
		t.Fatal(err)
	}
	if f.Path != row.Path || f.Attempt != "a1" || f.Format != "PARQUET" || f.SchemaID != 3 || f.SpecID != 5 || f.Rows != 20 || f.Size != int64(len(raw)) ||
		f.ValueCounts[1] != 20 || f.NullCounts[1] != 0 || binary.LittleEndian.Uint64(f.Lower[1]) != 0 || binary.LittleEndian.Uint64(f.Upper[1]) != 19 || len(f.SplitOffsets) != 3 {
		t.Errorf("%+v", f)
	}
	if f, err = derive(t, pinned("delta"), row); err != nil || string(f.Upper[1]) != "19" || f.Rows != 20 || f.NullCounts[1] != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	// A footer longer than the first read.
	if _, err = derive(t, pinned("iceberg"), place(t, parquetFile(t, 20, 400))); err == nil || !strings.Contains(err.Error(), `column "column_with_a_long_name_1"`) {
		t.Errorf("%v", err)
	}
}

// Files that are refused are named, with what to do; the store's errors aren't
// refusals.
func TestDeriveRefuses(t *testing.T) {
	good := parquetFile(t, 20, 1)
	for name, c := range map[string]struct {
		raw  []byte
		row  openwrite.PathsRow
		want string
	}{
		"short":               {[]byte("PAR1PAR1"), openwrite.PathsRow{Rows: -1, Size: -1}, "too short"},
		"cut":                 {good[:len(good)-1], openwrite.PathsRow{Rows: -1, Size: -1}, "doesn't end like one"},
		"encrypted":           {append(bytes.Clone(good[:len(good)-4]), "PARE"...), openwrite.PathsRow{Rows: -1, Size: -1}, "encrypted"},
		"other rows":          {good, openwrite.PathsRow{Rows: 21, Size: -1}, "it has 20 rows, and the manifest says 21"},
		"other size":          {good, openwrite.PathsRow{Rows: -1, Size: 7}, "bytes, and the manifest says 7"},
		"no rows":             {parquetFile(t, 0, 1), openwrite.PathsRow{Rows: -1, Size: -1}, "it has no rows"},
		"other columns":       {parquetFile(t, 20, 2), openwrite.PathsRow{Rows: -1, Size: -1}, "has no field id"},
		"a footer of nothing": {append([]byte("PAR1"), 0, 0, 0, 0, 'P', 'A', 'R', '1'), openwrite.PathsRow{Rows: -1, Size: -1}, "its footer can't be read"},
	} {
		row := place(t, c.raw)
		row.Rows, row.Size = c.row.Rows, c.row.Size
		_, err := derive(t, pinned("iceberg"), row)
		var e *commit.Error
		if !errors.As(err, &e) || e.Code != commit.CodeManifestRefused || e.Hint == "" || e.Object != row.Path || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	gone := place(t, good)
	gone.Path += ".gone"
	if _, err := derive(t, pinned("iceberg"), gone); commit.CodeOf(err) != commit.CodeManifestRefused || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that isn't there: %v", err)
	}
	s := &flaky{Store: objstore.New(objstore.Config{}), fails: 1}
	if _, err := deriveAt(t, s, pinned("iceberg"), place(t, good)); err == nil || commit.CodeOf(err) == commit.CodeManifestRefused {
		t.Errorf("a store that can't be reached: %v", err)
	}
	if _, err := derive(t, plan.Pinned{Format: "hudi"}, place(t, good)); commit.CodeOf(err) != commit.CodeTableLayout {
		t.Errorf("another format: %v", err)
	}
}
