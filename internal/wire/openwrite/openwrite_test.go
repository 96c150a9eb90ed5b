package openwrite_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/openwrite"
)

var digest = strings.Repeat("ab", 32)

func TestHandles(t *testing.T) {
	h := openwrite.Handle{WriteID: "j-1", Attempt: "s1_p2.0", Digest: digest}
	got, err := openwrite.ParseHandle(h.String())
	if err != nil || got != h {
		t.Fatalf("%+v, %v; want %+v", got, err, h)
	}
	bad := []string{
		"", "fh1.", "fh2" + h.String()[3:], h.String() + "x", h.String() + "=", " " + h.String(), strings.Repeat("fh1.a", 1000),
		openwrite.Handle{WriteID: "j-1", Attempt: "a-b", Digest: digest}.String(),
		openwrite.Handle{WriteID: "", Attempt: "a", Digest: digest}.String(),
		openwrite.Handle{WriteID: "j-1", Attempt: "a", Digest: "ab"}.String(),
	}
	for _, b := range bad {
		if h, err := openwrite.ParseHandle(b); err == nil {
			t.Errorf("%q was read as %+v", b, h)
		}
	}
}

func TestAttemptIDs(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "0": true, "Task_3.1": true, strings.Repeat("a", 100): true,
		"": false, "-a": false, "a-b": false, ".a": false, "_a": false, "a/b": false, "a..b": false, "é": false, strings.Repeat("a", 101): false, "a\n": false,
	} {
		if got := openwrite.ValidAttempt(id); got != want {
			t.Errorf("%q: %v", id, got)
		}
	}
}

func TestSealIsOfTheSet(t *testing.T) {
	a, da := openwrite.SealOf([]string{"c", "a", "b", "a"})
	b, db := openwrite.SealOf([]string{"b", "a", "c"})
	if !cmp.Equal(a, b) || da != db || len(a) != 3 {
		t.Errorf("%v %s, %v %s", a, da, b, db)
	}
	if _, other := openwrite.SealOf([]string{"a", "b"}); other == da {
		t.Error("another set has the same digest")
	}
}

func TestPathsRoundTrip(t *testing.T) {
	rows := []openwrite.PathsRow{
		{Path: "file:///w/a-1.parquet", Size: 10, Rows: 3, Partition: map[string]*string{"month": new("2026-01"), "region": nil, "e": new("")}},
		{Path: "file:///w/a-2.parquet", Size: -1, Rows: -1},
		{Path: "file:///w/a-3.parquet", Size: 0, Rows: 0, Partition: map[string]*string{}},
	}
	b, err := openwrite.EncodePaths(rows)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	got, err := openwrite.DecodePaths(b)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(rows, got); d != "" {
		t.Error(d)
	}
}

// Writers leave columns out and give them in their own order.
func TestPathsColumnsAsTheWriterHasThem(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "rows", Type: arrow.PrimitiveTypes.Int64}, {Name: "path", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	b, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[{"path":"x","rows":7}]`))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Release()
	got, err := openwrite.DecodePaths(b)
	if d := cmp.Diff([]openwrite.PathsRow{{Path: "x", Size: -1, Rows: 7}}, got); d != "" || err != nil {
		t.Error(d, err)
	}
	if !openwrite.IsPaths(schema) || openwrite.IsPaths(wire.ManifestSchema()) {
		t.Error("the kinds of manifests aren't told apart")
	}
}

func TestPathsRefused(t *testing.T) {
	str, i64 := arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64
	for name, c := range map[string]struct {
		fields []arrow.Field
		json   string
	}{
		"no path":        {[]arrow.Field{{Name: "size", Type: i64}}, `[{"size":1}]`},
		"null path":      {[]arrow.Field{{Name: "path", Type: str, Nullable: true}}, `[{"path":null}]`},
		"empty path":     {[]arrow.Field{{Name: "path", Type: str}}, `[{"path":""}]`},
		"other column":   {[]arrow.Field{{Name: "path", Type: str}, {Name: "etag", Type: str}}, `[{"path":"x","etag":"y"}]`},
		"column twice":   {[]arrow.Field{{Name: "path", Type: str}, {Name: "path", Type: str}}, `[]`},
		"other type":     {[]arrow.Field{{Name: "path", Type: str}, {Name: "rows", Type: arrow.PrimitiveTypes.Int32}}, `[{"path":"x","rows":1}]`},
		"negative rows":  {[]arrow.Field{{Name: "path", Type: str}, {Name: "rows", Type: i64}}, `[{"path":"x","rows":-1}]`},
		"long path":      {[]arrow.Field{{Name: "path", Type: str}}, `[{"path":"` + strings.Repeat("x", 9000) + `"}]`},
		"map of numbers": {[]arrow.Field{{Name: "path", Type: str}, {Name: "partition", Type: arrow.MapOf(str, i64)}}, `[]`},
	} {
		b, _, err := array.RecordFromJSON(memory.DefaultAllocator, arrow.NewSchema(c.fields, nil), strings.NewReader(c.json))
		if err != nil {
			t.Fatal(name, err)
		}
		if rows, err := openwrite.DecodePaths(b); err == nil {
			t.Errorf("%s: read as %+v", name, rows)
		}
		b.Release()
	}
}

// A complete manifest whose attempts were forgotten is told what makes it one.
func TestCompleteWithoutAttempts(t *testing.T) {
	fields := slices.DeleteFunc(wire.ManifestSchema().Fields(), func(f arrow.Field) bool { return f.Name == "attempt" })
	err := openwrite.CheckPathsSchema(arrow.NewSchema(fields, nil))
	if err == nil || !strings.Contains(err.Error(), `column "format" is one of complete manifests, and those have a column "attempt"`) {
		t.Error(err)
	}
}

func TestFaultsSurviveAMessage(t *testing.T) {
	e := &commit.Error{Code: commit.CodeWriteNotOpen, Op: "take", Object: "j-1", Cause: errors.New(`it "was" sealed`), Tried: "nothing", Hint: "Ask."}
	f := openwrite.FaultOf(e, commit.CommitNone)
	got := openwrite.FaultIn("Flight returned invalid argument error, with message: " + f.Message() + `. gRPC client debug context: {"x":1}`)
	if d := cmp.Diff(f, got); d != "" {
		t.Error(d)
	}
	if got.Err().Error() != e.Error() || got.Retryable || got.Kind != "invalid" {
		t.Errorf("%+v", got)
	}
	if f := openwrite.FaultOf(errors.New("disk"), commit.CommitUnknown); !f.Retryable || f.Outcome != "unknown" || f.Err().Error() != "disk" {
		t.Errorf("%+v", f)
	}
	if openwrite.FaultIn("nothing here") != nil || openwrite.FaultOf(nil, "") != nil {
		t.Error("a fault where there's none")
	}
}

func TestDecode(t *testing.T) {
	var c openwrite.Commit
	if err := openwrite.Decode([]byte(`{"version":1,"write_id":"j","handles":["a"]}`), &c); err != nil || c.WriteID != "j" {
		t.Error(err)
	}
	for _, body := range []string{``, `[]`, `{}`, `{"version":2}`, `{"version":1,"wirte_id":"j"}`, `{"version":1}{}`, `{"version":1,"handles":{}}`, `nonsense`} {
		if err := openwrite.Decode([]byte(body), &c); err == nil {
			t.Errorf("%s was taken", body)
		}
	}
}
