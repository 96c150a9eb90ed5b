package delta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

// testTime is the clock of the tests.
var testTime = time.UnixMilli(1_700_000_000_000).UTC()

func testSchema() *delta.Struct {
	return &delta.Struct{Fields: []delta.Field{
		{Name: "p", Type: delta.String, Nullable: true}, {Name: "v", Type: delta.Long, Nullable: true},
	}}
}

// testTable is a table in a directory of the test's own.
type testTable struct {
	t     testing.TB
	dir   string
	store *faultStore
	log   *Log
}

func newTestTable(t testing.TB, properties map[string]string) *testTable {
	t.Helper()
	tt := &testTable{t: t, dir: t.TempDir()}
	tt.store = &faultStore{Store: objstore.New(objstore.Config{})}
	tt.log = NewLog(tt.store, tt.dir)
	c, err := NewTable(TableSpec{
		ID: uuid.NewString(), TxnID: uuid.NewString(), Schema: testSchema(), Partition: []string{"p"}, Properties: properties, Now: testTime, Engine: "Firn/test",
	})
	if err != nil {
		t.Fatal(err)
	}
	tt.put(0, *c)
	return tt
}

func (tt *testTable) put(version int64, c Commit) {
	tt.t.Helper()
	if c.Info.TxnID == "" {
		c.Info.TxnID, c.Info.Operation = uuid.NewString(), "WRITE"
	}
	b, err := c.Encode()
	if err != nil {
		tt.t.Fatal(err)
	}
	if err := tt.log.Put(tt.t.Context(), version, b); err != nil {
		tt.t.Fatal(err)
	}
}

// path is a file of the log.
func (tt *testTable) path(name string) string { return filepath.Join(tt.dir, logDir, name) }

func (tt *testTable) write(name, content string) {
	tt.t.Helper()
	if err := os.WriteFile(tt.path(name), []byte(content), 0o644); err != nil {
		tt.t.Fatal(err)
	}
}

func (tt *testTable) remove(names ...string) {
	tt.t.Helper()
	for _, n := range names {
		if err := os.Remove(tt.path(n)); err != nil {
			tt.t.Fatal(err)
		}
	}
}

func (tt *testTable) snapshot(at int64) *Snapshot {
	tt.t.Helper()
	s, err := tt.log.Snapshot(tt.t.Context(), at)
	if err != nil {
		tt.t.Fatal(err)
	}
	return s
}

// shown is everything that a snapshot shows, in a form to compare.
func shown(t testing.TB, s *Snapshot) string {
	t.Helper()
	var b strings.Builder
	table, err := actionLine(Action{Protocol: s.protocol, Metadata: s.metadata})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "version %d\n%s", s.Version(), table)
	for _, app := range slices.Sorted(maps.Keys(s.txns)) {
		fmt.Fprintf(&b, "txn %s %d\n", app, s.txns[app].Version)
	}
	for _, d := range slices.Sorted(maps.Keys(s.domains)) {
		fmt.Fprintf(&b, "domain %+v\n", s.domains[d])
	}
	var files []string
	for a, err := range s.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		line, err := actionLine(Action{Add: a})
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, line)
	}
	slices.Sort(files)
	return b.String() + strings.Join(files, "")
}

func actionLine(a Action) (string, error) {
	var b bytes.Buffer
	err := appendAction(&b, &a)
	return b.String(), err
}

// richAdd is a file with everything that an add can have.
func richAdd(name string) *Add {
	a, b, offset, three := "a/b ü", "x", int32(7), int64(3)
	f := &Add{
		Path: "p=1/" + delta.EncodePath(name), PartitionValues: map[string]*string{"p": &a}, Size: 10, ModificationTime: 5, DataChange: true,
		Stats: `{"numRecords":3,"maxValues":{"v":9223372036854775807}}`, Tags: map[string]*string{"t": &b, "n": nil},
		DeletionVector: &delta.DeletionVector{StorageType: "u", PathOrInlineDV: "ab^-aqEH.-t@S}K{vb[*k^", Offset: &offset, SizeInBytes: 4, Cardinality: 1},
		BaseRowID:      &three, DefaultRowCommitVersion: &three, ClusteringProvider: &b,
	}
	return f
}

func plainAdd(name string) *Add {
	return &Add{Path: name, PartitionValues: map[string]*string{"p": nil}, Size: 1, ModificationTime: 1, DataChange: true}
}

// fill commits a history with everything in it, up to the version given.
func (tt *testTable) fill(last int64) {
	tt.t.Helper()
	for v := int64(1); v <= last; v++ {
		now := testTime.UnixMilli() + v
		c := Commit{
			Txns: []Txn{{AppID: fmt.Sprintf("app%d", v%3), Version: v, LastUpdated: &now}},
			Adds: []*Add{richAdd(fmt.Sprintf("rich %d", v)), plainAdd(fmt.Sprintf("plain%d", v))},
			Domains: []DomainMetadata{
				{Domain: fmt.Sprintf("d%d", v%4), Configuration: fmt.Sprintf(`{"v":%d}`, v), Removed: v%4 == 2},
			},
		}
		if v > 2 {
			c.Removes = []*Remove{plainAdd(fmt.Sprintf("plain%d", v-2)).removal(now, true), richAdd(fmt.Sprintf("rich %d", v-2)).removal(now, true)}
		}
		tt.put(v, c)
	}
}

// faultStore fails where a test asks for it, and counts.
type faultStore struct {
	objstore.Store
	mu sync.Mutex
	// fail is asked before each operation, lose after each write that landed.
	fail func(op, uri string) error
	lose func(uri string) error
	// block is called before an object is created, putting is what was put last.
	block   func(ctx context.Context)
	putting []byte
	ops     []string
}

func (s *faultStore) before(op, uri string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, op+" "+filepath.Base(uri))
	if s.fail != nil {
		return s.fail(op, uri)
	}
	return nil
}

func (s *faultStore) Open(ctx context.Context, uri string) (objstore.Object, error) {
	if err := s.before("open", uri); err != nil {
		return nil, err
	}
	return s.Store.Open(ctx, uri)
}

func (s *faultStore) Create(ctx context.Context, uri string) (objstore.Writer, error) {
	if err := s.before("create", uri); err != nil {
		return nil, err
	}
	if s.block != nil {
		s.block(ctx)
	}
	return s.Store.Create(ctx, uri)
}

func (s *faultStore) PutIfAbsent(ctx context.Context, uri string, data []byte) error {
	s.mu.Lock()
	s.putting = data
	s.mu.Unlock()
	if err := s.before("put", uri); err != nil {
		return err
	}
	if err := s.Store.PutIfAbsent(ctx, uri, data); err != nil {
		return err
	}
	if s.lose != nil {
		return s.lose(uri)
	}
	return nil
}

func (s *faultStore) Delete(ctx context.Context, uri string) error {
	if err := s.before("delete", uri); err != nil {
		return err
	}
	return s.Store.Delete(ctx, uri)
}

func (s *faultStore) Stat(ctx context.Context, uri string) (int64, error) {
	if err := s.before("stat", uri); err != nil {
		return 0, err
	}
	return s.Store.Stat(ctx, uri)
}

func (s *faultStore) List(ctx context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	if err := s.before("list", prefix); err != nil {
		return func(yield func(objstore.Info, error) bool) { yield(objstore.Info{}, err) }
	}
	return s.Store.List(ctx, prefix)
}

var seedForTests = maphash.MakeSeed()

var errFault = errors.New("injected fault")
