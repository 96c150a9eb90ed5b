package delta

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/format/delta"
)

// conflictCase is one history: files that are there, what we read of them, what
// another commits, what we want to commit. Files are written as +c2 (add part=2/c)
// and -c2 (remove), in tables with nested partitions as +c21 (a=2, b=1). ~ before
// them means that the rows only move.
type conflictCase struct {
	name     string
	before   string
	reads    []string // predicates; "*" is everything
	whole    bool
	winner   string
	blind    bool // the winner read nothing
	attempt  string
	level    Isolation
	metadata bool // the winner changes the schema
	apps     string
	winnerOf string // the winner's transaction
	want     ConflictKind
}

// sparkCases are the histories that Spark's own tests of its rules have
// (reference/delta.md §2.1), in our notation.
var sparkCases = []conflictCase{
	{name: "append against a change of metadata", attempt: "+a", metadata: true, want: MetadataChanged},
	{name: "read and append against append", reads: []string{"*"}, winner: "+a", blind: true, attempt: "+b", want: ConcurrentAppend},
	{name: "read and append against append, write serializable", reads: []string{"*"}, winner: "+a", blind: true, attempt: "+b", level: WriteSerializable},
	{name: "blind append against any change of data", before: "a", winner: "-a +b", attempt: "+c"},
	{name: "read, append and delete against no change", before: "a", reads: []string{"*"}, attempt: "-a +b"},

	{name: "disjoint partitions", before: "a1 e3", reads: []string{"part=3"}, winner: "+b1", attempt: "+c2 -e3"},
	{name: "disjoint partitions, all read", before: "a1 d2", reads: []string{"part=1"}, winner: "+c2 -d2", attempt: "+e3 +f3"},
	{name: "the partition read was appended to", before: "a1 d2 e3", reads: []string{"part=1"}, winner: "+b1", attempt: "+c2 +e3", want: ConcurrentAppend},
	{name: "full scan", before: "a1 d2", reads: []string{"*", "part=1"}, winner: "+c2 -d2", attempt: "+e3 +f3", want: ConcurrentAppend},
	{name: "nested, disjoint adds", before: "a11", reads: []string{"a=1&b=1"}, winner: "+b12", attempt: "+c21"},
	{name: "nested, adds to one partition that wasn't read", before: "a11", reads: []string{"a=1&b=1"}, winner: "+b12", attempt: "+x12"},
	{name: "nested, read at the first level", before: "a11 b12", reads: []string{"a=1"}, winner: "+c21", attempt: "+d31"},
	{name: "nested, a file that was read at the first level is deleted", before: "a11 b12", reads: []string{"a=1"}, winner: "-a11", attempt: "+d31", want: ConcurrentDeleteRead},
	{name: "nested, full read against a write at the second level", before: "a11", reads: []string{"*"}, winner: "+b12", attempt: "+c21", want: ConcurrentAppend},
	{name: "nested, a range against a write at the second level", before: "a11", reads: []string{"a>=1|b>1"}, winner: "+b12", attempt: "+d31", want: ConcurrentAppend},
	{name: "both remove one file", before: "b12", reads: []string{"a=2"}, winner: "-b12", attempt: "-b12", want: ConcurrentDeleteDelete},
	{name: "full read against an add anywhere", before: "a1 c2", reads: []string{"*"}, winner: "-c2 +b1", attempt: "+d2", want: ConcurrentAppend},
	{name: "full read against a delete anywhere", before: "a1 c2", reads: []string{"*"}, winner: "-a1", attempt: "-b1", want: ConcurrentDeleteRead},

	{name: "replaceWhere on nothing", before: "a1", reads: []string{"part>=2"}, winner: "+e3", attempt: "+c2", want: ConcurrentAppend},
	{name: "replaceWhere on nothing, disjoint", before: "a1", reads: []string{"part>3"}, winner: "+c2", attempt: "+g4"},
	{name: "replaceWhere with predicates that overlap", before: "a1 g4", reads: []string{"part>=2"}, winner: "-a1 +c2", attempt: "-g4 +e3", want: ConcurrentAppend},
	{name: "read against an add in one partition", before: "a1", reads: []string{"part=1"}, winner: "+b1", attempt: "+e3", want: ConcurrentAppend},
	{name: "read against a delete in one partition", before: "a1 b1", reads: []string{"part=1"}, winner: "-a1", attempt: "+e3", want: ConcurrentDeleteRead},
	{name: "two replaceWhere of one partition", before: "a1", reads: []string{"part=1"}, winner: "-a1 +b1", attempt: "-a1 +c1", want: ConcurrentAppend},
	{name: "two replaceWhere that share a partition", before: "a1 c2 e3", reads: []string{"part=3|part=2"}, winner: "-a1 -e3 +b1", attempt: "-c2 -e3 +d2", want: ConcurrentDeleteRead},
	{name: "full scan after the other's write", before: "a1 e3", reads: []string{"part=1", "*"}, winner: "+c2", attempt: "-a1", want: ConcurrentAppend},
	{name: "a predicate of partition and data columns", before: "a1 e3", reads: []string{"part=1|year>2019"}, winner: "+c2", attempt: "-a1", want: ConcurrentAppend},
	{name: "two scans, the second was written to", before: "a1 e3", reads: []string{"part=1", "part>1&part<3"}, winner: "+c2", attempt: "-a1", want: ConcurrentAppend},

	{name: "moving rows while others are added", before: "a1 b1", reads: []string{"*"}, winner: "+e3", attempt: "~-a1 -b1 +c1"},
	{name: "moving rows that are deleted meanwhile", before: "a1 b1", reads: []string{"*"}, winner: "-a1", attempt: "~-a1 -b1 +c1", want: ConcurrentDeleteRead},
	{name: "the whole table was read", before: "a1", whole: true, winner: "-a1", blind: true, attempt: "+b1", want: ConcurrentDeleteRead},

	{name: "transactions of two applications", apps: "t1", winnerOf: "t2"},
	{name: "transactions of one application", apps: "t1", winnerOf: "t1", want: ConcurrentTransaction},
}

