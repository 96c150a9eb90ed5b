package delta

import (
	"encoding/json"
	"fmt"
	"strings"
)

// feature is one row of the feature matrix: what a table feature asks of each
// operation, and whether that is done. A legacy version implies the feature
// without naming it.
type feature struct {
	name         string
	legacyWriter int
	// always: the rule holds whether or not the protocol names the feature.
	always bool
	// Rules by operation; nil where there's nothing to do that isn't done.
	list, scan, add, overwrite, rewrite rule
}

// rule gives the reason to refuse, empty when there is none.
type rule func(d Definition) string

func (f *feature) refuses(d Definition, op Operation) string {
	r := map[Operation]rule{
		OperationList: f.list, OperationScan: f.scan, OperationAppend: f.add,
		OperationOverwrite: f.overwrite, OperationRewrite: f.rewrite,
	}[op]
	if r == nil {
		return ""
	}
	return r(d)
}

// writes makes a row with one rule for everything that writes.
func writes(name string, r rule) feature {
	return feature{name: name, add: r, overwrite: r, rewrite: r}
}

func legacy(version int, f feature) feature {
	f.legacyWriter = version
	return f
}

// whatever is a rule for what the protocol doesn't have to name.
func whatever(f feature) feature {
	f.always = true
	return f
}

func never(why string) rule { return func(Definition) string { return why } }

// features is the matrix. Names that end in -preview were used by tables before
// the feature was final, and mean the same.
var features = []feature{
	// The table says that rows are only added.
	legacy(2, feature{name: "appendOnly", overwrite: appendOnly}),
	// Expressions on columns; nothing here evaluates SQL on each written row.
	legacy(2, writes("invariants", fieldKey(keyInvariants, "the expression isn't checked by this version"))),
	legacy(3, writes("checkConstraints", constraints)),
	legacy(4, writes("generatedColumns", fieldKey(keyGenerated, "the expression isn't computed by this version"))),
	// Firn writes every column, so no row lacks a value.
	{name: "allowColumnDefaults"},
	legacy(6, writes("identityColumns", identity)),
	// Files that were only added or removed are read as such from the log.
	legacy(4, writes("changeDataFeed", changeColumns)),
	legacy(5, writes("columnMapping", mapped)),
	// No vector is ever made; those there are go with their files.
	{name: "deletionVectors"},
	writes("rowTracking", rowTracking),
	{name: "domainMetadata"},
	{name: "inCommitTimestamp"},
	{name: "inCommitTimestamp-preview"},
	// Checkpoints of version 2 are read; those written are classic, which is
	// always allowed.
	{name: "v2Checkpoint"},
	{name: "timestampNtz"},
	// Files have the schema's present types.
	{name: "typeWidening"},
	{name: "typeWidening-preview"},
	scanToo(writes("variantType", variants)),
	scanToo(writes("variantType-preview", variants)),
	scanToo(writes("variantShredding", variants)),
	scanToo(writes("variantShredding-preview", variants)),
	// The columns that the table is clustered by have statistics, see IndexedLeaves.
	{name: "clustering"},
	writes("icebergCompatV1", never("its files need field ids of every level and an Iceberg table kept beside them")),
	writes("icebergCompatV2", never("its files need field ids of every level and an Iceberg table kept beside them")),
	writes("icebergCompatV3", never("its files need field ids of every level and an Iceberg table kept beside them")),
	writes("icebergWriterCompatV1", never("its files need field ids of every level and an Iceberg table kept beside them")),
	// Only for those who delete old files; Firn doesn't.
	{name: "vacuumProtocolCheck"},
	managed("catalogManaged"),
	managed("catalogOwned-preview"),
	managed("coordinatedCommits-preview"),
	// Only for those who delete old log files; Firn doesn't.
	{name: "checkpointProtection"},
	writes("materializePartitionColumns", never("its files must hold the partition columns, which this version leaves out")),
	writes("redirectReaderWriter-preview", never("the table points to another place")),
	writes("redirectWriterOnly-preview", never("the table points to another place")),
	writes("collations-preview", collated),
	scanToo(writes("geospatial", never("this version has no such types"))),
	scanToo(writes("timestampNanos", never("this version has no nanoseconds"))),

	whatever(writes("coordinatedCommits", coordinated)),
	whatever(writes("the collation of a column", collated)),
	whatever(scanToo(writes("the type void", voids))),
	whatever(scanToo(writes("the type variant", variants))),
	whatever(writes("the partition columns", partitions)),
}

func featureByName(name string) *feature {
	for i := range features {
		if features[i].name == name && !features[i].always {
			return &features[i]
		}
	}
	return nil
}

// scanToo applies the rule of writes to reading rows.
func scanToo(f feature) feature {
	f.scan = f.add
	return f
}

