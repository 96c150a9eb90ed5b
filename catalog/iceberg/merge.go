package iceberg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/twmb/avro/ocf"

	"github.com/firn-project/firn/commit"
	format "github.com/firn-project/firn/format/iceberg"
	"github.com/firn-project/firn/internal/objstore"
)

// merger merges a table's small manifests beside the commits, as
// commit.manifest-merge.enabled, commit.manifest.min-count-to-merge and
// commit.manifest.target-size-bytes say (on by default, as in Java). A merged
// manifest holds the same files as its sources, with the snapshot and the
// sequence numbers that they had, so any later commit whose parent still has all
// the sources can take it in their place. Commits never wait for one.
//
// # When a merged manifest may be deleted
//
// Several requests may name one merged manifest, so it belongs to none of them,
// and no request's MetadataFiles has it: a request that is proven dead must not
// take away what another one has landed with. It is deleted when nothing can need
// it any more: its sources aren't all in the table, so no request will name it
// again, and each request that was built with it was discarded, which is done
// only when it was never sent or is dead and didn't land. After a crash the mark in
// the name of an unused one tells whose it was (commit.Marked).
type merger struct {
	store objstore.Store
	marks *marks

	mu sync.Mutex
	// ready may be taken by the next request; retired are those that no new
	// request takes and that old ones may have landed with.
	ready, retired []*merged
	running        bool
	cancel         context.CancelFunc
	wait           sync.WaitGroup
}

// merged is a manifest that stands for others.
type merged struct {
	path          string
	size          int64
	spec          int32
	sources       map[string]bool
	files         int32
	rows          int64
	minSequence   int64
	partitions    []iceberg.FieldSummary
	formatVersion int
	// users are the requests that were built with it and not discarded.
	users map[string]bool
}

// manifest describes it in the manifest list of a snapshot.
func (m *merged) manifest(snapshot int64) iceberg.ManifestFile {
	return iceberg.NewManifestFile(m.formatVersion, m.path, m.size, m.spec, snapshot).
		Content(iceberg.ManifestContentData).SequenceNum(-1, m.minSequence).
		ExistingFiles(m.files).ExistingRows(m.rows).AddedFiles(0).AddedRows(0).DeletedFiles(0).DeletedRows(0).
		Partitions(m.partitions).Build()
}

// standsFor says whether all sources are among the paths.
func (m *merged) standsFor(paths map[string]bool) bool {
	for p := range m.sources {
		if !paths[p] {
			return false
		}
	}
	return true
}

// use puts what is ready in the place of its sources, for the request named.
func (g *merger) use(manifests []iceberg.ManifestFile, request string, snapshot int64) []iceberg.ManifestFile {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.ready) == 0 {
		return manifests
	}
	paths := make(map[string]bool, len(manifests))
	for _, mf := range manifests {
		paths[mf.FilePath()] = true
	}
	ready := g.ready
	g.ready = nil
	for _, m := range ready {
		switch {
		case paths[m.path]: // it's in the table, which owns it now
		case !m.standsFor(paths):
			g.retired = append(g.retired, m)
		default:
			g.ready = append(g.ready, m)
			m.users[request] = true
			manifests = slices.Clone(manifests)
			first := slices.IndexFunc(manifests, func(mf iceberg.ManifestFile) bool { return m.sources[mf.FilePath()] })
			manifests[first] = m.manifest(snapshot)
			manifests = slices.DeleteFunc(manifests, func(mf iceberg.ManifestFile) bool { return m.sources[mf.FilePath()] })
		}
	}
	return manifests
}

// forget is told that a request was discarded.
func (g *merger) forget(request string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range slices.Concat(g.ready, g.retired) {
		delete(m.users, request)
	}
}

// unused takes out what may be deleted; with closing also what is ready.
func (g *merger) unused(closing bool) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if closing {
		g.retired, g.ready = append(g.retired, g.ready...), nil
	}
	var out []string
	g.retired = slices.DeleteFunc(g.retired, func(m *merged) bool {
		if len(m.users) == 0 {
			out = append(out, m.path)
		}
		return len(m.users) == 0
	})
	return out
}

// start begins to merge the manifests of a table as it is now, if there is
// something to merge and nothing is being merged or waits to be taken.
func (g *merger) start(m *Metadata, manifests []iceberg.ManifestFile) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.running || len(g.ready) > 0 {
		return
	}
	bins := binsToMerge(m.meta, manifests)
	if len(bins) == 0 {
		return
	}
	g.running = true
	var ctx context.Context
	ctx, g.cancel = context.WithCancel(context.Background())
	g.wait.Go(func() {
		var done []*merged
		for _, bin := range bins {
			// What can't be merged stays as it is: a table is right without.
			if one, err := g.merge(ctx, m, bin); err == nil {
				done = append(done, one)
			}
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.cancel()
		g.running, g.ready = false, append(g.ready, done...)
	})
}

// stop ends what is running and waits for it.
func (g *merger) stop() {
	g.mu.Lock()
	if g.cancel != nil {
		g.cancel()
	}
	g.mu.Unlock()
	g.wait.Wait()
}

