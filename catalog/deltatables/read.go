package deltatables

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firn-project/firn/catalog/delta"
	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/sql"
)

// Pin reads the table as it is now.
func (t *Table) Pin(ctx context.Context) (plan.Pinned, error) {
	v, err := t.view(ctx)
	if err != nil {
		return plan.Pinned{}, err
	}
	storage, err := t.storage(ctx)
	if err != nil {
		return plan.Pinned{}, err
	}
	s := v.Snapshot()
	d, meta := s.Definition(), s.Metadata()
	p := plan.Pinned{
		Name: t.Name, Format: "delta", UUID: v.UUID(), Location: v.Location(), FormatVersion: d.Protocol.MinWriterVersion,
		SnapshotID: v.Head(commit.MainBranch), SchemaJSON: []byte(meta.SchemaString), Properties: maps.Clone(d.Properties),
		DataLocation: v.Location(), Storage: storage,
	}
	if p.SpecJSON, err = json.Marshal(append([]string{}, d.Partition...)); err != nil {
		return p, err
	}
	if meta.Description != nil {
		p.Comment = *meta.Description
	}
	if p.Unwritable, err = t.knownUnfit(ctx); err != nil {
		return p, err
	}
	if err := format.CheckOperation(d, format.OperationAppend); err != nil {
		p.Unwritable = err.Error()
	}
	if clustered, ok := s.Domain(format.ClusteringDomain); ok {
		p.SortOrderJSON = []byte(clustered)
	}
	return p, nil
}

// storage leaves the settings out for local files. Keys that come from a profile, a
// token or the SDK's chain are got here: executors get keys alone.
func (t *Table) storage(ctx context.Context) (map[string]string, error) {
	if !objstore.Remote(t.Location) {
		return nil, nil
	}
	c, _, err := t.Objects.Resolve(ctx)
	return c.Storage(), err
}

// Scan lists what a SELECT of the pinned table reads. version is a number, or what
// a report calls a snapshot; empty for the version that was pinned. Files are left
// out when their partition values or statistics show that where holds for no row.
func (t *Table) Scan(ctx context.Context, p plan.Pinned, version string, where sql.Filter) (plan.Source, error) {
	const op = "read table"
	if version == "" {
		version = p.SnapshotID
	}
	s, err := t.version(ctx, version)
	if err != nil {
		return plan.Source{}, err
	}
	d := s.Definition()
	if err := format.CheckOperation(d, format.OperationScan); err != nil {
		return plan.Source{}, newError(commit.CodeTableUnsupported, op, t.Name.String(), err)
	}
	mapping, err := format.MappingOf(d.Properties)
	if err != nil {
		return plan.Source{}, newError(commit.CodeMetadataInvalid, op, t.Name.String(), err)
	}
	src := plan.Source{
		Kind: plan.SourceTable, Table: t.Name, Storage: p.Storage,
		Delta: &plan.DeltaSource{SchemaJSON: []byte(s.Metadata().SchemaString), Partition: d.Partition, Mapping: string(mapping)},
	}
	for i, f := range d.Schema.Fields {
		c := plan.Column{Name: f.Name, FieldID: i + 1, Required: !f.Nullable}
		if c.Type, err = format.ReadType(f.Type); err != nil {
			return plan.Source{}, newError(commit.CodeTableUnsupported, op, t.Name.String(), fmt.Errorf("column %s: %w", f.Name, err))
		}
		src.Columns = append(src.Columns, c)
	}
	files := fileLister{root: s.Log().Root(), physical: s.PhysicalSchema()}
	for _, name := range d.Partition {
		f := d.Schema.Column(name)
		if f == nil {
			return plan.Source{}, newError(commit.CodeMetadataInvalid, op, t.Name.String(), fmt.Errorf("the partition column %.200q isn't a column", name))
		}
		physical, err := f.PhysicalName(mapping)
		if err != nil {
			return plan.Source{}, newError(commit.CodeMetadataInvalid, op, t.Name.String(), err)
		}
		files.partition, files.types = append(files.partition, physical), append(files.types, f.Type)
	}
	keep := newSkipper(s, where)
	for a, err := range s.Files(ctx) {
		if err != nil {
			return plan.Source{}, err
		}
		if !keep.may(a) {
			continue
		}
		f, err := files.file(a)
		if err != nil {
			return plan.Source{}, newError(commit.CodeTableUnsupported, op, t.Name.String(), fmt.Errorf("file %.300q: %w", a.Path, err))
		}
		src.Files = append(src.Files, f)
	}
	// Neighbours of one partition are read together.
	slices.SortStableFunc(src.Files, func(a, b plan.SourceFile) int { return slices.CompareFunc(a.Partition, b.Partition, compareTexts) })
	return src, nil
}

// compareTexts orders partition values by their texts, null first.
func compareTexts(a, b *string) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return strings.Compare(*a, *b)
}

