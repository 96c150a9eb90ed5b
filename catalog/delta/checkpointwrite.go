package delta

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

// CheckpointOptions are for one checkpoint.
type CheckpointOptions struct {
	// Now decides which tombstones and transactions have expired.
	Now time.Time
	// TempDir is where the file is made and checked before anybody sees it; the
	// system's own when empty.
	TempDir string
}

// ErrNoCheckpoint is wrapped by the error for a table whose properties ask for a
// checkpoint that this version doesn't write. Its log is read without one.
var ErrNoCheckpoint = errors.New("no checkpoint is written")

// WantsCheckpoint says whether the table wants a checkpoint of this version.
func (s *Snapshot) WantsCheckpoint() bool {
	return s.Version() > 0 && s.Version()%delta.CheckpointInterval(s.definition.Properties) == 0
}

// Checkpoint writes a classic checkpoint of the snapshot's version, and then
// _last_checkpoint. The file is made beside the table and read back before it is
// put into the log, for a wrong checkpoint is a wrong table: readers trust it over
// the commits. A version that has one is left alone.
//
// Nothing depends on it: a commit has landed before, and an error here says only
// that the log is read more slowly.
func (s *Snapshot) Checkpoint(ctx context.Context, o CheckpointOptions) (err error) {
	fail := func(err error) error { return newError(commit.CodeStorage, "write checkpoint of", s.log.root, err) }
	if err := delta.CheckOperation(s.definition, delta.OperationAppend); err != nil {
		return unsupported("write checkpoint of", s.log.root, err)
	}
	asStruct, err := delta.Bool(s.definition.Properties, delta.PropertyStatsAsStruct, false)
	if err != nil || asStruct {
		return fail(fmt.Errorf("%w: %s is set, and statistics are written as JSON only", ErrNoCheckpoint, delta.PropertyStatsAsStruct))
	}
	temp, err := os.CreateTemp(o.TempDir, "firn-checkpoint-*.parquet")
	if err != nil {
		return fail(err)
	}
	defer func() { err = errors.Join(err, temp.Close(), os.Remove(temp.Name())) }()

	wrote := newTally()
	if err := writeCheckpoint(temp, s.definition.Properties, counted(s.checkpointActions(ctx, o.Now), wrote)); err != nil {
		return fail(err)
	}
	size, err := temp.Seek(0, io.SeekEnd)
	if err != nil {
		return fail(err)
	}
	if err := wrote.verify(ctx, localObject{temp, size}); err != nil {
		return fail(err)
	}
	written, err := s.upload(ctx, temp, size)
	if err != nil || !written {
		return err
	}
	h := lastCheckpoint{Version: s.Version(), Size: wrote.adds + wrote.removes + wrote.others, SizeInBytes: &size, NumOfAddFiles: &wrote.adds}
	data, err := json.Marshal(h)
	if err != nil {
		return fail(err)
	}
	if err := s.log.replaceHint(ctx, h, data); err != nil {
		return fail(err)
	}
	return nil
}

// localObject is a local file as an object of a store.
type localObject struct {
	*os.File
	size int64
}

func (o localObject) Size() int64  { return o.size }
func (o localObject) Close() error { return nil } // its owner closes the file

// upload puts the file into the log; written is false when the version has a
// checkpoint already.
func (s *Snapshot) upload(ctx context.Context, f io.ReaderAt, size int64) (written bool, err error) {
	uri := s.log.uri(checkpointName(s.Version()))
	w, err := s.log.store.Create(ctx, uri)
	if err != nil {
		return false, newError(commit.CodeStorage, "write checkpoint", uri, err)
	}
	defer w.Abort()
	if _, err := io.Copy(w, io.NewSectionReader(f, 0, size)); err != nil {
		return false, newError(commit.CodeStorage, "write checkpoint", uri, err)
	}
	if err := w.Commit(ctx); err != nil {
		if errors.Is(err, objstore.ErrExists) {
			return false, nil
		}
		return false, newError(commit.CodeStorage, "write checkpoint", uri, err)
	}
	got, err := s.log.store.Stat(ctx, uri)
	if err == nil && got != size {
		err = fmt.Errorf("the store has %d bytes of %d", got, size)
	}
	if err != nil {
		return false, newError(commit.CodeStorage, "read back checkpoint", uri, err)
	}
	return true, nil
}

