package iceberg

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// payload is what Send needs of a request.
type payload struct {
	change Change
	// parent is the read that the request was built from.
	parent *Metadata
	// expired are metadata files that the table no longer lists once the
	// change has landed.
	expired []string
}

// Build implements commit.Table. Everything is made from m alone: the seat, the
// parent, what is asserted and which manifests are inherited, so that a request
// can't combine a token that was looked for in one read with the head of
// another.
func (t *Table) Build(ctx context.Context, m commit.Metadata, units []commit.Unit) (commit.Request, error) {
	base, ok := m.(*Metadata)
	if !ok {
		return commit.Request{}, errors.New("the metadata is not of this driver")
	}
	b := &build{table: t, base: base, units: units}
	r, err := b.run(ctx)
	if err == nil {
		err = b.pending.flush(ctx)
	}
	b.pending.abort()
	if err != nil {
		t.merger.forget(b.id.String())
		return commit.Request{}, errors.Join(buildError(t.name, err), t.remove(ctx, b.paths))
	}
	return r, nil
}

// build is one run of Build.
type build struct {
	table *Table
	base  *Metadata
	units []commit.Unit

	id         uuid.UUID
	branch     string
	snapshotID int64
	parent     *table.Snapshot
	// paths is what was written, or may have been.
	paths []string
	// pending is what isn't visible and durable yet.
	pending pending
}

func (b *build) run(ctx context.Context) (commit.Request, error) {
	if err := b.prepare(ctx); err != nil {
		return commit.Request{}, err
	}
	inherited, err := b.table.manifestsOf(ctx, b.parent)
	if err != nil {
		return commit.Request{}, err
	}
	added, err := b.writeManifests(ctx)
	if err != nil {
		return commit.Request{}, err
	}
	// New manifests stand first, as every engine writes them; all inherited
	// ones follow, those without live files too, or what they were merged into.
	inherited = b.table.merger.use(inherited, b.id.String(), b.snapshotID)
	list, err := b.writeList(append(added, inherited...))
	if err != nil {
		return commit.Request{}, err
	}
	summary, err := b.summary(ctx, inherited)
	if err != nil {
		return commit.Request{}, err
	}
	snapshot := b.snapshot(list, summary)
	change, expired, err := b.change(snapshot)
	if err != nil {
		return commit.Request{}, err
	}
	r := commit.Request{
		ID:            b.id.String(),
		SnapshotID:    strconv.FormatInt(b.snapshotID, 10),
		Head:          b.base.Head(b.branch),
		Branch:        b.branch,
		Seat:          b.base.Clock(),
		MetadataFiles: b.paths,
		Payload:       &payload{change: change, parent: b.base, expired: expired},
	}
	r.Seat.Number = b.seat(snapshot)
	for _, u := range b.units {
		r.Tokens = append(r.Tokens, u.Token)
	}
	return r, nil
}

// pending are objects that were written and not made visible. They become
// durable together: the pointer is swapped after all of them are, and their order
// doesn't matter before that. It is safe for concurrent use.
type pending struct {
	mu      sync.Mutex
	commits []func(context.Context) error
	aborts  []func()
}

func (p *pending) add(commit func(context.Context) error, abort func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits, p.aborts = append(p.commits, commit), append(p.aborts, abort)
}

func (p *pending) put(store objstore.Store, path string, raw []byte) {
	p.add(func(ctx context.Context) error { return objstore.WriteFile(ctx, store, path, raw) }, func() {})
}

func (p *pending) flush(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for _, f := range p.commits {
		g.Go(func() error { return f(ctx) })
	}
	return g.Wait()
}

// abort drops what flush didn't commit.
func (p *pending) abort() {
	for _, f := range p.aborts {
		f()
	}
}

// seat is the number that the request claims, 0 for none: it is never taken for
// dead then.
func (b *build) seat(s *table.Snapshot) int64 {
	if b.base.NoSeat(b.branch) != "" {
		return 0
	}
	return s.SequenceNumber
}

// prepare checks what the machine promised and picks the ids.
func (b *build) prepare(ctx context.Context) error {
	if len(b.units) == 0 {
		return errors.New("no units")
	}
	first := b.units[0]
	b.branch = first.Branch
	if b.branch == "" {
		b.branch = commit.MainBranch
	}
	seen := map[commit.Token]bool{}
	for _, u := range b.units {
		if u.Branch != first.Branch || u.SchemaID != first.SchemaID || u.SpecID != first.SpecID {
			return errors.New("units of different branches, schemas or specs can't share a request")
		}
		switch u.Operation {
		case commit.OperationAppend, "":
		case commit.OperationFence:
			if u.Files.Len() > 0 {
				return errors.New("a fence brings no files")
			}
			seen[u.Token] = true
			continue
		default:
			return fmt.Errorf("the operation %q is not supported", u.Operation)
		}
		if seen[u.Token] {
			return fmt.Errorf("token %s stands twice in one request", u.Token)
		}
		seen[u.Token] = true
		if err := b.base.CheckUnit(u); err != nil {
			return err
		}
	}
	for name, ref := range b.base.meta.Refs() {
		if name == b.branch && ref.SnapshotRefType != table.BranchRef {
			return fmt.Errorf("%q is a tag, and only branches can be written", name)
		}
	}
	var err error
	if b.id, err = b.table.marks.id(ctx, b.base); err != nil {
		return err
	}
	b.snapshotID = newSnapshotID(b.base.meta)
	// A branch that isn't there yet starts at main, as in Java.
	b.parent = b.base.meta.SnapshotByName(b.branch)
	if b.parent == nil {
		b.parent = b.base.meta.CurrentSnapshot()
	}
	return nil
}

