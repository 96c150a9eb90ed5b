package iceberg

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// cleanupTimeout bounds the deletion of what a failed step wrote, after the
// step's own context may have ended.
const cleanupTimeout = 30 * time.Second

// Options open a Table.
type Options struct {
	Name   commit.TableName
	Attach Attachment
	// Store reaches the table's metadata files.
	Store objstore.Store
	// Shared is what all drivers of one table know together; nil for none.
	Shared *Shared
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// NoSeat says why the catalog's requests claim no seat, in half a sentence;
	// empty, or a nil func, for a catalog whose do. It is asked each time.
	NoSeat func() string
}

// Shared keeps the metadata that was read last of one table, so that a driver
// parses nothing that another one has parsed or written. It is safe for
// concurrent use.
type Shared struct {
	mu   sync.Mutex
	last *Metadata
	// sent is what the table is if the request that was sent last landed. Those
	// who read the table between the landing and the committer's own look find
	// it here, and needn't all parse the same file.
	sent *Metadata
}

// Last is the metadata that was read last; nil for none.
func (s *Shared) Last() *Metadata {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *Shared) put(m *Metadata) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = m
}

func (s *Shared) send(m *Metadata) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = m
}

// find gives what is known of a catalog's entry; nil when nothing is.
func (s *Shared) find(l Loaded) *Metadata {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range []*Metadata{s.last, s.sent} {
		if m.is(l) {
			return m
		}
	}
	return nil
}

// is says whether m is what a catalog's entry names. Where the catalog shows the
// metadata, the name alone won't do: some count their files from v1.metadata.json
// for each table of a name, so that a new table's files have the old one's names.
func (m *Metadata) is(l Loaded) bool {
	return m != nil && l.Pointer != "" && m.pointer == l.Pointer && (l.Metadata == nil || m.meta.Equals(l.Metadata))
}

// Table is the driver of one Iceberg table. It implements commit.Table and is
// used by one committer at a time.
//
// It keeps the metadata that it read last and the one that it built last, and
// shares the former with other drivers of the table (Options.Shared). A read asks
// the catalog for the pointer and reads its file only when the pointer names
// neither: metadata files have names of their own and are never overwritten, so
// a known name means known content.
type Table struct {
	name   commit.TableName
	attach Attachment
	store  objstore.Store
	shared *Shared
	now    func() time.Time
	noSeat func() string

	// current is what the last Read returned.
	current *Metadata
	// built is what the table will be when the request built last lands.
	built *Metadata
	// lists are the manifest lists of the last request's parent and of its own
	// snapshot, one of which the next request inherits.
	lists  [2]manifestList
	merger merger
	marks  marks
	// conv is the converter of the last request.
	conv     *converter
	convUUID string
}

var _ commit.Table = (*Table)(nil)

// Open makes the driver of a table. It doesn't look whether the table is there;
// Read does.
func Open(o Options) *Table {
	if o.Now == nil {
		o.Now = time.Now
	}
	t := &Table{name: o.Name, attach: o.Attach, store: o.Store, shared: o.Shared, now: o.Now, noSeat: o.NoSeat, merger: merger{store: o.Store}}
	t.merger.marks = &t.marks
	return t
}

// Read implements commit.Table.
func (t *Table) Read(ctx context.Context) (commit.Metadata, error) {
	m, err := t.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Metadata is Read with the driver's own type.
func (t *Table) Metadata(ctx context.Context) (*Metadata, error) {
	// A pointer may be swapped between reading it and reading its file, and a
	// table with write.metadata.delete-after-commit may drop the file then.
	// The pointer having moved is what allows another look.
	seen := ""
	for {
		l, err := t.attach.Load(ctx)
		if err != nil {
			return nil, err
		}
		m, err := t.resolve(ctx, l)
		if err == nil {
			t.current = m
			t.shared.put(m)
			return m, nil
		}
		if !errors.Is(err, objstore.ErrNotFound) || l.Pointer == seen {
			return nil, err
		}
		seen = l.Pointer
	}
}

// resolve turns a catalog's entry into metadata.
func (t *Table) resolve(ctx context.Context, l Loaded) (*Metadata, error) {
	known := t.shared.find(l)
	for _, own := range []*Metadata{t.built, t.current} {
		if own.is(l) {
			known = own
		}
	}
	if known != nil {
		known.inherit()
		return known, nil
	}
	meta := l.Metadata
	if meta == nil {
		var err error
		if meta, err = ReadMetadata(ctx, t.store, l.Pointer); err != nil {
			return nil, newError(commit.CodeMetadataInvalid, "read table", t.name.String(), err)
		}
	}
	m := newMetadata(t.name, meta, l.Pointer, t.attach.Swaps())
	m.noSeat = t.noSeat
	return m, nil
}

// Send implements commit.Table. When the catalog acknowledged the commit, the
// metadata files that fell out of the table's log are deleted if the table says
// so; that is best effort, as it is in every engine.
func (t *Table) Send(ctx context.Context, r commit.Request) commit.Answer {
	p, ok := r.Payload.(*payload)
	if !ok {
		return commit.Answer{Class: commit.AnswerRejected, Err: errors.New("the request is not one of this driver")}
	}
	if t.attach.Swaps() {
		t.shared.send(t.built)
	}
	a := t.attach.Send(ctx, p.change)
	if a.Class == commit.AnswerOK {
		t.tidy(ctx, p.parent, r.SnapshotID)
		for _, f := range p.expired {
			_ = t.store.Delete(ctx, f)
		}
	}
	return a
}

// First puts an empty first snapshot into a table that has none. It is for new
// tables, before anybody commits to them.
func (t *Table) First(ctx context.Context) error {
	m, err := t.Metadata(ctx)
	if err != nil || m.Head(commit.MainBranch) != "" {
		return err
	}
	r, err := t.Build(ctx, m, []commit.Unit{{
		// A token as any other, of a key that no job can have.
		Token: commit.NewToken(commit.TokenInput{Namespace: "firn", Key: "first snapshot", TableUUID: m.UUID(), Branch: commit.MainBranch, Unit: -1}),
		Table: t.name, TableUUID: m.UUID(), SchemaID: m.SchemaID(), SpecID: m.SpecID(), Operation: commit.OperationAppend,
	}})
	if err != nil {
		return err
	}
	if a := t.Send(ctx, r); a.Err != nil {
		return a.Err
	}
	return nil
}

// Discard implements commit.Table. It deletes nothing but what Build wrote for
// this request.
func (t *Table) Discard(ctx context.Context, r commit.Request) error {
	t.merger.forget(r.ID)
	return t.remove(ctx, append(t.merger.unused(false), r.MetadataFiles...))
}

// tidy is what follows a commit that was acknowledged: merging manifests for one
// to come, and deleting those merged ones that nothing needs any more. Both are
// best effort.
func (t *Table) tidy(ctx context.Context, base *Metadata, snapshot string) {
	_ = t.remove(ctx, t.merger.unused(false))
	if strings.Contains(t.lists[1].path, "/snap-"+snapshot+"-") {
		if manifests, err := t.lists[1].parse(); err == nil {
			t.merger.start(base, manifests)
		}
	}
}

func (t *Table) remove(ctx context.Context, files []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	var errs []error
	for _, f := range files {
		errs = append(errs, t.store.Delete(ctx, f))
	}
	return errors.Join(errs...)
}

// Close implements commit.Table.
func (t *Table) Close() error {
	t.merger.stop()
	return t.remove(context.Background(), t.merger.unused(true))
}
