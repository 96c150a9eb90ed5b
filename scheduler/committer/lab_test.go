package committer_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/committer"
)

// lab is an in-memory catalog behind a committer.
type lab struct {
	t   *testing.T
	c   *committest.Catalog
	com *committer.Committer
	// driver is what does the work, also for a table that is open already; one
	// of its own for each open when nil.
	driver commit.Table
	opened func(commit.Table) commit.Table
	// opens and closes count.
	opens, closes atomic.Int64
}

// switched is an open table that follows the lab's fields.
type switched struct {
	l   *lab
	own commit.Table
}

func (s switched) now() commit.Table {
	table := s.own
	if s.l.driver != nil {
		table = s.l.driver
	}
	if s.l.opened != nil {
		table = s.l.opened(table)
	}
	return table
}

func (s switched) Read(ctx context.Context) (commit.Metadata, error) { return s.now().Read(ctx) }
func (s switched) Build(ctx context.Context, m commit.Metadata, u []commit.Unit) (commit.Request, error) {
	return s.now().Build(ctx, m, u)
}

func (s switched) Send(ctx context.Context, r commit.Request) commit.Answer {
	return s.now().Send(ctx, r)
}

func (s switched) Discard(ctx context.Context, r commit.Request) error {
	return s.now().Discard(ctx, r)
}
func (s switched) Close() error { s.l.closes.Add(1); return nil }

func newLab(t *testing.T, change func(*committer.Config)) *lab {
	t.Helper()
	l := &lab{t: t, c: committest.NewCatalog(committest.Mode{})}
	cfg := committer.Config{Open: func(context.Context, commit.TableName) (commit.Table, error) {
		l.opens.Add(1)
		return switched{l, committest.NewDriver(l.c)}, nil
	}}
	if change != nil {
		change(&cfg)
	}
	l.com = committer.New(cfg)
	t.Cleanup(func() { l.com.Close(context.Background()) })
	return l
}

const schemaJSON = `{"type":"struct","schema-id":0,"fields":[{"id":1,"name":"a","required":false,"type":"long"},{"id":2,"name":"b","required":false,"type":"string"}]}`

// root is the root of a job that wrote one file of two rows.
func (l *lab) root(job, key string) committer.Root {
	u := committest.NewUnit(l.c, key, job, 1, 2)
	return committer.Root{
		JobID: job, Key: key, Namespace: "", Tasks: 1, Attempts: []string{"a-" + job},
		Plan: &plan.Commit{
			Target: plan.Pinned{Name: u.Table, Format: "iceberg", UUID: u.TableUUID, SchemaJSON: []byte(schemaJSON), SpecJSON: []byte(`{"spec-id":0,"fields":[]}`)},
			Branch: commit.MainBranch, Operation: commit.OperationAppend, Prefix: u.Prefix,
		},
		Read: func(_ context.Context, into *commit.Packer) error { into.Take(u.Files); return nil },
	}
}

// spoiled reads what read reads, changed.
func spoiled(read func(context.Context, *commit.Packer) error, change func(*commit.File)) func(context.Context, *commit.Packer) error {
	return func(ctx context.Context, into *commit.Packer) error {
		var p commit.Packer
		if err := read(ctx, &p); err != nil {
			return err
		}
		for _, f := range p.Files().All() {
			change(&f)
			into.Add(f)
		}
		return nil
	}
}

// hooked is a table with something before each effect.
type hooked struct {
	commit.Table
	before func(ctx context.Context, effect string)
}

func (h hooked) Read(ctx context.Context) (commit.Metadata, error) {
	h.before(ctx, "read")
	return h.Table.Read(ctx)
}

func (h hooked) Build(ctx context.Context, m commit.Metadata, u []commit.Unit) (commit.Request, error) {
	h.before(ctx, "build")
	return h.Table.Build(ctx, m, u)
}

func (h hooked) Send(ctx context.Context, r commit.Request) commit.Answer {
	h.before(ctx, "send")
	return h.Table.Send(ctx, r)
}

func (l *lab) hook(f func(ctx context.Context, effect string)) {
	l.opened = func(t commit.Table) commit.Table { return hooked{t, f} }
}

// recorder keeps the order of records.
type recorder struct {
	log  []string
	fail map[string]int
}

func (r *recorder) record(what string) error {
	r.log = append(r.log, what)
	if r.fail[what] > 0 {
		r.fail[what]--
		return errors.New("disk full")
	}
	return nil
}

func (r *recorder) RecordSeal(context.Context, commit.Unit) error    { return r.record("seal") }
func (r *recorder) RecordSend(context.Context, commit.Request) error { return r.record("send") }
func (r *recorder) RecordOutcome(_ context.Context, _ commit.Unit, o commit.Outcome) error {
	return r.record(string(o.State))
}

// lockedBuffer takes a log from many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