// newSnapshotID picks a positive number that the table doesn't show. Readers in
// other languages refuse negative ones.
func newSnapshotID(m table.Metadata) int64 {
	for {
		var raw [8]byte
		// crypto/rand.Read never fails.
		_, _ = rand.Read(raw[:])
		id := int64(binary.LittleEndian.Uint64(raw[:]) & math.MaxInt64)
		if id != 0 && m.SnapshotByID(id) == nil {
			return id
		}
	}
}

func (b *build) parentID() *int64 {
	if b.parent == nil {
		return nil
	}
	return &b.parent.SnapshotID
}

// sequenceNumber is the seat that the request claims; version 1 has none.
func (b *build) sequenceNumber() int64 {
	if b.base.meta.Version() == 1 {
		return 0
	}
	return b.base.meta.LastSequenceNumber() + 1
}

// timestamp never goes back behind what the table shows, however wrong this
// machine's clock or another writer's was: readers and catalogs refuse that.
func (b *build) timestamp() int64 {
	ts := max(b.table.now().UnixMilli(), b.base.meta.LastUpdatedMillis())
	for e := range b.base.meta.SnapshotLogs() {
		ts = max(ts, e.TimestampMs)
	}
	if b.parent != nil {
		ts = max(ts, b.parent.TimestampMs)
	}
	return ts
}

func (b *build) snapshot(list writtenList, summary *table.Summary) *table.Snapshot {
	schema := b.base.SchemaID()
	s := &table.Snapshot{
		SnapshotID:       b.snapshotID,
		ParentSnapshotID: b.parentID(),
		SequenceNumber:   b.sequenceNumber(),
		TimestampMs:      b.timestamp(),
		ManifestList:     list.path,
		Summary:          summary,
		SchemaID:         &schema,
	}
	if b.base.meta.Version() >= 3 {
		first := b.base.meta.NextRowID()
		rows := list.nextRowID - first
		s.FirstRowID, s.AddedRows = &first, &rows
	}
	return s
}

// change makes the request. For a pointer catalog the new metadata file is
// written here; the pointer that is swapped from is the one that base was read
// at, which stands for every assertion at once.
func (b *build) change(s *table.Snapshot) (Change, []string, error) {
	meta := b.base.meta
	c := Change{RequestID: b.id.String(), Updates: []table.Update{table.NewAddSnapshotUpdate(s), b.refUpdate()}}
	var ledger *commit.Ledger
	if meta.Version() > 1 {
		l := commit.NextLedger(b.base, b.units, s.SequenceNumber, b.base.ledgerKeep(b.table.now()))
		ledger = &l
		c.Updates = append(c.Updates, table.NewSetPropertiesUpdate(iceberg.Properties{KeyLedger: l.String()}))
	}
	var head *int64
	if h := meta.SnapshotByName(b.branch); h != nil {
		head = &h.SnapshotID
	}
	c.Requirements = []table.Requirement{
		table.AssertTableUUID(meta.TableUUID()),
		table.AssertRefSnapshotID(b.branch, head),
		table.AssertCurrentSchemaID(b.base.SchemaID()),
		table.AssertDefaultSpecID(b.base.SpecID()),
	}
	if !b.table.attach.Swaps() {
		return c, nil, nil
	}
	next, err := table.UpdateTableMetadata(meta, c.Updates, b.base.pointer)
	if err != nil {
		return c, nil, newError(commit.CodeMetadataInvalid, "prepare commit to", b.table.name.String(), err)
	}
	c.From = b.base.pointer
	c.To = nextMetadataPath(next, c.From, b.id.String())
	b.paths = append(b.paths, c.To)
	built, raw, err := encodeMetadata(c.To, b.base, next, s)
	if err != nil {
		return c, nil, err
	}
	b.pending.put(b.table.store, c.To, raw)
	built.ledger = ledger
	b.table.built = built
	return c, expiredMetadata(meta, next), nil
}

// refUpdate moves the branch and keeps the retention that was set on it.
func (b *build) refUpdate() table.Update {
	var maxRef, maxSnapshot int64
	var minKeep int
	for name, ref := range b.base.meta.Refs() {
		if name != b.branch {
			continue
		}
		if ref.MaxRefAgeMs != nil {
			maxRef = *ref.MaxRefAgeMs
		}
		if ref.MaxSnapshotAgeMs != nil {
			maxSnapshot = *ref.MaxSnapshotAgeMs
		}
		if ref.MinSnapshotsToKeep != nil {
			minKeep = *ref.MinSnapshotsToKeep
		}
	}
	return table.NewSetSnapshotRefUpdate(b.branch, b.snapshotID, table.BranchRef, maxRef, maxSnapshot, minKeep)
}
