package iceberg_test

import (
	"strings"
	"testing"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/commit"
)

func TestCheckUnit(t *testing.T) {
	long, str, dbl := ice.PrimitiveTypes.Int64, ice.PrimitiveTypes.String, ice.PrimitiveTypes.Float64
	field := func(id int, name string, typ ice.Type, required bool) ice.NestedField {
		return ice.NestedField{ID: id, Name: name, Type: typ, Required: required}
	}
	old := []ice.NestedField{
		field(1, "i", ice.PrimitiveTypes.Int32, false), field(2, "f", ice.PrimitiveTypes.Float32, false),
		field(3, "d", ice.DecimalTypeOf(9, 2), false), field(4, "s", str, false),
		field(5, "st", &ice.StructType{FieldList: []ice.NestedField{field(6, "x", ice.PrimitiveTypes.Int32, false)}}, false),
		field(7, "l", &ice.ListType{ElementID: 8, Element: str}, false),
	}
	change := func(i int, f ice.NestedField) []ice.NestedField {
		out := append([]ice.NestedField(nil), old...)
		out[i] = f
		return out
	}
	for name, c := range map[string]struct {
		now  []ice.NestedField
		want string // part of the refusal, empty for none
	}{
		"column added":          {append(append([]ice.NestedField(nil), old...), field(9, "n", dbl, false)), ""},
		"column renamed":        {change(3, field(4, "other", str, false)), ""},
		"reordered":             {[]ice.NestedField{old[5], old[4], old[3], old[2], old[1], old[0]}, ""},
		"int to long":           {change(0, field(1, "i", long, false)), ""},
		"float to double":       {change(1, field(2, "f", dbl, false)), ""},
		"wider decimal":         {change(2, field(3, "d", ice.DecimalTypeOf(12, 2), false)), ""},
		"nested int to long":    {change(4, field(5, "st", &ice.StructType{FieldList: []ice.NestedField{field(6, "x", long, false)}}, false)), ""},
		"nested field added":    {change(4, field(5, "st", &ice.StructType{FieldList: []ice.NestedField{old[4].Type.(*ice.StructType).FieldList[0], field(9, "y", str, false)}}, false)), ""},
		"column dropped":        {old[:5], "column l (field id 7)"},
		"nested field dropped":  {change(4, field(5, "st", &ice.StructType{FieldList: []ice.NestedField{field(9, "y", str, false)}}, false)), "st.x"},
		"dropped and added":     {change(3, field(9, "s", str, false)), "column s (field id 4) was dropped"},
		"int to string":         {change(0, field(1, "i", str, false)), "string"},
		"other scale":           {change(2, field(3, "d", ice.DecimalTypeOf(12, 3), false)), "decimal"},
		"element type":          {change(5, field(7, "l", &ice.ListType{ElementID: 8, Element: long}, false)), "l.element"},
		"required column added": {append(append([]ice.NestedField(nil), old...), field(9, "n", dbl, true)), "column n was added"},
		"column made required":  {change(3, field(4, "s", str, true)), "may not be null"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, ice.NewSchema(0, old...), nil, nil)
			u := f.unit("a")
			f.foreign(table.NewAddSchemaUpdate(ice.NewSchema(1, c.now...)), table.NewSetCurrentSchemaUpdate(-1))
			if got := f.read().SchemaID(); got != 1 {
				t.Fatalf("schema %d is current", got)
			}
			err := f.read().CheckUnit(u)
			if c.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if commit.ReasonOf(err) != commit.ReasonTableChanged || commit.CodeOf(err) != commit.CodeTableChanged || commit.ConflictOf(err) != commit.ConflictSchema || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a refusal with %q", err, c.want)
			}
		})
	}
}

func TestCheckUnitSpecs(t *testing.T) {
	f := newFixture(t, idKV(), byK(), nil)
	u := f.unit("a", f.file(true, rows(new("x"), 1)))
	spec := ice.NewPartitionSpecID(1, ice.PartitionField{SourceIDs: []int{1}, FieldID: 1001, Name: "id", Transform: ice.BucketTransform{NumBuckets: 4}})
	f.foreign(table.NewAddPartitionSpecUpdate(&spec, false), table.NewSetDefaultSpecUpdate(-1))
	if f.read().SpecID() == u.SpecID {
		t.Fatal("the default spec didn't change")
	}
	if err := f.read().CheckUnit(u); err != nil {
		t.Errorf("the old spec is still in the table, and the unit is refused: %v", err)
	}
	f.append(u)
	if id := f.manifests()[0].PartitionSpecID(); int(id) != u.SpecID {
		t.Errorf("manifest of spec %d, want %d", id, u.SpecID)
	}
	sameIDs(t, "k = x", f.ids(ice.EqualTo(ice.Reference("k"), "x")), 1)
	u.SpecID = 17
	if err := f.read().CheckUnit(u); commit.ReasonOf(err) != commit.ReasonTableChanged {
		t.Errorf("a spec that's gone: %v", err)
	}
	u.SpecID, u.SchemaID = 0, 17
	if err := f.read().CheckUnit(u); commit.ReasonOf(err) != commit.ReasonTableChanged {
		t.Errorf("a schema that's gone: %v", err)
	}
}

// A column added while the job ran doesn't stop the append.
func TestColumnAddedMeanwhile(t *testing.T) {
	f := newFixture(t, idKV(), nil, nil)
	u := f.unit("a", f.file(false, rows(new("x"), 1)))
	fields := append(idKV().Fields(), ice.NestedField{ID: 4, Name: "n", Type: ice.PrimitiveTypes.Int32})
	f.foreign(table.NewAddSchemaUpdate(ice.NewSchema(1, fields...)), table.NewSetCurrentSchemaUpdate(-1))
	f.append(u)
	sameIDs(t, "all", f.ids(all()), 1)
	if id := f.meta().CurrentSnapshot().SchemaID; id == nil || *id != 1 {
		t.Errorf("the snapshot's schema is %v, want the table's current one", id)
	}
}