// version reads a version of the table: the newest one that is known, or an older
// one.
func (t *Table) version(ctx context.Context, version string) (*delta.Snapshot, error) {
	number, txn, named := strings.Cut(version, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	unknown := func(why string) error {
		return newError(commit.CodeSnapshotNotFound, "read version "+version+" of", t.Name.String(), errors.New(why))
	}
	if err != nil || n < 0 {
		return nil, unknown("versions of a Delta table are numbers from 0")
	}
	if v := t.shared.Last(); v != nil && v.Snapshot().Version() == n && (!named || v.Head(commit.MainBranch) == version) {
		return v.Snapshot(), nil
	}
	s, err := delta.NewLog(t.store, t.Location).Snapshot(ctx, n)
	if err != nil || !named {
		return s, err
	}
	settled, err := s.Log().Settle(ctx, n, txn)
	if err == nil && settled == delta.Theirs {
		err = unknown("the table's version of that number is another one")
	}
	return s, err
}

// fileLister makes files of a plan from files of the log.
type fileLister struct {
	root     string
	physical *format.Struct
	// partition are the physical names of the partition columns, and types theirs.
	partition []string
	types     []format.Type
}

func (l fileLister) file(a *delta.Add) (plan.SourceFile, error) {
	var f plan.SourceFile
	var err error
	if f.Path, err = l.resolve(a.Path); err != nil {
		return f, err
	}
	f.Size, f.Rows = a.Size, -1
	if a.Stats != "" {
		// What another writer says of its file is a hint, and no more.
		if st, err := format.ParseStats(&format.Struct{}, a.Stats); err == nil {
			f.Rows = st.Rows
		}
	}
	for i, name := range l.partition {
		text := a.PartitionValues[name]
		if text != nil && *text == "" {
			text = nil
		}
		if _, err := format.DecodePartitionValue(l.types[i], text); err != nil {
			return f, fmt.Errorf("partition column %.200q: %w", name, err)
		}
		f.Partition = append(f.Partition, text)
	}
	if d := a.DeletionVector; d != nil {
		v := &plan.DeletionVector{StorageType: d.StorageType, PathOrInline: d.PathOrInlineDV, Size: d.SizeInBytes, Cardinality: d.Cardinality}
		if err := d.Check(); err != nil {
			return f, err
		}
		if v.File, err = d.File(l.root); err != nil {
			return f, err
		}
		if v.File != "" && !below(v.File, l.root) {
			return f, fmt.Errorf("its deletion vector lies outside the table, at %.300q", v.File)
		}
		if d.Offset != nil {
			offset := *d.Offset
			v.Offset = &offset
		}
		f.Vector = v
	}
	return f, nil
}

// resolve is the URI of a file, which must lie below the table: whoever may write
// the log of a table shall not have others' files read through it.
func (l fileLister) resolve(path string) (string, error) {
	uri, err := format.ResolvePath(l.root, path)
	if err == nil && !below(uri, l.root) {
		err = errors.New("it lies outside the table's directory, and such files aren't read")
	}
	return uri, err
}

// Describe gives the table's totals.
func (t *Table) Describe(ctx context.Context) (sql.TableInfo, error) {
	p, err := t.Pin(ctx)
	if err != nil {
		return sql.TableInfo{}, err
	}
	info := sql.TableInfo{Pinned: p}
	s, err := t.version(ctx, p.SnapshotID)
	if err != nil {
		return info, err
	}
	for a, err := range s.Files(ctx) {
		if err != nil {
			return info, err
		}
		st, serr := format.ParseStats(&format.Struct{}, a.Stats)
		if serr == nil && st.Rows >= 0 {
			info.Rows += st.Rows
			if a.DeletionVector != nil {
				info.Rows -= a.DeletionVector.Cardinality
			}
		}
		info.Files++
		info.Bytes += a.Size
	}
	info.Snapshots = int(s.Version()) + 1
	return info, nil
}

// maxHistory is how many versions History goes back.
const maxHistory = 1000

// History gives the table's versions, the newest first, as far as their commits are
// there.
func (t *Table) History(ctx context.Context) ([]sql.TableVersion, error) {
	v, err := t.view(ctx)
	if err != nil {
		return nil, err
	}
	commits, err := v.Snapshot().History(ctx, maxHistory)
	if err != nil {
		return nil, err
	}
	out := make([]sql.TableVersion, len(commits))
	for i, c := range commits {
		out[i] = sql.TableVersion{
			Version: c.Version, At: time.UnixMilli(c.Info.Time()).UTC(), Operation: c.Info.Operation, Parameters: c.Info.OperationParameters,
			Metrics: c.Info.OperationMetrics, Engine: c.Info.EngineInfo, ReadVersion: c.Info.ReadVersion, BlindAppend: c.Info.IsBlindAppend,
		}
	}
	return out, nil
}
