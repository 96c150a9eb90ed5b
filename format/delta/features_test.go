package delta

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	readerFeatures = []string{
		"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening", "typeWidening-preview",
		"variantType", "variantType-preview", "variantShredding", "variantShredding-preview", "catalogManaged", "catalogOwned-preview",
		"redirectReaderWriter-preview", "geospatial", "timestampNanos",
	}
	plainSchema = &Struct{Fields: []Field{{Name: "p", Type: String}, {Name: "v", Type: Long, Nullable: true}}}
)

// with is a table that supports the features by name.
func with(names ...string) Definition {
	d := Definition{
		Protocol: Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{}, WriterFeatures: append([]string{}, names...)},
		Schema:   plainSchema, Partition: []string{"p"},
	}
	for _, n := range names {
		if slices.Contains(readerFeatures, n) {
			d.Protocol.ReaderFeatures = append(d.Protocol.ReaderFeatures, n)
		}
	}
	return d
}

func (d Definition) property(k, v string) Definition {
	p := map[string]string{k: v}
	maps.Copy(p, d.Properties)
	d.Properties = p
	return d
}

func (d Definition) column(f Field) Definition {
	d.Schema = &Struct{Fields: append(slices.Clone(d.Schema.Fields), f)}
	return d
}

func marked(key string) Field {
	return Field{Name: "x", Type: Long, Nullable: true, Metadata: map[string]json.RawMessage{key: json.RawMessage(`"1"`)}}
}

func inside(f Field) Field {
	return Field{Name: "outer", Type: &Array{Element: &Struct{Fields: []Field{f}}}, Nullable: true}
}

