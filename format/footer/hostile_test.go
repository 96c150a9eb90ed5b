package footer_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	ice "github.com/apache/iceberg-go"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/format/footer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var long = column{name: "l", id: 1, physical: 2, repetition: 1, stats: st{3: 0, 5: le64(9), 6: le64(-1)}}

// Footers that contradict themselves, or that claim what they don't hold, are
// errors that say why.
func TestHostileFooters(t *testing.T) {
	if _, err := parseFile(fileOf(built([]column{long}, nil))); err != nil {
		t.Fatalf("the footer that the others are made of: %v", err)
	}
	huge := strings.Repeat("\xff", 9) + "\x01" // the largest varint
	for name, c := range map[string]struct {
		raw  []byte
		want string
	}{
		"nothing":              {nil, "too early"},
		"a bomb of elements":   {[]byte("\x19\xfc\xff\xff\xff\xff\x0f"), "too early"},
		"a list of all":        {[]byte("\x29\xfc" + huge), "too early"},
		"nested deeply":        {bytes.Repeat([]byte{0x1c}, 1000), "nested too deeply"},
		"a text beyond it":     {[]byte("\x68" + huge), "too early"},
		"a field twice":        {[]byte("\x36\x02\x06\x06\x02\x00"), "stands twice"},
		"more rows":            {built([]column{long}, func(f, _, _, _ st) { f[3] = 11 }), "row groups have 10 rows, and it says 11"},
		"fewer rows":           {built([]column{long}, func(f, _, _, _ st) { f[3] = -1 }), "-1 rows"},
		"rows of a group":      {built([]column{long}, func(_, g, _, _ st) { g[3] = 1 << 62 }), "10 values in 4611686018427387904 rows"},
		"no groups":            {built([]column{long}, func(f, _, _, _ st) { f[4] = list{} }), "row groups have 0 rows, and it says 10"},
		"no schema":            {built([]column{long}, func(f, _, _, _ st) { delete(f, 2) }), "no schema"},
		"schema of one":        {built([]column{long}, func(f, _, _, _ st) { f[2] = list{st{4: "root", 5: i32(0)}} }), "its schema has 1 elements"},
		"children beyond":      {built([]column{long}, func(f, _, _, _ st) { f[2].(list)[0].(st)[5] = i32(1 << 30) }), "1073741824 children"},
		"negative children":    {built([]column{long}, func(f, _, _, _ st) { f[2].(list)[0].(st)[5] = i32(-5) }), "neither a type nor children"},
		"type and children":    {built([]column{long}, func(f, _, _, _ st) { f[2].(list)[1].(st)[5] = i32(3) }), "a type and children"},
		"unknown type":         {built([]column{long}, func(f, _, _, _ st) { f[2].(list)[1].(st)[1] = i32(77) }), "unknown type 77"},
		"names twice":          {built([]column{long, long}, nil), "two columns are named"},
		"encrypted":            {built([]column{long}, func(f, _, _, _ st) { f[8] = st{} }), "encrypted"},
		"encrypted column":     {built([]column{long}, func(_, _, c, _ st) { c[8] = st{} }), "encrypted"},
		"another file":         {built([]column{long}, func(_, _, c, _ st) { c[1] = "other.parquet" }), "another file"},
		"not described":        {built([]column{long}, func(_, _, c, _ st) { delete(c, 3) }), "nothing describes it"},
		"another column":       {built([]column{long}, func(_, _, _, m st) { m[3] = list{"x"} }), `has the column "x"`},
		"a deeper column":      {built([]column{long}, func(_, _, _, m st) { m[3] = list{"x", "l"} }), `has the column "x.l"`},
		"no path":              {built([]column{long}, func(_, _, _, m st) { delete(m, 3) }), "has the column"},
		"another type":         {built([]column{long}, func(_, _, _, m st) { m[1] = i32(1) }), "stored as INT32"},
		"more nulls":           {built([]column{long}, func(_, _, _, m st) { m[12] = st{3: 11} }), "11 nulls among 10"},
		"negative nulls":       {built([]column{long}, func(_, _, _, m st) { m[12] = st{3: -1} }), "-1 nulls"},
		"nulls where none are": {built([]column{{name: "l", physical: 2, stats: st{3: 1}}}, nil), "the schema allows none"},
		"bounds the wrong way": {built([]column{long}, func(_, _, _, m st) { m[12] = st{3: 0, 5: le64(1), 6: le64(2)} }), "above the upper"},
		"beyond the file":      {built([]column{long}, func(_, _, _, m st) { m[7] = 1 << 40 }), "don't lie in the file"},
		"before the file":      {built([]column{long}, func(_, _, _, m st) { m[9] = 0 }), "don't lie in the file"},
		"overflow":             {built([]column{long}, func(_, _, _, m st) { m[7], m[9] = 1<<63-1, 1<<63-1 }), "don't lie in the file"},
		"columns missing":      {built([]column{long}, func(_, g, _, _ st) { g[1] = list{} }), "0 columns"},
		"text as a number":     {built([]column{long}, func(_, _, _, m st) { m[5] = "x" }), "a number has type"},
		"number as a text":     {built([]column{long}, func(_, _, _, m st) { m[12] = st{5: 1} }), "a text has type"},
		"wide numbers":         {built([]column{long}, func(f, _, _, _ st) { f[2].(list)[1].(st)[9] = 1 << 40 }), "more than 32 bits"},
		"two logical types":    {built([]column{{name: "s", physical: 6, logical: st{1: st{}, 2: st{}}}}, nil), "2 members"},
		"decimal of nothing":   {built([]column{{name: "s", physical: 2, converted: 5}}, nil), "decimal of 0 digits"},
	} {
		_, err := parseFile(fileOf(c.raw))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for end, want := range map[string]string{"PARE": "encrypted", "PAR2": "doesn't end like one"} {
		raw := fileOf(built([]column{long}, nil))
		copy(raw[len(raw)-4:], end)
		if _, err := parseFile(raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", end, err)
		}
	}
}

// A footer of many small row groups, or of a schema of many columns, takes memory in
// proportion to it, and one that is beyond the limits is refused before.
func TestHostileFootersTakeBoundedMemory(t *testing.T) {
	many := built([]column{long}, func(f, g, _, _ st) {
		groups := make(list, 1<<16+1)
		for i := range groups {
			groups[i] = g
		}
		f[4], f[3] = groups, 10*len(groups)
	})
	wide := built([]column{long}, func(f, _, _, _ st) {
		elements := list{st{4: "root", 5: i32(1 << 17)}}
		for range 1 << 17 {
			elements = append(elements, st{1: i32(2), 4: "x"})
		}
		f[2] = elements
	})
	deep := built([]column{long}, func(f, _, _, _ st) {
		elements := list{}
		for range 1000 {
			elements = append(elements, st{4: "x", 5: i32(1)})
		}
		f[2] = append(elements, st{1: i32(2), 4: "x"})
	})
	for name, raw := range map[string][]byte{"many": many, "wide": wide, "deep": deep} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := footer.Parse(raw, 1<<30)
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 64<<20 {
			t.Errorf("%s: a footer of %d bytes took %d bytes", name, len(raw), used)
		}
	}
}

