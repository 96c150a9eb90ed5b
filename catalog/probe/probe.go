package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"time"

	ice "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/catalog/iceberg"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/sql"
)

// Catalog is what the probes need of a catalog.
type Catalog interface {
	CreateNamespace(ctx context.Context, ns []string, props map[string]string) error
	DropNamespace(ctx context.Context, ns []string) error
	Create(ctx context.Context, name commit.TableName, meta table.Metadata) error
	Drop(ctx context.Context, name commit.TableName) error
	Attach(name commit.TableName) iceberg.Attachment
}

// Options say what is probed.
type Options struct {
	// Name is the catalog's.
	Name    string
	Catalog Catalog
	// Store reaches the tables' files.
	Store objstore.Store
	// Location gives the place of a new table; nil when the catalog picks it.
	Location func(commit.TableName) (string, error)
	// Vend gets storage credentials for a table and says what came; nil for
	// catalogs that have none.
	Vend func(ctx context.Context, name commit.TableName) (string, error)
	// Scoping says whether executors need keys to a table's files, and what isn't
	// right about those that they get: allowed, as the warning, or not, as the error.
	Scoping func(ctx context.Context, name commit.TableName) (needed bool, warning string, err error)
}

// cleanupTimeout bounds the removal of what the probes made.
const cleanupTimeout = 30 * time.Second

// prober is one run.
type prober struct {
	Options
	table  commit.TableName
	attach iceberg.Attachment
	report sql.CatalogReport
	// files are what was written here and has to go.
	files []string
	// landed are the snapshots that did, refused the ids of those that must
	// not, by what was tried.
	landed  []*table.Snapshot
	refused map[int64]string
	// noSeat and unfit are why the catalog is.
	noSeat, unfit string
	// undecided: a probe that decides the mode didn't get an answer.
	undecided string
}

// Run runs the probes. The report's mode is empty when those that decide it
// couldn't be finished.
func Run(ctx context.Context, o Options) sql.CatalogReport {
	var raw [4]byte
	_, _ = rand.Read(raw[:]) // never fails
	ns := []string{"firn_check_" + hex.EncodeToString(raw[:])}
	p := &prober{
		Options: o, table: commit.TableName{Catalog: o.Name, Namespace: ns, Name: "probe"}, refused: map[int64]string{},
		report: sql.CatalogReport{Catalog: o.Name, At: time.Now().UTC().Truncate(time.Second)},
	}
	p.attach = o.Catalog.Attach(p.table)
	p.run(ctx)
	switch {
	case p.unfit != "":
		p.report.Mode, p.report.Why = sql.ModeUnfit, p.unfit
	case p.undecided != "":
		p.report.Why = p.undecided
	case p.noSeat != "":
		p.report.Mode, p.report.Why = sql.ModeNoSeat, p.noSeat
	case p.attach.Swaps():
		p.report.Mode, p.report.Why = sql.ModeSeat, "the pointer that a commit swaps is its seat"
	default:
		p.report.Mode, p.report.Why = sql.ModeSeat, "the sequence number that a commit takes is its seat"
	}
	return p.report
}

// run makes namespace and table, probes, and removes them.
func (p *prober) run(ctx context.Context) {
	tried := "make the namespace " + p.table.Namespace[0]
	if err := p.Catalog.CreateNamespace(ctx, p.table.Namespace, nil); err != nil {
		p.undecided = "no namespace could be made to probe in"
		p.add("scratch", tried, err.Error(), sql.ProbeFailed)
		return
	}
	defer p.remove(ctx)
	tried += " and a table of format version 2 in it"
	meta, err := p.newTable()
	if err == nil {
		err = p.Catalog.Create(ctx, p.table, meta)
	}
	if err != nil {
		p.undecided = "no table could be made to probe with"
		p.add("scratch", tried, err.Error(), sql.ProbeFailed)
		return
	}
	p.add("scratch", tried, "made", sql.ProbeOK)
	for _, probe := range []func(context.Context) error{
		p.commits, p.staleHead, p.staleSequence, p.duplicateID, p.history, p.putIfAbsent, p.vend, p.scope,
	} {
		if err := probe(ctx); err != nil {
			p.undecided = "a probe got no answer: " + err.Error()
			p.add("stopped", "go on with the probes", err.Error(), sql.ProbeFailed)
			return
		}
	}
}

func (p *prober) add(name, tried, answer string, v sql.ProbeVerdict) {
	if r := []rune(answer); len(r) > 300 {
		answer = string(r[:300]) + "…"
	}
	p.report.Probes = append(p.report.Probes, sql.CatalogProbe{Name: name, Tried: tried, Answer: answer, Verdict: v})
}

func (p *prober) newTable() (table.Metadata, error) {
	location := ""
	if p.Location != nil {
		var err error
		if location, err = p.Location(p.table); err != nil {
			return nil, err
		}
	}
	schema := ice.NewSchema(0, ice.NestedField{ID: 1, Name: "id", Type: ice.PrimitiveTypes.Int64})
	return table.NewMetadata(schema, nil, table.UnsortedSortOrder, location, ice.Properties{table.PropertyFormatVersion: "2"})
}