// TestFeatureMatrix is reference/delta.md §1.5: for each feature and operation,
// done right (no letter) or refused by name. The letters are l(ist), s(can),
// a(ppend), o(verwrite) and r(ewrite).
func TestFeatureMatrix(t *testing.T) {
	variant := Field{Name: "x", Type: Variant, Nullable: true}
	void := Field{Name: "x", Type: Void, Nullable: true}
	for _, c := range []struct {
		name    string
		table   Definition
		refused string // operations
		why     string
	}{
		{"nothing", with(), "", ""},
		{"appendOnly off", with("appendOnly"), "", ""},
		{"appendOnly on", with("appendOnly").property(PropertyAppendOnly, "true"), "o", "appendOnly"},
		{"appendOnly set, not supported", with().property(PropertyAppendOnly, "true"), "", ""},
		{"appendOnly rubbish", with("appendOnly").property(PropertyAppendOnly, "maybe"), "o", "neither true nor false"},
		{"invariants unused", with("invariants"), "", ""},
		{"invariants", with("invariants").column(marked(keyInvariants)), "aor", "invariants"},
		{"invariants inside", with("invariants").column(inside(marked(keyInvariants))), "aor", "invariants"},
		{"checkConstraints unused", with("checkConstraints"), "", ""},
		{"checkConstraints", with("checkConstraints").property("delta.constraints.positive", "v > 0"), "aor", `CHECK constraint "positive"`},
		{"generatedColumns unused", with("generatedColumns"), "", ""},
		{"generatedColumns", with("generatedColumns").column(marked(keyGenerated)), "aor", "generatedColumns"},
		{"allowColumnDefaults", with("allowColumnDefaults").column(marked(keyDefault)), "", ""},
		{"identityColumns unused", with("identityColumns"), "", ""},
		{"identityColumns", with("identityColumns").column(marked("delta.identity.start")), "aor", "identityColumns"},
		{"changeDataFeed", with("changeDataFeed").property(PropertyChangeDataFeed, "true"), "", ""},
		{"changeDataFeed with its column", with("changeDataFeed").property(PropertyChangeDataFeed, "true").column(Field{Name: "_change_type", Type: String}), "aor", "_change_type"},
		{"columnMapping none", with("columnMapping").property(PropertyMapping, "none"), "", ""},
		{"columnMapping name", with("columnMapping").property(PropertyMapping, "name"), "aor", "columnMapping"},
		{"columnMapping id", with("columnMapping").property(PropertyMapping, "id"), "aor", "columnMapping"},
		{"deletionVectors", with("deletionVectors").property(PropertyDeletionVectors, "true"), "", ""},
		{"rowTracking", with("rowTracking", "domainMetadata"), "aor", "rowTracking"},
		{"rowTracking suspended", with("rowTracking", "domainMetadata").property(PropertyRowTrackingSuspended, "true"), "", ""},
		{"domainMetadata", with("domainMetadata"), "", ""},
		{"inCommitTimestamp", with("inCommitTimestamp").property(PropertyInCommitTimestamps, "true"), "", ""},
		{"v2Checkpoint", with("v2Checkpoint"), "", ""},
		{"timestampNtz", with("timestampNtz").column(Field{Name: "n", Type: TimestampNTZ}), "", ""},
		{"typeWidening", with("typeWidening"), "", ""},
		{"variantType unused", with("variantType"), "", ""},
		{"variantType", with("variantType").column(variant), "saor", "variantType"},
		{"variantType inside", with("variantType-preview").column(inside(variant)), "saor", "variantType-preview"},
		{"variantShredding", with("variantShredding-preview").column(variant), "saor", "variantShredding-preview"},
		{"a variant without a feature", with().column(variant), "saor", "the type variant"},
		{"clustering", with("clustering", "domainMetadata"), "", ""},
		{"icebergCompatV1", with("icebergCompatV1"), "aor", "icebergCompatV1"},
		{"icebergCompatV2", with("icebergCompatV2"), "aor", "icebergCompatV2"},
		{"icebergCompatV3", with("icebergCompatV3"), "aor", "icebergCompatV3"},
		{"icebergWriterCompatV1", with("icebergWriterCompatV1"), "aor", "icebergWriterCompatV1"},
		{"vacuumProtocolCheck", with("vacuumProtocolCheck"), "", ""},
		{"catalogManaged", with("catalogManaged"), "lsaor", "catalogManaged"},
		{"catalogOwned-preview", with("catalogOwned-preview"), "lsaor", "catalogOwned-preview"},
		{"coordinatedCommits-preview", with("coordinatedCommits-preview"), "lsaor", "coordinatedCommits-preview"},
		{"coordinatedCommits", with().property("delta.coordinatedCommits.commitCoordinator-preview", "dynamodb"), "aor", "coordinatedCommits"},
		{"checkpointProtection", with("checkpointProtection"), "", ""},
		{"materializePartitionColumns", with("materializePartitionColumns"), "aor", "materializePartitionColumns"},
		{"redirect", with("redirectReaderWriter-preview"), "aor", "redirectReaderWriter-preview"},
		{"redirect of writers", with("redirectWriterOnly-preview"), "aor", "redirectWriterOnly-preview"},
		{"collations", with("collations-preview").column(marked(keyCollations)), "aor", "collations-preview"},
		{"geospatial", with("geospatial"), "saor", "geospatial"},
		{"timestampNanos", with("timestampNanos"), "saor", "timestampNanos"},
		{"a void column", with().column(void), "", ""},
		{"a void inside", with().column(inside(void)), "saor", "the type void"},
		{"only void", Definition{Protocol: Protocol{MinReaderVersion: 1, MinWriterVersion: 2}, Schema: &Struct{Fields: []Field{void}}}, "saor", "the type void"},
		{"unknown writer feature", with("liquid"), "aor", `"liquid"`},
		{"unknown reader feature", Definition{Protocol: Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"new"}, WriterFeatures: []string{"new"}}, Schema: plainSchema}, "lsaor", `"new"`},
		{"protocol of the future", Definition{Protocol: Protocol{MinReaderVersion: 4, MinWriterVersion: 8}, Schema: plainSchema}, "lsaor", "versions up to (3, 7)"},
		{"partition column missing", Definition{Protocol: Protocol{MinReaderVersion: 1, MinWriterVersion: 2}, Schema: plainSchema, Partition: []string{"q"}}, "aor", `"q" isn't a column`},
		{"binary partition column", Definition{Protocol: Protocol{MinReaderVersion: 1, MinWriterVersion: 2}, Schema: one("x", Binary), Partition: []string{"x"}}, "aor", "binary"},
		{"only partition columns", Definition{Protocol: Protocol{MinReaderVersion: 1, MinWriterVersion: 2}, Schema: one("x", Long), Partition: []string{"x"}}, "aor", "every column"},
		// Versions imply features without naming them.
		{"writer 1", legacyTable(1, 1).property("delta.constraints.c", "x"), "", ""},
		{"writer 2", legacyTable(1, 2).property("delta.constraints.c", "x"), "", ""},
		{"writer 2 appendOnly", legacyTable(1, 2).property(PropertyAppendOnly, "true"), "o", "appendOnly"},
		{"writer 3", legacyTable(1, 3).property("delta.constraints.c", "x"), "aor", "checkConstraints"},
		{"writer 4", legacyTable(1, 4).column(marked(keyGenerated)), "aor", "generatedColumns"},
		{"writer 4 identity", legacyTable(1, 4).column(marked("delta.identity.step")), "", ""},
		{"writer 5", legacyTable(2, 5).property(PropertyMapping, "name"), "aor", "columnMapping"},
		{"writer 6", legacyTable(2, 6).column(marked("delta.identity.step")), "aor", "identityColumns"},
		{"writer 6 with nothing used", legacyTable(1, 6), "", ""},
	} {
		for letter, op := range map[string]Operation{
			"l": OperationList, "s": OperationScan, "a": OperationAppend, "o": OperationOverwrite, "r": OperationRewrite,
		} {
			err := CheckOperation(c.table, op)
			if want := strings.Contains(c.refused, letter); (err != nil) != want {
				t.Errorf("%s: %s: %v, want refused %t", c.name, op, err, want)
			}
			if u, ok := errors.AsType[*UnsupportedError](err); err != nil && (!ok || u.Operation != op || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("%s: %s: %v, want %q in it", c.name, op, err, c.why)
			}
		}
	}
}