// Statistics that the format doesn't define, or that say too little, give no bounds.
func TestStatisticsThatAreNotTrusted(t *testing.T) {
	text := st{1: st{}}
	for name, c := range map[string]struct {
		column   column
		min, max bool
	}{
		"a long":                      {long, true, true},
		"a text":                      {column{physical: 6, logical: text, repetition: 1, stats: st{3: 0, 5: "z", 6: "a"}}, true, true},
		"legacy bounds of a text":     {column{physical: 6, logical: text, repetition: 1, stats: st{3: 0, 1: "z", 2: "a"}}, false, false},
		"legacy bounds of a long":     {column{physical: 2, repetition: 1, stats: st{3: 0, 1: le64(9), 2: le64(1)}}, true, true},
		"legacy bounds of unsigned":   {column{physical: 2, converted: 14, repetition: 1, stats: st{3: 0, 1: le64(9), 2: le64(1)}}, false, false},
		"legacy bounds of a double":   {column{physical: 5, repetition: 1, stats: st{3: 0, 1: le64(9), 2: le64(1)}}, false, false},
		"legacy beside new ones":      {column{physical: 6, repetition: 1, stats: st{3: 0, 1: "z", 2: "a", 5: "\xff"}}, false, true},
		"a text in another order":     {column{physical: 6, logical: text, repetition: 1, noOrder: true, stats: st{3: 0, 5: "z", 6: "a"}}, false, false},
		"a double in another order":   {column{physical: 5, repetition: 1, noOrder: true, stats: st{3: 0, 5: le64(9), 6: le64(1)}}, false, false},
		"a long in another order":     {column{physical: 2, repetition: 1, noOrder: true, stats: st{3: 0, 5: le64(9), 6: le64(1)}}, true, true},
		"INT96":                       {column{physical: 3, repetition: 1, stats: st{3: 0, 5: strings.Repeat("z", 12), 6: strings.Repeat("a", 12)}}, false, false},
		"an unknown logical type":     {column{physical: 6, logical: st{17: st{}}, repetition: 1, stats: st{3: 0, 5: "z", 6: "a"}}, false, false},
		"half floats":                 {column{physical: 7, length: 2, logical: st{15: st{}}, repetition: 1, stats: st{3: 0, 5: "zz", 6: "aa"}}, false, false},
		"the wrong length":            {column{physical: 2, repetition: 1, stats: st{3: 0, 5: "x", 6: le64(1)}}, true, false},
		"a fixed of another length":   {column{physical: 7, length: 3, repetition: 1, stats: st{3: 0, 5: "zzz", 6: "aa"}}, false, true},
		"a NaN as the upper bound":    {column{physical: 5, repetition: 1, stats: st{3: 0, 5: "\x00\x00\x00\x00\x00\x00\xf8\x7f", 6: le64(0)}}, false, false},
		"only an upper bound":         {column{physical: 5, repetition: 1, stats: st{3: 0, 5: le64(0)}}, false, false},
		"bounds of nothing but nulls": {column{physical: 2, repetition: 1, stats: st{3: 10, 5: le64(9), 6: le64(1)}}, false, false},
		"decimals of an old library":  {column{physical: 7, length: 2, precision: 3, converted: 5, repetition: 1, stats: st{3: 0, 5: "\x00\x01", 6: "\x00\x00"}}, true, true},
		"decimals of too many digits": {column{physical: 7, length: 2, precision: 3, converted: 5, repetition: 1, stats: st{3: 0, 5: "\x7f\xff", 6: "\x00\x00"}}, true, false},
	} {
		c.column.name, c.column.id = "l", 1
		f, err := parseFile(fileOf(built([]column{c.column}, nil)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if l := f.Root.Children[0].Leaf; (l.Min != nil) != c.min || (l.Max != nil) != c.max {
			t.Errorf("%s: %v to %v, want %t and %t", name, l.Min, l.Max, c.min, c.max)
		}
	}
	decimals := column{name: "l", physical: 7, length: 2, precision: 3, converted: 5, repetition: 1, stats: st{3: 0, 5: "\x00\x01", 6: "\x00\x00"}}
	for by, want := range map[string]bool{"parquet-cpp-arrow version 3.0.0": false, "parquet-cpp version 1.5.1": false, "parquet-cpp-arrow version 26.0.1": true} {
		f, err := parseFile(fileOf(built([]column{decimals}, func(f, _, _, _ st) { f[6] = by })))
		if err != nil || (f.Root.Children[0].Leaf.Min != nil) != want {
			t.Errorf("%s: %v, %v", by, f, err)
		}
	}
	// Without orders, the bounds of texts mean nothing; a row group without bounds
	// leaves none of the file.
	plain := column{name: "l", physical: 6, logical: text, repetition: 1, stats: st{3: 2, 5: "z", 6: "a"}}
	f, err := parseFile(fileOf(built([]column{plain}, func(f, _, _, _ st) { delete(f, 7) })))
	if err != nil || f.Root.Children[0].Leaf.Min != nil {
		t.Errorf("without orders: %v, %v", f, err)
	}
	f, err = parseFile(fileOf(built([]column{plain}, func(f, g, _, _ st) {
		bare := st{1: list{st{3: st{1: i32(6), 3: list{"l"}, 5: 5, 7: 10, 9: 50}}}, 3: 5}
		f[4], f[3] = list{g, bare}, 15
	})))
	if err != nil || f.Root.Children[0].Leaf.Min != nil || f.Root.Children[0].Leaf.Nulls != -1 || f.Rows != 15 || len(f.Offsets) != 2 {
		t.Errorf("a row group without statistics: %+v, %v", f, err)
	}
}

// Bounds that were cut are told from those that weren't.
func TestBoundsThatWereCut(t *testing.T) {
	cut := column{name: "l", physical: 6, logical: st{1: st{}}, repetition: 1, stats: st{3: 0, 5: "b", 6: "a\xc3", 7: false, 8: false}}
	f, err := parseFile(fileOf(built([]column{cut}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if l := f.Root.Children[0].Leaf; l.Min.Exact || l.Max.Exact || string(l.Min.Letters()) != "a" {
		t.Errorf("%+v, %+v", l.Min, l.Max)
	}
}

// FuzzDerive: whatever a footer holds, reading it ends, with a description that the
// formats' own checks take, or an error.
func FuzzDerive(f *testing.F) {
	e := golden(f)
	files, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(files) < 10 {
		f.Fatal(files, err)
	}
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		n := int(binary.LittleEndian.Uint32(raw[len(raw)-8:]))
		f.Add(raw[len(raw)-8-n : len(raw)-8])
	}
	f.Add(built([]column{long}, nil))
	all, _, _ := icebergTable(f, string(e.Schema), []ice.PartitionField{{SourceIDs: []int{12}, FieldID: 1000, Name: "s", Transform: ice.IdentityTransform{}}}, nil)
	rust, err := delta.NewDeriver(e.Delta.Schema, []string{"p"}, nil, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 1<<16 {
			return
		}
		for _, d := range []deriver{all, rust} {
			parsed, err := footer.Parse(raw, int64(len(raw))+1<<20)
			if err != nil {
				return
			}
			if parsed.Rows < 0 || len(parsed.Root.Children) == 0 {
				t.Fatalf("%+v", parsed)
			}
			if out, err := d.File(parsed, footer.Claim{Rows: -1, Size: -1}); err == nil && (out.Rows <= 0 || out.Size <= 0 || out.Format != "PARQUET") {
				t.Fatalf("%+v", out)
			}
		}
	})
}
