package delta

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
)

// TableSpec is what a new table is made from.
type TableSpec struct {
	// ID is the table's identity and TxnID names the request; both are UUIDs that
	// nobody else has.
	ID, TxnID   string
	Description string
	Schema      *delta.Struct
	// Partition are columns of the schema.
	Partition  []string
	Properties map[string]string
	Now        time.Time
	// Engine is what commitInfo names as the writer.
	Engine string
}

// txnRetention is how long new tables keep txn actions. Without it they'd be kept
// for ever, one for each key.
const txnRetention = "interval 30 days"

// createProperties are the properties of Delta's own that a table can be made
// with. The others switch on what this version doesn't write, or aren't known.
var createProperties = []string{
	delta.PropertyAppendOnly, delta.PropertyCheckpointInterval, delta.PropertyStatsAsJSON, delta.PropertyInCommitTimestamps,
	delta.PropertyChangeDataFeed, delta.PropertyDeletionVectors, delta.PropertyFileRetention, delta.PropertyTxnRetention,
	delta.PropertyIndexedColumns, delta.PropertyStatsColumns, delta.PropertyStringPrefix, "delta.logRetentionDuration",
	delta.PropertyCodec, "delta.enableExpiredLogCleanup", "delta.randomizeFilePrefixes", "delta.autoOptimize.autoCompact",
	"delta.autoOptimize.optimizeWrite", "delta.tuneFileSizesForRewrites", delta.PropertyTargetFileSize,
}

// NewTable is version 0 of a new table: commitInfo, protocol and metaData. The
// protocol asks for no more than the schema and the properties need, so that old
// readers can read the table.
func NewTable(s TableSpec) (*Commit, error) {
	refuse := func(err error) (*Commit, error) {
		return nil, newError(commit.CodeTableDefinition, "create", "Delta table", err)
	}
	properties := maps.Clone(s.Properties)
	if properties == nil {
		properties = map[string]string{}
	}
	if _, ok := properties[delta.PropertyTxnRetention]; !ok {
		properties[delta.PropertyTxnRetention] = txnRetention
	}
	for _, k := range slices.Sorted(maps.Keys(properties)) {
		if strings.HasPrefix(strings.ToLower(k), "delta.") && !slices.Contains(createProperties, k) {
			return refuse(fmt.Errorf("the property %.80q isn't one that this version makes a table with", k))
		}
	}
	if text, ok := properties[delta.PropertyCheckpointInterval]; ok {
		if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err != nil || n < 1 {
			return refuse(fmt.Errorf("%s is %.80q; want a number of versions, 1 or more", delta.PropertyCheckpointInterval, text))
		}
	}
	if err := checkColumns(s.Schema, 0); err != nil {
		return refuse(err)
	}
	d := delta.Definition{Schema: s.Schema, Properties: properties}
	for _, p := range s.Partition {
		f := s.Schema.Column(p)
		if f == nil {
			return refuse(fmt.Errorf("the partition column %.200q isn't a column", p))
		}
		if slices.Contains(d.Partition, f.Name) {
			return refuse(fmt.Errorf("the partition column %.200q stands twice", p))
		}
		d.Partition = append(d.Partition, f.Name)
	}
	var err error
	if d.Protocol, err = protocolFor(s.Schema, properties); err != nil {
		return refuse(err)
	}
	if err := delta.CheckOperation(d, delta.OperationAppend); err != nil {
		return refuse(err)
	}
	text, err := delta.SchemaJSON(s.Schema)
	if err != nil {
		return refuse(err)
	}
	created := s.Now.UnixMilli()
	c := &Commit{Protocol: &d.Protocol, Metadata: &Metadata{
		ID: s.ID, Format: Format{Provider: "parquet", Options: map[string]string{}}, SchemaString: text,
		PartitionColumns: append([]string{}, d.Partition...), CreatedTime: &created, Configuration: properties,
	}}
	if s.Description != "" {
		c.Metadata.Description = &s.Description
	}
	if c.Info, err = createInfo(s, d); err != nil {
		return refuse(err)
	}
	return c, nil
}