func legacyTable(reader, writer int) Definition {
	return Definition{Protocol: Protocol{MinReaderVersion: reader, MinWriterVersion: writer}, Schema: plainSchema}
}

func TestEachFeatureHasACase(t *testing.T) {
	// Names that the protocol and its proposals use, reference/delta.md §1.4 and §1.5.
	for n := range strings.FieldsSeq(`appendOnly invariants checkConstraints generatedColumns allowColumnDefaults identityColumns changeDataFeed
		columnMapping deletionVectors rowTracking domainMetadata inCommitTimestamp v2Checkpoint timestampNtz typeWidening variantType
		variantShredding clustering icebergCompatV1 icebergCompatV2 vacuumProtocolCheck catalogManaged checkpointProtection
		materializePartitionColumns typeWidening-preview variantType-preview variantShredding-preview collations-preview icebergCompatV3
		icebergWriterCompatV1 redirectReaderWriter-preview coordinatedCommits-preview inCommitTimestamp-preview geospatial timestampNanos`) {
		if featureByName(n) == nil {
			t.Errorf("the matrix has no row for %s", n)
		}
	}
}

func TestProtocolCheck(t *testing.T) {
	for _, c := range []struct {
		p    Protocol
		want string
	}{
		{Protocol{MinReaderVersion: 1, MinWriterVersion: 1}, ""},
		{Protocol{MinReaderVersion: 2, MinWriterVersion: 5}, ""},
		{Protocol{MinReaderVersion: 1, MinWriterVersion: 7, WriterFeatures: []string{"appendOnly"}}, ""},
		{Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{}, WriterFeatures: []string{}}, ""},
		{Protocol{}, "versions begin at 1"},
		{Protocol{MinReaderVersion: 5, MinWriterVersion: 7}, "versions up to"},
		{Protocol{MinReaderVersion: 3, MinWriterVersion: 7}, "reader features are listed"},
		{Protocol{MinReaderVersion: 3, MinWriterVersion: 6, ReaderFeatures: []string{}}, "reader version 3 needs"},
		{Protocol{MinReaderVersion: 2, MinWriterVersion: 7, ReaderFeatures: []string{"x"}, WriterFeatures: []string{"x"}}, "reader features are listed"},
		{Protocol{MinReaderVersion: 1, MinWriterVersion: 7}, "writer features are listed"},
		{Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"x"}, WriterFeatures: []string{}}, "not for writers"},
	} {
		err := c.p.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.p, err, c.want)
		}
	}
}

func TestProperties(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"interval 1 week": 7 * 24 * time.Hour, "interval 30 days": 720 * time.Hour, "7 days 12 hours": 180 * time.Hour, "0 seconds": 0,
	} {
		if got, err := ParseInterval(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "interval", "1", "1 month", "-1 day", "x days", "99999999999999 weeks", "1 year"} {
		if got, err := ParseInterval(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
	for text, want := range map[string]int64{"": 10, "1": 1, " 100 ": 100, "0": 10, "-5": 10, "often": 10} {
		if got := CheckpointInterval(map[string]string{PropertyCheckpointInterval: text}); got != want {
			t.Errorf("checkpoint interval %q: %d, want %d", text, got, want)
		}
	}
	if _, ok, err := TxnRetention(nil); ok || err != nil {
		t.Errorf("no retention of txn: %t, %v", ok, err)
	}
	if d, ok, err := TxnRetention(map[string]string{PropertyTxnRetention: "interval 1 day"}); d != 24*time.Hour || !ok || err != nil {
		t.Errorf("retention of txn: %v, %t, %v", d, ok, err)
	}
	if d, err := FileRetention(nil); d != 7*24*time.Hour || err != nil {
		t.Errorf("retention of files: %v, %v", d, err)
	}
}