func conflictTable() delta.Definition {
	text := func(n string) delta.Field { return delta.Field{Name: n, Type: delta.String, Nullable: true} }
	return delta.Definition{
		Protocol:  delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 2},
		Schema:    &delta.Struct{Fields: []delta.Field{text("part"), text("a"), text("b"), {Name: "year", Type: delta.Long, Nullable: true}}},
		Partition: []string{"part", "a", "b"}, Properties: map[string]string{},
	}
}

// fileOf reads c2 and c21.
func fileOf(name string) *Add {
	v := func(s string) *string { return &s }
	f := &Add{Path: name, PartitionValues: map[string]*string{}, Size: 1, DataChange: true}
	switch len(name) {
	case 2:
		f.PartitionValues["part"], f.Path = v(name[1:]), "part="+name[1:]+"/"+name[:1]
	case 3:
		f.PartitionValues["a"], f.PartitionValues["b"] = v(name[1:2]), v(name[2:])
		f.Path = "a=" + name[1:2] + "/b=" + name[2:] + "/" + name[:1]
	}
	return f
}

func commitOf(text string) (c Commit) {
	rest, moved := strings.CutPrefix(text, "~")
	for f := range strings.FieldsSeq(rest) {
		add := fileOf(f[1:])
		add.DataChange = !moved
		if f[0] == '+' {
			c.Adds = append(c.Adds, add)
		} else {
			c.Removes = append(c.Removes, add.removal(1, !moved))
		}
	}
	return c
}

func predicateOf(text string) delta.Predicate {
	if text == "*" {
		return delta.Everything
	}
	var p delta.Predicate
	for t := range strings.SplitSeq(text, "|") {
		var term delta.Term
		for c := range strings.SplitSeq(t, "&") {
			i := strings.IndexAny(c, "<=>")
			j := strings.LastIndexAny(c, "<=>") + 1
			term = append(term, delta.Comparison{Column: c[:i], Op: delta.Op(c[i:j]), Value: c[j:]})
		}
		p = append(p, term)
	}
	return p
}

func (c conflictCase) check() error {
	d := conflictTable()
	if c.level != "" {
		d.Properties[delta.PropertyIsolation] = string(c.level)
	}
	m := Metadata{ID: "t", SchemaString: "old", PartitionColumns: d.Partition, Configuration: d.Properties}
	a := Attempt{Definition: d, Operation: delta.OperationOverwrite, Metadata: m, WholeTable: c.whole, Commit: commitOf(c.attempt)}
	if c.apps != "" {
		a.AppIDs = strings.Fields(c.apps)
	}
	for _, r := range c.reads {
		p := predicateOf(r)
		a.Predicates = append(a.Predicates, p)
		for f := range strings.FieldsSeq(c.before) {
			if add := fileOf(f); p.Matches(d, add.PartitionValues) {
				a.Files = append(a.Files, add.Path)
			}
		}
	}
	w := Winner{Version: 7, Commit: commitOf(c.winner)}
	w.Commit.Info.IsBlindAppend = &c.blind
	if c.metadata {
		changed := m
		changed.SchemaString = "new"
		w.Commit.Metadata = &changed
	}
	if c.winnerOf != "" {
		w.Commit.Txns = []Txn{{AppID: c.winnerOf, Version: 1}}
	}
	return CheckConflict(a, w)
}