func createInfo(s TableSpec, d delta.Definition) (CommitInfo, error) {
	by, err := json.Marshal(append([]string{}, d.Partition...))
	if err != nil {
		return CommitInfo{}, err
	}
	properties, err := json.Marshal(d.Properties)
	if err != nil {
		return CommitInfo{}, err
	}
	blind := true
	info := CommitInfo{
		Timestamp: s.Now.UnixMilli(), Operation: "CREATE TABLE", IsolationLevel: string(Serializable), IsBlindAppend: &blind, EngineInfo: s.Engine,
		OperationParameters: map[string]string{"isManaged": "false", "partitionBy": string(by), "properties": string(properties)},
		OperationMetrics:    map[string]string{}, TxnID: s.TxnID,
	}
	if s.Description != "" {
		info.OperationParameters["description"] = s.Description
	}
	on, err := keepsTimes(d)
	if on {
		info.InCommitTimestamp = &info.Timestamp
	}
	return info, err
}

// protocolFor is the least protocol that a table needs. From version 7 on it names
// what version 2 implied, for some readers and writers take only what's named.
func protocolFor(schema *delta.Struct, properties map[string]string) (delta.Protocol, error) {
	var reader, writer []string
	for name, feature := range map[string]string{
		delta.PropertyInCommitTimestamps: "inCommitTimestamp", delta.PropertyChangeDataFeed: "changeDataFeed", delta.PropertyDeletionVectors: "deletionVectors",
	} {
		on, err := delta.Bool(properties, name, false)
		if err != nil {
			return delta.Protocol{}, err
		}
		if on {
			writer = append(writer, feature)
			if feature == "deletionVectors" {
				reader = append(reader, feature)
			}
		}
	}
	if _, err := delta.Bool(properties, delta.PropertyAppendOnly, false); err != nil {
		return delta.Protocol{}, err
	}
	if delta.Holds(schema, delta.TimestampNTZ) {
		reader, writer = append(reader, "timestampNtz"), append(writer, "timestampNtz")
	}
	if len(writer) == 0 {
		return delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 2}, nil
	}
	writer = append(writer, "appendOnly", "invariants")
	slices.Sort(reader)
	slices.Sort(writer)
	p := delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 7, WriterFeatures: writer}
	if len(reader) > 0 {
		p.MinReaderVersion, p.ReaderFeatures = 3, reader
	}
	return p, nil
}

// badInName are the letters that a Parquet column of Spark's can't have in its
// name.
const badInName = " ,;{}()\n\t="

func checkColumns(t delta.Type, depth int) error {
	switch t := t.(type) {
	case *delta.Struct:
		if len(t.Fields) == 0 {
			return errors.New("a struct without fields")
		}
		seen := map[string]bool{}
		for _, f := range t.Fields {
			lower := strings.ToLower(f.Name)
			switch {
			case f.Name == "":
				return errors.New("a column without a name")
			case seen[lower]:
				return fmt.Errorf("the column %.200q stands twice; names must differ by more than case", f.Name)
			case strings.ContainsAny(f.Name, badInName):
				return fmt.Errorf("the column %.200q has a letter of %q in its name, which Delta tables don't allow", f.Name, badInName)
			case f.Type == delta.Void || f.Type == delta.Variant:
				return fmt.Errorf("the column %.200q is of type %v", f.Name, f.Type)
			}
			seen[lower] = true
			if err := checkColumns(f.Type, depth+1); err != nil {
				return fmt.Errorf("column %.200q: %w", f.Name, err)
			}
		}
	case *delta.Array:
		return checkColumns(t.Element, depth+1)
	case *delta.Map:
		return errors.Join(checkColumns(t.Key, depth+1), checkColumns(t.Value, depth+1))
	}
	if depth > 32 {
		return errors.New("types are nested more than 32 deep")
	}
	return nil
}
