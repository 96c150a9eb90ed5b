package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
)

// Snapshot is one version of a table, without its files, which Files streams. It
// is immutable and safe for concurrent use.
type Snapshot struct {
	log *Log
	seg segment
	state
	definition delta.Definition
	physical   *delta.Struct
}

// state is what the actions up to a version add up to, files left out.
type state struct {
	protocol *delta.Protocol
	metadata *Metadata
	txns     map[string]Txn
	domains  map[string]DomainMetadata
	// commits are the versions that were read as commits, ascending.
	commits []CommitSummary
	// newest is the file of the last of them.
	newest fileVersion
}

// CommitSummary is what one commit says of itself.
type CommitSummary struct {
	Version int64
	Info    CommitInfo
	// Metadata and Protocol are set when the commit changed them.
	Metadata *Metadata
	Protocol *delta.Protocol
}

func (s *state) clone() state {
	c := *s
	c.txns, c.domains, c.commits = maps.Clone(s.txns), maps.Clone(s.domains), slices.Clone(s.commits)
	return c
}

// apply takes one action that isn't of a file.
func (s *state) apply(a Action) error {
	switch {
	case a.Protocol != nil:
		s.protocol = a.Protocol
	case a.Metadata != nil:
		s.metadata = a.Metadata
	case a.Txn != nil:
		s.txns[a.Txn.AppID] = *a.Txn
	case a.DomainMetadata != nil:
		s.domains[a.DomainMetadata.Domain] = *a.DomainMetadata
		if a.DomainMetadata.Removed {
			delete(s.domains, a.DomainMetadata.Domain)
		}
	}
	return nil
}

// Snapshot reads a version of the table, or Latest. The error wraps
// commit.ErrTableNotFound when there is no table, and names the feature when this
// version of Firn can't read it.
func (l *Log) Snapshot(ctx context.Context, at int64) (*Snapshot, error) {
	segs, err := l.candidates(ctx, at)
	if err != nil {
		return nil, err
	}
	s, err := l.firstOf(ctx, segs)
	if err == nil || !usable(err) {
		return s, err
	}
	// The hint led to a checkpoint that can't be read: all there is.
	segs, lerr := l.allCandidates(ctx, at)
	if lerr != nil {
		return nil, lerr
	}
	s, again := l.firstOf(ctx, segs)
	if again != nil && usable(again) {
		return nil, err
	}
	return s, again
}

// firstOf builds the version in the first way that works.
func (l *Log) firstOf(ctx context.Context, segs []segment) (*Snapshot, error) {
	var first error
	for _, seg := range segs {
		s, err := l.load(ctx, seg)
		if err == nil {
			return s, nil
		}
		if first == nil {
			first = err
		}
		if !usable(err) {
			return nil, err
		}
	}
	return nil, first
}

func (l *Log) load(ctx context.Context, seg segment) (*Snapshot, error) {
	st := state{txns: map[string]Txn{}, domains: map[string]DomainMetadata{}}
	if seg.checkpoint != nil {
		if err := l.readCheckpoint(ctx, seg.checkpoint, wanted{state: true}, st.apply); err != nil {
			return nil, newError(commit.CodeStorage, "read checkpoint of", l.root, err)
		}
		if st.protocol == nil || st.metadata == nil {
			return nil, damaged(l.uri(seg.checkpoint.files[0].name), errors.New("the checkpoint lacks protocol or metadata"))
		}
	}
	for _, f := range seg.commits {
		if err := l.applyCommit(ctx, &st, f.version); err != nil {
			return nil, err
		}
	}
	return l.finish(seg, st)
}

// applyCommit reads one commit into a state.
func (l *Log) applyCommit(ctx context.Context, st *state, version int64) error {
	c := CommitSummary{Version: version}
	v, err := l.readCommit(ctx, version, false, func(a Action) error {
		switch {
		case a.CommitInfo != nil:
			c.Info = *a.CommitInfo
		case a.Metadata != nil:
			c.Metadata = a.Metadata
		case a.Protocol != nil:
			c.Protocol = a.Protocol
		}
		return st.apply(a)
	})
	if err != nil {
		return newError(commit.CodeStorage, "read commit", l.uri(commitName(version)), err)
	}
	st.newest = v
	st.commits = append(st.commits, c)
	return nil
}

