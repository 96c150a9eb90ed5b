package delta

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"
)

const everyType = `{"type":"struct","fields":[` +
	`{"name":"b","type":"boolean","nullable":true,"metadata":{}},` +
	`{"name":"i8","type":"byte","nullable":false,"metadata":{}},` +
	`{"name":"i16","type":"short","nullable":true,"metadata":{}},` +
	`{"name":"i32","type":"integer","nullable":true,"metadata":{"comment":"a <b> & \"c\""}},` +
	`{"name":"i64","type":"long","nullable":true,"metadata":{}},` +
	`{"name":"f32","type":"float","nullable":true,"metadata":{}},` +
	`{"name":"f64","type":"double","nullable":true,"metadata":{}},` +
	`{"name":"s","type":"string","nullable":true,"metadata":{}},` +
	`{"name":"x","type":"binary","nullable":true,"metadata":{}},` +
	`{"name":"d","type":"date","nullable":true,"metadata":{}},` +
	`{"name":"t","type":"timestamp","nullable":true,"metadata":{}},` +
	`{"name":"n","type":"timestamp_ntz","nullable":true,"metadata":{}},` +
	`{"name":"m","type":"decimal(38,10)","nullable":true,"metadata":{}},` +
	`{"name":"l","type":{"type":"array","elementType":{"type":"struct","fields":[` +
	`{"name":"y","type":{"type":"map","keyType":"string","valueType":"decimal(1,0)","valueContainsNull":false},"nullable":true,"metadata":{}}]},"containsNull":false},"nullable":true,"metadata":{}}]}`

func TestSchemaRoundTrip(t *testing.T) {
	s, err := ParseSchema(everyType)
	if err != nil {
		t.Fatal(err)
	}
	got, err := SchemaJSON(s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(everyType, got); diff != "" {
		t.Errorf("the schema changed (-was +is):\n%s", diff)
	}
	again, err := ParseSchema(got)
	if err != nil || !Equal(s, again) {
		t.Errorf("read again: %v, %v", again, err)
	}
}

func TestSchemaRefusals(t *testing.T) {
	field := func(s string) string { return `{"type":"struct","fields":[` + s + `]}` }
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":         {"{", "unexpected end"},
		"no struct":       {`"long"`, "not struct"},
		"unknown name":    {field(`{"name":"a","type":"int128"}`), `field "a": there is no type "int128"`},
		"unknown object":  {field(`{"name":"a","type":{"type":"set"}}`), `there is no type "set"`},
		"no type":         {field(`{"name":"a"}`), "a type is missing"},
		"no name":         {field(`{"type":"long"}`), "field 1 has no name"},
		"precision":       {field(`{"name":"a","type":"decimal(39,0)"}`), "1 ≤ precision ≤ 38"},
		"scale":           {field(`{"name":"a","type":"decimal(3,4)"}`), "1 ≤ precision ≤ 38"},
		"decimal rubbish": {field(`{"name":"a","type":"decimal(3"}`), "isn't a decimal"},
		"twice":           {field(`{"name":"a","type":"long"},{"name":"A","type":"long"}`), "stands twice"},
		"map without key": {field(`{"name":"a","type":{"type":"map","valueType":"long"}}`), "key: a type is missing"},
		"too deep": {
			field(`{"name":"a","type":` + strings.Repeat(`{"type":"array","elementType":`, 70) + `"long"` + strings.Repeat("}", 70) + `}`),
			"nested more than 64 deep",
		},
	} {
		if _, err := ParseSchema(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestArrowSchema(t *testing.T) {
	s, err := ParseSchema(everyType)
	if err != nil {
		t.Fatal(err)
	}
	a, err := ArrowSchema(s)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range a.Fields() {
		back, ok := FromArrow(f.Type)
		if want := s.Fields[i].Type; !ok || !Equal(want, back) {
			t.Errorf("%s: %v became %v and then %v", f.Name, want, f.Type, back)
		}
		if f.Nullable != s.Fields[i].Nullable {
			t.Errorf("%s: nullable is %t", f.Name, f.Nullable)
		}
	}
	if _, ok := FromArrow(&arrow.TimestampType{Unit: arrow.Nanosecond}); ok {
		t.Error("nanoseconds have a Delta type")
	}
	if _, err := ArrowSchema(&Struct{Fields: []Field{{Name: "v", Type: Variant}}}); err == nil {
		t.Error("a variant has an Arrow type")
	}
	if a, err := ArrowSchema(&Struct{Fields: []Field{{Name: "v", Type: Void}, {Name: "i", Type: Long}}}); err != nil || a.NumFields() != 1 {
		t.Errorf("with a void column: %v, %v", a, err)
	}
}

const mappedSchema = `{"type":"struct","fields":[` +
	`{"name":"id","type":"long","nullable":true,"metadata":{"delta.columnMapping.id":1,"delta.columnMapping.physicalName":"col-1"}},` +
	`{"name":"s","type":{"type":"struct","fields":[{"name":"x y","type":"long","nullable":true,` +
	`"metadata":{"delta.columnMapping.id":3,"delta.columnMapping.physicalName":"col-3"}}]},"nullable":true,` +
	`"metadata":{"delta.columnMapping.id":2,"delta.columnMapping.physicalName":"col-2"}}]}`

func TestColumnMapping(t *testing.T) {
	s, err := ParseSchema(mappedSchema)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []Mapping{MappingName, MappingID} {
		p, err := s.Physical(m)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := p.String(), "struct<col-1:long,col-2:struct<col-3:long>>"; got != want {
			t.Errorf("%s: %s, want %s", m, got, want)
		}
		a, err := ArrowSchema(p)
		if err != nil {
			t.Fatal(err)
		}
		if id, _ := a.Field(1).Metadata.GetValue(fieldIDKey); id != "2" {
			t.Errorf("%s: field id %q, want 2", m, id)
		}
	}
	if p, err := s.Physical(MappingNone); err != nil || p != s {
		t.Errorf("without mapping: %v, %v", p, err)
	}
	plain, err := ParseSchema(everyType)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plain.Physical(MappingName); err == nil || !strings.Contains(err.Error(), `column "b" has no delta.columnMapping.physicalName`) {
		t.Errorf("a schema without names: %v", err)
	}
	if m, err := MappingOf(map[string]string{PropertyMapping: "NAME"}); m != MappingName || err != nil {
		t.Errorf("NAME: %v, %v", m, err)
	}
	if _, err := MappingOf(map[string]string{PropertyMapping: "sideways"}); err == nil {
		t.Error("a mode that isn't one was read")
	}
}

func FuzzSchema(f *testing.F) {
	f.Add(everyType)
	f.Add(mappedSchema)
	f.Add(`{"type":"struct","fields":[{"name":"a","type":"decimal"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSchema(text)
		if err != nil {
			return
		}
		out, err := SchemaJSON(s)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseSchema(out)
		if err != nil || !Equal(s, again) {
			t.Fatalf("%s became %s: %v", text, out, err)
		}
	})
}
