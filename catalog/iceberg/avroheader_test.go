package iceberg

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	ice "github.com/apache/iceberg-go"

	"github.com/firn-project/firn/internal/objstore"
)

// manifestOf reads the entries of a manifest file through fileIO.
func manifestOf(t *testing.T, path string) ([]ice.ManifestEntry, error) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	mf := ice.NewManifestFile(2, path, info.Size(), 1, 1).Content(ice.ManifestContentData).AddedFiles(1).Build()
	var out []ice.ManifestEntry
	for e, err := range mf.Entries(fileIO{t.Context(), objstore.New(objstore.Config{})}, true) {
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// TestManifestWithNamesOfOtherAlphabets reads a manifest that PyIceberg wrote for
// a table partitioned by the column näme. The library alone can't.
func TestManifestWithNamesOfOtherAlphabets(t *testing.T) {
	path, err := filepath.Abs("testdata/pyiceberg-names.avro")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := manifestOf(t, path)
	if err != nil {
		t.Fatal(err)
	}
	values := map[any]int64{}
	for _, e := range entries {
		values[e.DataFile().Partition()[1000]] += e.DataFile().Count()
	}
	if len(entries) != 3 || len(values) != 3 || values["a"] != 1 || values["b"] != 1 || values[nil] != 1 {
		t.Fatalf("%d entries, %v", len(entries), values)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, length := renamedHeader(bytes.NewReader(raw))
	if !bytes.Contains(head, []byte(`"n_xE4me_id"`)) {
		t.Errorf("the header is %q", head)
	}
	if again, _ := renamedHeader(bytes.NewReader(append(head, raw[length:]...))); again != nil {
		t.Error("the new header is renamed again")
	}
}

// TestHeadersThatAreNotWhole: nothing is changed in what can't be understood.
func TestHeadersThatAreNotWhole(t *testing.T) {
	raw, err := os.ReadFile("testdata/pyiceberg-names.avro")
	if err != nil {
		t.Fatal(err)
	}
	_, length := renamedHeader(bytes.NewReader(raw))
	if length == 0 {
		t.Fatal("the whole header isn't changed")
	}
	for n := range int(length) {
		if head, _ := renamedHeader(bytes.NewReader(raw[:n])); head != nil {
			t.Fatalf("a header of %d bytes of %d was changed", n, length)
		}
	}
	for name, raw := range map[string][]byte{
		"parquet":         []byte("PAR1PAR1"),
		"negative length": []byte("Obj\x01\x02\x01x"),
		"huge length":     []byte("Obj\x01\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"endless varint":  []byte("Obj\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
		"no json":         []byte("Obj\x01\x02\x16avro.schema\x02{\x00"),
		"other json":      []byte("Obj\x01\x02\x16avro.schema\x0a[1,2]\x00"),
	} {
		if head, _ := renamedHeader(bytes.NewReader(raw)); head != nil {
			t.Errorf("%s: changed to %q", name, head)
		}
	}
}