// finish checks what was read, and that Firn may read the table at all.
func (l *Log) finish(seg segment, st state) (*Snapshot, error) {
	where := l.uri("")
	switch {
	case st.protocol == nil:
		return nil, damaged(where, errors.New("no commit or checkpoint has a protocol"))
	case st.metadata == nil:
		return nil, damaged(where, errors.New("no commit or checkpoint has metadata"))
	}
	d := delta.Definition{Protocol: *st.protocol, Partition: st.metadata.PartitionColumns, Properties: st.metadata.Configuration}
	var err error
	if st.metadata.SchemaString == "" { // a table without columns yet
		d.Schema = &delta.Struct{}
	} else if d.Schema, err = delta.ParseSchema(st.metadata.SchemaString); err != nil {
		// A schema with types of the future is told by its protocol first.
		d.Schema = &delta.Struct{}
		if perr := delta.CheckOperation(d, delta.OperationList); perr != nil {
			return nil, unsupported("open Delta table", l.root, perr)
		}
		return nil, damaged(where, err)
	}
	if err := delta.CheckOperation(d, delta.OperationList); err != nil {
		return nil, unsupported("open Delta table", l.root, err)
	}
	if p := st.metadata.Format.Provider; p != "" && p != "parquet" {
		return nil, newError(commit.CodeTableUnsupported, "open Delta table", l.root, fmt.Errorf("its files are of format %.40q, not parquet", p))
	}
	m, err := delta.MappingOf(d.Properties)
	if err != nil {
		return nil, damaged(where, err)
	}
	physical, err := d.Schema.Physical(m)
	if err != nil {
		return nil, damaged(where, err)
	}
	return &Snapshot{log: l, seg: seg, state: st, definition: d, physical: physical}, nil
}

// Limits of Update.
const (
	// updateProbes is how many new versions are looked for one by one before the
	// log is listed.
	updateProbes = 10
	// updateTail is how many commits a snapshot may consist of before it's read
	// anew from a newer checkpoint, if there is one.
	updateTail = 200
)

// Update is the newest version, read from this one. It costs two requests when
// nothing changed. A table that was made anew in its place is noticed: its version
// isn't the same file any more.
func (s *Snapshot) Update(ctx context.Context) (*Snapshot, error) {
	if len(s.seg.commits) == 0 {
		return s.log.Snapshot(ctx, Latest)
	}
	if len(s.seg.commits) > updateTail {
		h, ok, err := s.log.readHint(ctx)
		if err != nil {
			return nil, newError(commit.CodeStorage, "read", s.log.root, err)
		}
		if ok && h.Version > s.checkpointVersion() {
			return s.log.Snapshot(ctx, Latest)
		}
	}
	// Both at the same time: in an object store each takes a while.
	var same bool
	var looking sync.WaitGroup
	looking.Go(func() {
		stop := func([]byte) error { return errStop }
		now, err := s.log.readLines(ctx, commitName(s.seg.version), stop)
		same = (err == nil || errors.Is(err, errStop)) && now == s.newest
	})
	next, err := s.after(ctx)
	looking.Wait()
	if !same || err == nil && next == nil {
		return s.log.Snapshot(ctx, Latest)
	}
	return next, err
}

// after is the snapshot with the commits that came after it; nil when there are too
// many of them to be read one by one.
func (s *Snapshot) after(ctx context.Context) (*Snapshot, error) {
	st, seg := s.clone(), s.seg
	seg.commits = slices.Clone(seg.commits)
	for range updateProbes {
		err := s.log.applyCommit(ctx, &st, seg.version+1)
		if isNotFound(err) {
			if seg.version == s.seg.version {
				return s, nil
			}
			return s.log.finish(seg, st)
		}
		if err != nil {
			return nil, err
		}
		seg.version++
		seg.commits = append(seg.commits, logFile{name: commitName(seg.version), version: seg.version, kind: kindCommit})
	}
	return nil, nil
}