func TestConflictsAsSpark(t *testing.T) {
	if len(sparkCases) != 33 {
		t.Errorf("%d cases, want 33", len(sparkCases))
	}
	for _, c := range sparkCases {
		var got ConflictKind
		err := c.check()
		if e, ok := errors.AsType[*ConflictError](err); ok {
			got = e.Kind
		}
		if got != c.want || (err != nil) != (c.want != "") {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestConflictsOfTables: changes of protocol, metadata and domains.
func TestConflictsOfTables(t *testing.T) {
	d := conflictTable()
	m := Metadata{ID: "t", SchemaString: "s", Configuration: map[string]string{"a": "1"}}
	blind := func() Attempt {
		return Attempt{Definition: d, Operation: delta.OperationAppend, Metadata: m, Commit: commitOf("+a1")}
	}
	features := func(reader, writer []string) *delta.Protocol {
		return &delta.Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: append([]string{}, reader...), WriterFeatures: append([]string{}, writer...)}
	}
	with := func(k, v string) *Metadata {
		c := m
		c.Configuration = map[string]string{"a": "1", k: v}
		return &c
	}
	for _, c := range []struct {
		name    string
		attempt func(*Attempt)
		winner  Commit
		want    ConflictKind
	}{
		{"a protocol that we can write", nil, Commit{Protocol: features(nil, []string{"domainMetadata"})}, ""},
		{"a protocol that we can't write", nil, Commit{Protocol: features(nil, []string{"icebergCompatV2"})}, ProtocolChanged},
		{"both change the protocol", func(a *Attempt) { a.Commit.Protocol = features(nil, nil) }, Commit{Protocol: features(nil, nil)}, ProtocolChanged},
		{"a feature is dropped", func(a *Attempt) { a.Definition.Protocol = *features(nil, []string{"domainMetadata"}) }, Commit{Protocol: features(nil, nil)}, ProtocolChanged},
		{"a property that commits don't mind", nil, Commit{Metadata: with(delta.PropertyDeletionVectors, "true")}, ""},
		{"the same, but we change metadata too", func(a *Attempt) { a.Commit.Metadata = &m }, Commit{Metadata: with(delta.PropertyDeletionVectors, "true")}, MetadataChanged},
		{"another property", nil, Commit{Metadata: with(delta.PropertyAppendOnly, "true")}, MetadataChanged},
		{"other partition columns", nil, Commit{Metadata: &Metadata{ID: "t", SchemaString: "s", PartitionColumns: []string{"a"}, Configuration: m.Configuration}}, MetadataChanged},
		{"another table", nil, Commit{Metadata: &Metadata{ID: "u", SchemaString: "s", Configuration: m.Configuration}}, MetadataChanged},
		{"one domain", func(a *Attempt) { a.Commit.Domains = []DomainMetadata{{Domain: "x"}} }, Commit{Domains: []DomainMetadata{{Domain: "x"}}}, DomainChanged},
		{"two domains", func(a *Attempt) { a.Commit.Domains = []DomainMetadata{{Domain: "x"}} }, Commit{Domains: []DomainMetadata{{Domain: "y"}}}, ""},
		{"row tracking's domain", func(a *Attempt) { a.Commit.Domains = []DomainMetadata{{Domain: domainRowTracking}} }, Commit{Domains: []DomainMetadata{{Domain: domainRowTracking}}}, ""},
		{"a transaction that isn't ours", nil, Commit{Txns: []Txn{{AppID: "x"}}}, ""},
		{"a blind append against a rewrite", nil, commitOf("~-a1 +b1"), ""},
		{"paths that are spelled otherwise", func(a *Attempt) { a.Files = []string{"a%20b"} }, Commit{Removes: []*Remove{{Path: "a b"}}}, ConcurrentDeleteRead},
	} {
		a := blind()
		if c.attempt != nil {
			c.attempt(&a)
		}
		err := CheckConflict(a, Winner{Version: 3, Commit: c.winner})
		e, _ := errors.AsType[*ConflictError](err)
		if (err != nil) != (c.want != "") || e != nil && (e.Kind != c.want || e.Version != 3) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestNullPartitionsInPredicates: a null is below and above nothing, and the same
// as itself only where that was asked for.
func TestNullPartitionsInPredicates(t *testing.T) {
	d := conflictTable()
	null := map[string]*string{"PART": nil} // names match without regard to case
	for op, want := range map[delta.Op]bool{delta.OpSame: true, delta.OpEqual: false, delta.OpLess: false, delta.OpGreaterEqual: false} {
		p := delta.Predicate{{{Column: "part", Op: op}}}
		if got := p.Matches(d, null); got != want {
			t.Errorf("null %s null is %t", op, got)
		}
	}
	for _, s := range []string{"part=1", "part<9"} {
		if predicateOf(s).Matches(d, null) {
			t.Errorf("%s selects the null partition", s)
		}
	}
	if !predicateOf("year>5").All(d) || predicateOf("part=1").All(d) || !predicateOf("part=1|year>5").All(d) {
		t.Error("All is wrong")
	}
	if got := fmt.Sprint(slices.Collect(func(yield func(bool) bool) {
		for _, v := range []string{"1", "2", "3"} {
			if !yield(predicateOf("part>1&part<=2").Matches(d, map[string]*string{"part": &v})) {
				return
			}
		}
	})); got != "[false true false]" {
		t.Errorf("a range selects %s", got)
	}
}