// checkpointActions are the actions of a checkpoint: those that make the state,
// then the files. Expired tombstones and transactions are left out, and so is what
// a checkpoint may not hold.
func (s *Snapshot) checkpointActions(ctx context.Context, now time.Time) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		properties := s.definition.Properties
		files, err := delta.FileRetention(properties)
		if err != nil {
			yield(Action{}, err)
			return
		}
		txns, forget, err := delta.TxnRetention(properties)
		if err != nil {
			yield(Action{}, err)
			return
		}
		withStats, err := delta.Bool(properties, delta.PropertyStatsAsJSON, true)
		if err != nil {
			yield(Action{}, err)
			return
		}
		if !yield(Action{Protocol: s.protocol}, nil) || !yield(Action{Metadata: s.metadata}, nil) {
			return
		}
		for _, app := range slices.Sorted(maps.Keys(s.txns)) {
			t := s.txns[app]
			if forget && t.LastUpdated != nil && *t.LastUpdated < now.Add(-txns).UnixMilli() {
				continue
			}
			if !yield(Action{Txn: &t}, nil) {
				return
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.domains)) {
			d := s.domains[name]
			if !yield(Action{DomainMetadata: &d}, nil) {
				return
			}
		}
		oldest := now.Add(-files).UnixMilli()
		for a, err := range s.fileActions(ctx) {
			if err != nil {
				yield(Action{}, err)
				return
			}
			if a.Add != nil && !withStats {
				a.Add.Stats = ""
			}
			if r := a.Remove; r != nil {
				if r.DeletionTimestamp == nil || *r.DeletionTimestamp <= oldest {
					continue
				}
				r.Stats, r.Tags = "", nil
			}
			if !yield(a, nil) {
				return
			}
		}
	}
}

// tally adds up actions, in whatever order they come, to compare what was written
// with what is read.
type tally struct {
	seed                  maphash.Seed
	adds, removes, others int64
	bytes                 int64
	sum                   uint64
}

func newTally() *tally { return &tally{seed: maphash.MakeSeed()} }

func (t *tally) add(a Action) error {
	switch {
	case a.Add != nil:
		t.adds++
		t.bytes += a.Add.Size
	case a.Remove != nil:
		t.removes++
	default:
		t.others++
	}
	// Null and empty collections are the same thing in a table.
	b, err := json.Marshal(normal(a))
	t.sum += maphash.Bytes(t.seed, b)
	return err
}

// normal gives equal actions equal JSON.
func normal(a Action) Action {
	if a.Add != nil {
		c := *a.Add
		if len(c.PartitionValues) == 0 {
			c.PartitionValues = nil
		}
		a.Add = &c
	}
	if a.Metadata != nil {
		m := *a.Metadata
		if len(m.PartitionColumns) == 0 {
			m.PartitionColumns = nil
		}
		if len(m.Configuration) == 0 {
			m.Configuration = nil
		}
		if len(m.Format.Options) == 0 {
			m.Format.Options = nil
		}
		a.Metadata = &m
	}
	return a
}

// verify reads a checkpoint back and compares it with what was meant to be in it.
func (t *tally) verify(ctx context.Context, o objstore.Object) error {
	read := newTally()
	read.seed = t.seed
	if err := scanParquet(ctx, o, wanted{state: true, files: true}, read.add); err != nil {
		return fmt.Errorf("it can't be read back: %w", err)
	}
	if err := t.compare(read); err != nil {
		return fmt.Errorf("read back, it isn't what was written: %w", err)
	}
	return nil
}

func (t *tally) compare(read *tally) error {
	switch {
	case t.adds != read.adds || t.removes != read.removes || t.others != read.others:
		return fmt.Errorf("%d adds, %d removes and %d others, not %d, %d and %d", read.adds, read.removes, read.others, t.adds, t.removes, t.others)
	case t.bytes != read.bytes:
		return fmt.Errorf("files of %d bytes, not %d", read.bytes, t.bytes)
	case t.sum != read.sum:
		return errors.New("an action differs")
	}
	return nil
}

func counted(actions iter.Seq2[Action, error], t *tally) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		for a, err := range actions {
			if err == nil {
				err = t.add(a)
			}
			if !yield(a, err) {
				return
			}
		}
	}
}

// codecOf is the codec that a table asks for in its properties.
func codecOf(properties map[string]string) string {
	return strings.ToLower(strings.TrimSpace(properties["delta.parquet.compression.codec"]))
}