func (s *Snapshot) checkpointVersion() int64 {
	if s.seg.checkpoint == nil {
		return -1
	}
	return s.seg.checkpoint.version
}

// Version is the snapshot's version.
func (s *Snapshot) Version() int64 { return s.seg.version }

// Log is the log that the snapshot was read from.
func (s *Snapshot) Log() *Log { return s.log }

// Definition is the table's protocol, schema, partition columns and properties. It
// must not be changed.
func (s *Snapshot) Definition() delta.Definition { return s.definition }

// Metadata is the table's metaData action. It must not be changed.
func (s *Snapshot) Metadata() Metadata { return *s.metadata }

// PhysicalSchema is the schema as data files and statistics have it.
func (s *Snapshot) PhysicalSchema() *delta.Struct { return s.physical }

// Txn is what an application has committed last; ok is false when nothing is
// known of it.
func (s *Snapshot) Txn(appID string) (Txn, bool) {
	t, ok := s.txns[appID]
	return t, ok
}

// Domain is the configuration kept under a name.
func (s *Snapshot) Domain(name string) (string, bool) {
	d, ok := s.domains[name]
	return d.Configuration, ok
}

// IndexedLeaves are the leaves that a file written to the table must have
// statistics of: those that its properties want, and those that it is clustered by.
func (s *Snapshot) IndexedLeaves() ([]delta.Leaf, error) {
	var clustered [][]string
	if text, ok := s.Domain(delta.ClusteringDomain); ok {
		var err error
		if clustered, err = delta.ClusteringColumns(text); err != nil {
			return nil, damaged(s.log.uri(""), err)
		}
	}
	return delta.IndexedLeaves(s.definition.Schema, s.definition.Partition, s.definition.Properties, clustered...)
}

// Commits are the commits that the snapshot was read from, after its checkpoint,
// ascending.
func (s *Snapshot) Commits() []CommitSummary { return s.commits }

// Files gives the live files. Those of the commits come first, the newest before
// the oldest, then those of the checkpoint. Memory grows with the number of file
// actions since the checkpoint. After an error no more comes.
func (s *Snapshot) Files(ctx context.Context) iter.Seq2[*Add, error] {
	return func(yield func(*Add, error) bool) {
		for a, err := range s.fileActions(ctx) {
			if err != nil {
				yield(nil, err)
				return
			}
			if a.Add != nil && !yield(a.Add, nil) {
				return
			}
		}
	}
}

// fileActions gives for each file the action that counts: an add when it's live,
// else the remove, as long as the log has it.
func (s *Snapshot) fileActions(ctx context.Context) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		seen := map[fileKey]bool{}
		take := func(a Action) error {
			if !yield(a, nil) {
				return errStop
			}
			return nil
		}
		for _, f := range slices.Backward(s.seg.commits) {
			_, err := s.log.readCommit(ctx, f.version, true, func(a Action) error {
				k, ok := a.fileKey()
				if !ok || seen[k] {
					return nil
				}
				seen[k] = true
				return take(a)
			})
			if err != nil {
				s.fail(yield, err)
				return
			}
		}
		if s.seg.checkpoint == nil {
			return
		}
		err := s.log.readCheckpoint(ctx, s.seg.checkpoint, wanted{files: true}, func(a Action) error {
			if len(seen) > 0 {
				if k, ok := a.fileKey(); !ok || seen[k] {
					return nil
				}
			}
			return take(a)
		})
		if err != nil {
			s.fail(yield, err)
		}
	}
}

func (s *Snapshot) fail(yield func(Action, error) bool, err error) {
	if !errors.Is(err, errStop) {
		yield(Action{}, newError(commit.CodeStorage, "read files of", s.log.root, err))
	}
}

// fileKey is the key of a file action; ok is false for other actions.
func (a *Action) fileKey() (k fileKey, ok bool) {
	switch {
	case a.Add != nil:
		return a.Add.key(), true
	case a.Remove != nil:
		return a.Remove.key(), true
	}
	return fileKey{}, false
}
