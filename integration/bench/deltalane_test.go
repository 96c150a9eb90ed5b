package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/firn-project/firn/catalog/delta"
	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/committer"
	"github.com/firn-project/firn/scheduler/journal"
)

// newDeltaTable makes an empty table with one column, and gives its log.
func newDeltaTable(b *testing.B, store objstore.Store) *delta.Log {
	b.Helper()
	c, err := delta.NewTable(delta.TableSpec{
		ID: uuid.NewString(), TxnID: uuid.NewString(), Now: time.Now(), Engine: "bench",
		Schema: &format.Struct{Fields: []format.Field{{Name: "id", Type: format.Long, Nullable: true}}},
	})
	if err != nil {
		b.Fatal(err)
	}
	raw, err := c.Encode()
	if err != nil {
		b.Fatal(err)
	}
	l := delta.NewLog(store, filepath.Join(b.TempDir(), "t"))
	if err := l.Put(context.Background(), 0, raw); err != nil {
		b.Fatal(err)
	}
	return l
}

// newDeltaLane is newLane over a Delta table in a directory.
func newDeltaLane(b *testing.B, store objstore.Store) *lane {
	b.Helper()
	ctx := context.Background()
	root := newDeltaTable(b, store).Root()
	open := func(context.Context, commit.TableName) (commit.Table, error) {
		return delta.Open(delta.Options{Name: benchTable, Store: store, Locate: delta.At(root)}), nil
	}
	t := delta.Open(delta.Options{Name: benchTable, Store: store, Locate: delta.At(root)})
	v, err := t.View(ctx)
	if err != nil {
		b.Fatal(err)
	}
	m := v.Snapshot().Metadata()
	by, err := json.Marshal(m.PartitionColumns)
	if err != nil {
		b.Fatal(err)
	}
	j, err := journal.Open(ctx, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	zero := []byte("0")
	l := &lane{
		com:    committer.New(committer.Config{Open: open, Recorder: journaled{j}}),
		target: plan.Pinned{Name: benchTable, Format: "delta", UUID: m.ID, Location: root, DataLocation: root, SchemaJSON: []byte(m.SchemaString), SpecJSON: by},
		file:   commit.File{Format: "PARQUET", Rows: 1, Size: 1000, SchemaID: v.SchemaID(), SpecID: v.SpecID(), NullCounts: map[int]int64{1: 0}, Lower: map[int][]byte{1: zero}, Upper: map[int][]byte{1: zero}},
	}
	b.Cleanup(func() {
		l.com.Close(ctx)
		if err := errors.Join(t.Close(), j.Close()); err != nil {
			b.Error(err)
		}
	})
	return l
}

// uncoordinated are writers of one Delta table that know nothing of each other.
// Each has its own view of the log, tries the version after the newest that it
// sees, and when somebody else has taken that one, reads what is new and tries
// again. Unlike Firn they keep no records and write no checkpoints.
type uncoordinated struct {
	views []*delta.Snapshot
	// pause is the longest jittered wait after a lost version. Other writers of
	// Delta tables don't wait.
	pause time.Duration
}

func newUncoordinated(b *testing.B, store objstore.Store, writers int, pause time.Duration) *uncoordinated {
	b.Helper()
	root := newDeltaTable(b, store).Root()
	u := &uncoordinated{pause: pause}
	for range writers {
		s, err := delta.NewLog(store, root).Snapshot(context.Background(), delta.Latest)
		if err != nil {
			b.Fatal(err)
		}
		u.views = append(u.views, s)
	}
	return u
}

// addFile commits one written file.
func (u *uncoordinated) addFile(w, i int) (retries int, err error) {
	ctx := context.Background()
	for ; ; retries++ {
		s, err := u.views[w].Update(ctx)
		if err != nil {
			return retries, err
		}
		u.views[w] = s
		now := time.Now().UnixMilli()
		c := delta.Commit{Info: delta.CommitInfo{Timestamp: now, Operation: "WRITE", TxnID: uuid.NewString()}, Adds: []*delta.Add{{
			Path: fmt.Sprintf("%d-%d.parquet", w, i), PartitionValues: map[string]*string{}, Size: 1000, ModificationTime: now, DataChange: true,
			Stats: `{"numRecords":1,"minValues":{"id":0},"maxValues":{"id":0},"nullCount":{"id":0}}`,
		}}}
		raw, err := c.Encode()
		if err != nil {
			return retries, err
		}
		if err = s.Log().Put(ctx, s.Version()+1, raw); !errors.Is(err, objstore.ErrExists) {
			return retries, err
		}
		if u.pause > 0 {
			time.Sleep(time.Duration(rand.Int64N(int64(u.pause))))
		}
	}
}

// farStore is a store that takes a while to answer, as one over a network does.
type farStore struct {
	objstore.Store
	latency time.Duration
}

// Open waits for the object and for its content, which the caller reads at once.
func (s farStore) Open(ctx context.Context, uri string) (objstore.Object, error) {
	time.Sleep(s.latency)
	return s.Store.Open(ctx, uri)
}

func (s farStore) Stat(ctx context.Context, uri string) (int64, error) {
	time.Sleep(s.latency)
	return s.Store.Stat(ctx, uri)
}

func (s farStore) PutIfAbsent(ctx context.Context, uri string, data []byte) error {
	time.Sleep(s.latency)
	return s.Store.PutIfAbsent(ctx, uri, data)
}
