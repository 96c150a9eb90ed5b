package delta

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

// Options open a Table.
type Options struct {
	Name  commit.TableName
	Store objstore.Store
	// Locate gives the table's location, a URI; its error wraps
	// commit.ErrTableNotFound when the name is gone. A table that is known by its
	// path is always there.
	Locate func(ctx context.Context) (string, error)
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// TempDir is where checkpoints are made; the system's own when empty.
	TempDir string
	// Checkpointed is told of each checkpoint that was tried, from a goroutine of
	// the table's; nil for nobody.
	Checkpointed func(version int64, err error)
	// Ready is asked before the first request is built whether the store may decide
	// who takes a version; nil for nobody.
	Ready func(ctx context.Context) error
	// Shared is what several drivers of one table know of it; nil for nothing.
	Shared *Shared
}

// Shared keeps the last read of a table, so that the next one reads only what is
// new in its log. Its zero value knows nothing. It is safe for concurrent use.
type Shared struct{ last atomic.Pointer[View] }

// Last is the last read; nil for none.
func (s *Shared) Last() *View { return s.last.Load() }

// Table is the driver of one Delta table. It implements commit.Table and is used
// by one committer at a time. A checkpoint is written beside the commits that
// follow; Close ends it.
type Table struct {
	name         commit.TableName
	store        objstore.Store
	locate       func(ctx context.Context) (string, error)
	now          func() time.Time
	tempDir      string
	checkpointed func(version int64, err error)
	shared       *Shared
	ready        func(ctx context.Context) error

	// mu guards what is known of the checkpoint that is being made.
	mu struct {
		sync.Mutex
		closed bool
		stop   context.CancelFunc // nil when none is being made
	}
	running sync.WaitGroup
}

var _ commit.Table = (*Table)(nil)

// Open makes the driver of a table. It doesn't look whether the table is there;
// Read does.
func Open(o Options) *Table {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Shared == nil {
		o.Shared = &Shared{}
	}
	return &Table{name: o.Name, store: o.Store, locate: o.Locate, now: o.Now, tempDir: o.TempDir, checkpointed: o.Checkpointed, shared: o.Shared, ready: o.Ready}
}

// At locates a table by its path.
func At(root string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return root, nil }
}

// Close implements commit.Table. It waits for a checkpoint that is being made to
// give up; what it leaves is no part of the table.
func (t *Table) Close() error {
	t.mu.Lock()
	t.mu.closed = true
	if t.mu.stop != nil {
		t.mu.stop()
	}
	t.mu.Unlock()
	t.running.Wait()
	return nil
}