// managed: commits go through a catalog, and the log's files alone don't tell
// the newest version.
func managed(name string) feature {
	r := never("a catalog decides which commits count, and the files of the log don't say")
	return feature{name: name, list: r, scan: r, add: r, overwrite: r, rewrite: r}
}

func appendOnly(d Definition) string {
	on, err := Bool(d.Properties, PropertyAppendOnly, false)
	switch {
	case err != nil:
		return err.Error()
	case on:
		return PropertyAppendOnly + " is true, so rows can't be removed"
	}
	return ""
}

// fieldKey refuses when a field, at any depth, has a key in its metadata.
func fieldKey(key, why string) rule {
	return func(d Definition) string {
		found := ""
		walk(d.Schema, func(f *Field) bool {
			if _, ok := f.Metadata[key]; ok {
				found = fmt.Sprintf("column %.200q has %s, and %s", f.Name, key, why)
			}
			return found != ""
		})
		return found
	}
}

func constraints(d Definition) string {
	for k := range d.Properties {
		if name, ok := strings.CutPrefix(k, prefixConstraints); ok {
			return fmt.Sprintf("the CHECK constraint %.200q isn't evaluated by this version", name)
		}
	}
	return ""
}

func identity(d Definition) string {
	found := ""
	walk(d.Schema, func(f *Field) bool {
		for k := range f.Metadata {
			if strings.HasPrefix(k, "delta.identity.") {
				found = fmt.Sprintf("column %.200q takes its values from the table, and this version gives none out", f.Name)
			}
		}
		return found != ""
	})
	return found
}

// changeColumns: a change feed takes files' columns of these names for its own.
func changeColumns(d Definition) string {
	on, err := Bool(d.Properties, PropertyChangeDataFeed, false)
	if err != nil {
		return err.Error()
	}
	for _, name := range []string{"_change_type", "_commit_version", "_commit_timestamp"} {
		if on && d.Schema.Column(name) != nil {
			return fmt.Sprintf("the table records its changes, and column %s is the change feed's own", name)
		}
	}
	return ""
}

func mapped(d Definition) string {
	m, err := MappingOf(d.Properties)
	switch {
	case err != nil:
		return err.Error()
	case m != MappingNone:
		return fmt.Sprintf("columns are mapped by %s, and this version writes no such files", m)
	}
	return ""
}

func rowTracking(d Definition) string {
	suspended, err := Bool(d.Properties, PropertyRowTrackingSuspended, false)
	switch {
	case err != nil:
		return err.Error()
	case !suspended:
		return "each row has an id, and this version gives none out"
	}
	return ""
}

func variants(d Definition) string {
	return typeIn(d, Variant, "this version neither reads nor writes a variant")
}

func typeIn(d Definition, t Type, why string) string {
	for i := range d.Schema.Fields {
		f := &d.Schema.Fields[i]
		if contains(f.Type, func(u Type) bool { return u == t }) {
			return fmt.Sprintf("column %.200q: %s", f.Name, why)
		}
	}
	return ""
}

// voids: a column of no type is left out of files, which leaves nothing when all
// are, and can't be done inside lists, maps and structs.
func voids(d Definition) string {
	plain := len(d.Schema.Fields) == 0
	for i := range d.Schema.Fields {
		f := &d.Schema.Fields[i]
		if f.Type == Void {
			continue
		}
		plain = true
		if contains(f.Type, func(t Type) bool { return t == Void }) {
			return fmt.Sprintf("column %.200q holds a void", f.Name)
		}
	}
	if !plain {
		return "all columns are of type void"
	}
	return ""
}

func collated(d Definition) string {
	found := ""
	walk(d.Schema, func(f *Field) bool {
		raw, ok := f.Metadata[keyCollations]
		if !ok {
			return false
		}
		var byColumn map[string]string
		if json.Unmarshal(raw, &byColumn) != nil || len(byColumn) > 0 {
			found = fmt.Sprintf("column %.200q has a collation, and this version compares text by its bytes", f.Name)
		}
		return found != ""
	})
	return found
}

func coordinated(d Definition) string {
	for k, v := range d.Properties {
		if strings.HasPrefix(k, prefixCoordinated) && v != "" {
			return k + " is set: commits go through a coordinator"
		}
	}
	return ""
}

func partitions(d Definition) string {
	for _, p := range d.Partition {
		f := d.Schema.Column(p)
		if f == nil {
			return fmt.Sprintf("%.200q isn't a column of the table", p)
		}
		switch t := f.Type.(type) {
		case DecimalType:
		case Primitive:
			if t == Binary || t == Variant || t == Void {
				return fmt.Sprintf("%.200q is of type %v, whose values have no text that can be read back", p, t)
			}
		default:
			return fmt.Sprintf("%.200q is of type %v", p, t)
		}
	}
	if n := len(d.Schema.Fields); n > 0 && len(d.Partition) >= n {
		return "every column is a partition column, so files would have none"
	}
	return ""
}
