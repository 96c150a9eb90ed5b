package delta

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the reference page anew")

// featuresPage is the reference page of table features, made from the matrix.
func featuresPage() string {
	var b strings.Builder
	b.WriteString(`<!-- Generated from format/delta; do not edit. Run: go test ./format/delta -run TestFeaturesPage -update -->
# Delta table features

What Firn's Delta log and driver do with a table that has a feature, listed in its protocol or implied by the writer version beside it. "unless used" is refused, by the feature's name and before data is written, when the
table makes use of it: a column with an expression, a property that is on, a column of the type. A feature that isn't here is refused: for writing when writers must know it, for everything when readers must.

| feature | writer version | list files | read rows | append | overwrite | rewrite |
| --- | --- | --- | --- | --- | --- | --- |
`)
	plain := Definition{Protocol: Protocol{MinReaderVersion: 1, MinWriterVersion: 2}, Schema: plainSchema, Partition: []string{"p"}}
	cell := func(r rule) string {
		switch {
		case r == nil:
			return "yes"
		case r(plain) != "":
			return "no"
		}
		return "unless used"
	}
	for i := range features {
		f := &features[i]
		version := ""
		if f.legacyWriter > 0 {
			version = fmt.Sprint(f.legacyWriter)
		}
		name := "`" + f.name + "`"
		if f.always {
			name = f.name
		}
		cells := []string{name, version, cell(f.list), cell(f.scan), cell(f.add), cell(f.overwrite), cell(f.rewrite)}
		if f.name == "rowTracking" {
			cells[4], cells[5], cells[6] = "if suspended", "if suspended", "if suspended"
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

func TestFeaturesPage(t *testing.T) {
	const path = "../../docs/reference/delta-features.md"
	want := featuresPage()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is old; run this test with -update:\n%s", path, diff)
	}
}