// Read implements commit.Table.
func (t *Table) Read(ctx context.Context) (commit.Metadata, error) {
	v, err := t.View(ctx)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// View is Read with the driver's own type.
func (t *Table) View(ctx context.Context) (*View, error) {
	if err := ctx.Err(); err != nil {
		return nil, newError(commit.CodeStorage, "read", t.name.String(), err)
	}
	root, err := t.locate(ctx)
	if err != nil {
		return nil, err
	}
	old := t.shared.last.Load()
	if old != nil && old.Location() != NewLog(t.store, root).Root() {
		old = nil
	}
	var s *Snapshot
	if old != nil {
		s, err = old.snap.Update(ctx)
	} else {
		s, err = NewLog(t.store, root).Snapshot(ctx, Latest)
	}
	if err != nil {
		return nil, err
	}
	if old != nil && s == old.snap {
		return old, nil
	}
	commits, err := t.shown(ctx, s, old)
	if err != nil {
		return nil, err
	}
	v := newView(t.name, s, commits, old)
	t.shared.last.Store(v)
	return v, nil
}

// Limits of what a view shows.
const (
	// lookBack is how many commits before the checkpoint are read to find a
	// ledger.
	lookBack = 64
	// keepShown is how many commits a view carries on from the one before.
	keepShown = 4096
)

// shown are the commits that a view of the snapshot shows: the snapshot's own,
// before them those that the last view of this table showed, and, as long as none
// of Firn's is among them, some more. A commit that is deleted ends it.
func (t *Table) shown(ctx context.Context, s *Snapshot, old *View) ([]CommitSummary, error) {
	commits := append([]CommitSummary(nil), s.Commits()...)
	first := s.Version() + 1
	if len(commits) > 0 {
		first = commits[0].Version
	}
	if old != nil && old.UUID() != s.metadata.ID {
		old = nil
	}
	limit := int64(lookBack)
	if old != nil {
		limit = min(max(limit, first-1-old.snap.Version()), keepShown)
	}
	for ; limit >= 0; limit-- {
		if before := old.upTo(first - 1); len(before) > 0 {
			return append(before[max(0, len(before)-keepShown):], commits...), nil
		}
		if first == 0 || limit == 0 || hasLedger(commits) {
			break
		}
		st := state{txns: map[string]Txn{}, domains: map[string]DomainMetadata{}}
		err := s.log.applyCommit(ctx, &st, first-1)
		if isNotFound(err) {
			break
		}
		if err != nil {
			return nil, err
		}
		commits = append(st.commits, commits...)
		first--
	}
	return commits, nil
}

// upTo are the commits that a view shows up to a version, if it shows that one.
func (v *View) upTo(version int64) []CommitSummary {
	if v == nil {
		return nil
	}
	i := slices.IndexFunc(v.commits, func(c CommitSummary) bool { return c.Version == version })
	return slices.Clone(v.commits[:i+1])
}

func hasLedger(commits []CommitSummary) bool {
	for _, c := range commits {
		if c.Info.Ledger != "" {
			return true
		}
	}
	return false
}

// payload is a request's own part: the content of the version.
type payload struct {
	base    *Snapshot
	version int64
	data    []byte
}

// Send implements commit.Table. The version before is looked at first: a log that
// was removed, or made anew at its path, must not get a version of the old one's.
// Nothing can fence the moment between (commit protocol, B6).
func (t *Table) Send(ctx context.Context, r commit.Request) commit.Answer {
	p, ok := r.Payload.(*payload)
	if !ok {
		return commit.Answer{Class: commit.AnswerRejected, Err: errors.New("the request is not one of this driver")}
	}
	if err := p.base.same(ctx); err != nil {
		return answerOf(err)
	}
	if err := p.base.log.Put(ctx, p.version, p.data); err != nil {
		return answerOf(err)
	}
	t.checkpoint(ctx, p.base, p.version)
	return commit.Answer{Class: commit.AnswerOK}
}

// errReplaced: the log isn't the one that the request was built from.
var errReplaced = errors.New("the table was dropped, or made again in its place")

// same says whether the snapshot's version is still what it was.
func (s *Snapshot) same(ctx context.Context) error {
	if len(s.seg.commits) == 0 {
		name := s.seg.checkpoint.files[0].name
		_, err := s.log.store.Stat(ctx, s.log.uri(name))
		if isNotFound(err) {
			return fmt.Errorf("%w: %s is gone", errReplaced, name)
		}
		return err
	}
	now, err := s.log.readLines(ctx, commitName(s.Version()), func([]byte) error { return errStop })
	switch {
	case isNotFound(err):
		return fmt.Errorf("%w: version %d is gone", errReplaced, s.Version())
	case err != nil && !errors.Is(err, errStop):
		return err
	case now != s.newest:
		return fmt.Errorf("%w: version %d is another", errReplaced, s.Version())
	}
	return nil
}

func answerOf(err error) commit.Answer {
	a := commit.Answer{Class: commit.AnswerAmbiguous, Err: err}
	switch {
	case errors.Is(err, objstore.ErrExists):
		a.Class = commit.AnswerConflict
	case errors.Is(err, errReplaced):
		a.Class = commit.AnswerConflict
	case errors.Is(err, objstore.ErrPermission):
		a.Class = commit.AnswerPermission
	}
	return a
}

// checkpoint makes a checkpoint of a version if the table wants one, beside
// whatever comes next. While one is being made no other is begun.
func (t *Table) checkpoint(ctx context.Context, base *Snapshot, version int64) {
	if version%delta.CheckpointInterval(base.definition.Properties) != 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed || t.mu.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	t.mu.stop = stop
	t.running.Go(func() {
		s, err := base.log.Snapshot(ctx, version)
		if err == nil {
			err = s.Checkpoint(ctx, CheckpointOptions{Now: t.now(), TempDir: t.tempDir})
		}
		stop()
		t.mu.Lock()
		t.mu.stop = nil
		t.mu.Unlock()
		if t.checkpointed != nil {
			t.checkpointed(version, err)
		}
	})
}

// Discard implements commit.Table. A request has written nothing.
func (t *Table) Discard(ctx context.Context, _ commit.Request) error { return ctx.Err() }