// remove drops the table and the namespace and deletes what was written.
func (p *prober) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	errs := []error{p.Catalog.Drop(ctx, p.table)}
	if commit.CodeOf(errs[0]) == commit.CodeTableNotFound || errors.Is(errs[0], commit.ErrTableNotFound) {
		errs = nil
	}
	errs = append(errs, p.Catalog.DropNamespace(ctx, p.table.Namespace))
	for _, f := range p.files {
		if err := p.Store.Delete(ctx, f); !errors.Is(err, objstore.ErrNotFound) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		p.add("removed", "drop the table and the namespace, delete the files", err.Error(), sql.ProbeWarning)
		return
	}
	p.add("removed", "drop the table and the namespace, delete the files", "done", sql.ProbeOK)
}

// view is one read of the table.
type view struct {
	meta    table.Metadata
	pointer string
}

func (v view) head() *int64 {
	if s := v.meta.SnapshotByName(commit.MainBranch); s != nil {
		return &s.SnapshotID
	}
	return nil
}

func (p *prober) read(ctx context.Context) (view, error) {
	l, err := p.attach.Load(ctx)
	if err != nil {
		return view{}, err
	}
	if l.Metadata == nil {
		if l.Metadata, err = iceberg.ReadMetadata(ctx, p.Store, l.Pointer); err != nil {
			return view{}, err
		}
	}
	return view{l.Metadata, l.Pointer}, nil
}

// try is one request: a snapshot on top of base.
type try struct {
	// base is what the request was built from; its head is what is asserted.
	base view
	// sequence is the number that it claims.
	sequence int64
	// id is the snapshot's, 0 for a new one.
	id      int64
	summary map[string]string
	props   map[string]string
}

// outcome is what became of a try.
type outcome struct {
	answer commit.Answer
	// after is the table afterwards.
	after    view
	snapshot *table.Snapshot
	landed   bool
}

// send sends a request, once, and looks what became of it.
func (p *prober) send(ctx context.Context, t try) (outcome, error) {
	s, err := p.snapshot(ctx, t)
	if err != nil {
		return outcome{}, err
	}
	meta := t.base.meta
	c := iceberg.Change{
		Requirements: []table.Requirement{
			table.AssertTableUUID(meta.TableUUID()), table.AssertRefSnapshotID(commit.MainBranch, t.base.head()),
			table.AssertCurrentSchemaID(meta.CurrentSchema().ID), table.AssertDefaultSpecID(meta.DefaultPartitionSpec()),
		},
		Updates: []table.Update{table.NewAddSnapshotUpdate(s), table.NewSetSnapshotRefUpdate(commit.MainBranch, s.SnapshotID, table.BranchRef, 0, 0, 0)},
	}
	if len(t.props) > 0 {
		c.Updates = append(c.Updates, table.NewSetPropertiesUpdate(t.props))
	}
	if p.attach.Swaps() {
		next, err := table.UpdateTableMetadata(meta, c.Updates, t.base.pointer)
		if err != nil {
			return outcome{}, err
		}
		c.From, c.To = t.base.pointer, p.file(meta, fmt.Sprintf("%05d-probe-%d.metadata.json", len(p.files), s.SnapshotID))
		if err := iceberg.WriteMetadata(ctx, p.Store, c.To, next); err != nil {
			return outcome{}, err
		}
	}
	o := outcome{answer: p.attach.Send(ctx, c), snapshot: s}
	if o.after, err = p.read(ctx); err != nil {
		return o, err
	}
	if !p.attach.Swaps() {
		p.files = append(p.files, o.after.pointer)
	}
	// A second snapshot of an id that is taken is told by the head.
	h := o.after.head()
	o.landed = h != nil && *h == s.SnapshotID && (t.base.head() == nil || *h != *t.base.head())
	if t.id == 0 {
		o.landed = o.after.meta.SnapshotByID(s.SnapshotID) != nil
	}
	switch o.answer.Class {
	case commit.AnswerAuth, commit.AnswerPermission, commit.AnswerWait:
		return o, o.answer.Err
	}
	return o, nil
}

// snapshot makes an empty snapshot and writes its manifest list.
func (p *prober) snapshot(ctx context.Context, t try) (*table.Snapshot, error) {
	id := t.id
	for id == 0 {
		var raw [8]byte
		_, _ = rand.Read(raw[:]) // never fails
		id = int64(binary.LittleEndian.Uint64(raw[:]) & math.MaxInt64)
	}
	schema := t.base.meta.CurrentSchema().ID
	props := ice.Properties{"engine-name": "firn", "total-data-files": "0", "total-records": "0"}
	maps.Copy(props, t.summary)
	parent := t.base.head()
	var list bytes.Buffer
	if err := ice.WriteManifestList(2, &list, id, parent, &t.sequence, 0, nil); err != nil {
		return nil, err
	}
	path := p.file(t.base.meta, fmt.Sprintf("snap-%d-%d-probe.avro", id, len(p.files)))
	if err := objstore.WriteFile(ctx, p.Store, path, list.Bytes()); err != nil {
		return nil, fmt.Errorf("write a manifest list: %w", err)
	}
	// Never behind what the table shows: that would be refused for another
	// reason than the one asked about.
	at := max(time.Now().UnixMilli(), t.base.meta.LastUpdatedMillis())
	return &table.Snapshot{
		SnapshotID: id, ParentSnapshotID: parent, SequenceNumber: t.sequence, TimestampMs: at, ManifestList: path, SchemaID: &schema,
		Summary: &table.Summary{Operation: table.OpAppend, Properties: props},
	}, nil
}

// file names a file in the table's metadata directory, to be deleted in the end.
func (p *prober) file(m table.Metadata, name string) string {
	f := strings.TrimRight(m.Location(), "/") + "/metadata/" + name
	p.files = append(p.files, f)
	return f
}