// binsToMerge picks the manifests to merge by the table's properties, as Java
// does: those of one partition spec are packed from the oldest to the target
// size. The bin with the newest one is left to grow until it has the minimal
// number.
func binsToMerge(meta table.Metadata, manifests []iceberg.ManifestFile) [][]iceberg.ManifestFile {
	props := meta.Properties()
	if meta.Version() < 2 || !props.GetBool(table.ManifestMergeEnabledKey, true) {
		return nil
	}
	target := int64(props.GetInt(table.ManifestTargetSizeBytesKey, table.ManifestTargetSizeBytesDefault))
	least := max(props.GetInt(table.ManifestMinMergeCountKey, table.ManifestMinMergeCountDefault), 2)
	bySpec := map[int32][]iceberg.ManifestFile{}
	for _, mf := range manifests {
		if mf.ManifestContent() == iceberg.ManifestContentData && mf.Version() == meta.Version() {
			bySpec[mf.PartitionSpecID()] = append(bySpec[mf.PartitionSpecID()], mf)
		}
	}
	var out [][]iceberg.ManifestFile
	for _, spec := range slices.Sorted(maps.Keys(bySpec)) {
		var bin []iceberg.ManifestFile
		var size int64
		for _, mf := range slices.Backward(bySpec[spec]) { // the newest stands first
			if len(bin) > 0 && size+mf.Length() > target {
				if len(bin) > 1 {
					out = append(out, bin)
				}
				bin, size = nil, 0
			}
			bin, size = append(bin, mf), size+mf.Length()
		}
		if len(bin) >= least {
			out = append(out, bin)
		}
	}
	return out
}

// errForeignManifest: a manifest in which another writer has put its entries in
// a form of its own.
var errForeignManifest = errors.New("it wasn't written here")

// merge writes one manifest with the live files of others.
func (g *merger) merge(ctx context.Context, m *Metadata, bin []iceberg.ManifestFile) (_ *merged, err error) {
	spec := bin[0].PartitionSpecID()
	conv, err := newConverter(m, commit.Unit{SchemaID: m.SchemaID(), SpecID: int(spec)})
	if err != nil {
		return nil, err
	}
	id, err := g.marks.id(ctx, m)
	if err != nil {
		return nil, err
	}
	out := &merged{
		path: metadataDir(m.meta) + "/" + id.String() + "-m0.avro", spec: spec, formatVersion: m.meta.Version(),
		sources: map[string]bool{}, users: map[string]bool{}, minSequence: m.meta.LastSequenceNumber(),
	}
	w, err := g.store.Create(ctx, out.path)
	if err != nil {
		return nil, err
	}
	defer w.Abort()
	counted := &countingWriter{w: w}
	mw, err := newManifestWriter(out.formatVersion, counted, conv, 0)
	if err != nil {
		return nil, err
	}
	for _, mf := range bin {
		out.sources[mf.FilePath()] = true
		if err := g.take(ctx, mw, out, mf); err != nil {
			return nil, fmt.Errorf("manifest %s: %w", mf.FilePath(), err)
		}
	}
	if out.partitions, err = mergeSummaries(conv.entries.fields, bin); err != nil {
		return nil, err
	}
	if err := mw.ocf.Close(); err != nil {
		return nil, err
	}
	out.size = counted.n
	return out, w.Commit(ctx)
}

// take copies the live entries of one manifest, with what they inherit from its
// place in the manifest list written out.
func (g *merger) take(ctx context.Context, mw *manifestWriter, out *merged, mf iceberg.ManifestFile) error {
	f, err := fileIO{ctx, g.store}.Open(mf.FilePath())
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	r, err := ocf.NewReader(f, ocf.WithReaderSchema(mw.conv.entries.codec))
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	meta := r.Metadata()
	if string(meta["avro.schema"]) != mw.conv.entries.text || string(meta["partition-spec-id"]) != strconv.Itoa(mw.conv.spec.ID()) {
		return errForeignManifest
	}
	row := mf.FirstRowID()
	if row == nil && out.formatVersion >= 3 {
		return errForeignManifest
	}
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		var e entry
		err := r.Decode(&e)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if e.Status == int32(iceberg.EntryStatusDELETED) {
			continue
		}
		snapshot, sequence := mf.SnapshotID(), mf.SequenceNum()
		if e.Snapshot == nil {
			e.Snapshot = &snapshot
		}
		if e.Sequence == nil {
			e.Sequence = &sequence
		}
		if e.FileSequence == nil {
			e.FileSequence = &sequence
		}
		if row != nil && e.File.FirstRowID == nil {
			first := *row
			e.File.FirstRowID = &first
			*row += e.File.Rows
		}
		e.Status = int32(iceberg.EntryStatusEXISTING)
		if err := mw.ocf.Encode(&e); err != nil {
			return err
		}
		out.files++
		out.rows += e.File.Rows
		out.minSequence = min(out.minSequence, *e.Sequence)
	}
}

// mergeSummaries joins what the manifest list says of the partitions of several
// manifests. A bound that one of them lacks although it has values is unknown.
func mergeSummaries(fields []partitionColumn, bin []iceberg.ManifestFile) ([]iceberg.FieldSummary, error) {
	out := make([]summary, len(fields))
	for _, mf := range bin {
		parts := mf.Partitions()
		if len(parts) != len(fields) {
			return nil, errForeignManifest
		}
		for i, p := range parts {
			out[i].null = out[i].null || p.ContainsNull
			out[i].nan = out[i].nan || p.ContainsNaN == nil || *p.ContainsNaN
			if (p.LowerBound == nil || p.UpperBound == nil) && !p.ContainsNull && (p.ContainsNaN == nil || !*p.ContainsNaN) {
				return nil, errForeignManifest
			}
			for _, bound := range []*[]byte{p.LowerBound, p.UpperBound} {
				if bound == nil {
					continue
				}
				v, err := format.DecodeValue(fields[i].Type, *bound)
				if err == nil {
					err = out[i].add(v, *bound)
				}
				if err != nil {
					return nil, err
				}
			}
		}
	}
	summaries := make([]iceberg.FieldSummary, len(out))
	for i := range out {
		summaries[i] = out[i].summary()
	}
	return summaries, nil
}
