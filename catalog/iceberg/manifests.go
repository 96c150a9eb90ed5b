package iceberg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"golang.org/x/sync/errgroup"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// filesPerWorker is how many files are worth a manifest writer of their own.
const filesPerWorker = 10_000

// manifestList is a manifest list that is known by its path. It is parsed when
// it is asked for.
type manifestList struct {
	path      string
	raw       []byte
	manifests []iceberg.ManifestFile
}

func (l *manifestList) parse() ([]iceberg.ManifestFile, error) {
	if l.manifests == nil && l.raw != nil {
		ms, err := iceberg.ReadManifestList(bytes.NewReader(l.raw))
		if err != nil {
			return nil, fmt.Errorf("manifest list %s: %w", l.path, err)
		}
		l.manifests, l.raw = ms, nil
	}
	return l.manifests, nil
}

// manifestsOf gives all manifests of a snapshot; nil has none.
func (t *Table) manifestsOf(ctx context.Context, s *table.Snapshot) ([]iceberg.ManifestFile, error) {
	if s == nil {
		return nil, nil
	}
	for i := range t.lists {
		if s.ManifestList != "" && t.lists[i].path == s.ManifestList {
			t.lists[0] = t.lists[i]
			return t.lists[0].parse()
		}
	}
	ms, err := readManifestList(ctx, t.store, s)
	if err != nil {
		return nil, newError(commit.CodeMetadataInvalid, "read table", t.name.String(), err)
	}
	t.lists[0] = manifestList{path: s.ManifestList, manifests: ms}
	return ms, nil
}

func readManifestList(ctx context.Context, store objstore.Store, s *table.Snapshot) ([]iceberg.ManifestFile, error) {
	ms, err := s.Manifests(fileIO{ctx, store})
	if err != nil {
		return nil, fmt.Errorf("manifest list %s of snapshot %d: %w", s.ManifestList, s.SnapshotID, err)
	}
	return ms, nil
}

// newPath names a file of this request and remembers it for the cleanup.
func (b *build) newPath(mu *sync.Mutex, manifests *int) string {
	mu.Lock()
	defer mu.Unlock()
	p := metadataDir(b.base.meta) + "/" + b.id.String() + "-m" + strconv.Itoa(*manifests) + ".avro"
	*manifests++
	b.paths = append(b.paths, p)
	return p
}

// span are consecutive files of several units.
type span struct {
	units []commit.Unit
	// ends are the numbers of files up to the end of each unit.
	ends     []int
	from, to int
}

func newSpan(units []commit.Unit) span {
	s := span{units: units}
	for _, u := range units {
		s.to += u.Files.Len()
		s.ends = append(s.ends, s.to)
	}
	return s
}

func (s span) len() int { return s.to - s.from }

// cut is the part from i up to j.
func (s span) cut(i, j int) span {
	s.from, s.to = s.from+i, s.from+j
	return s
}

func (s span) at(i int) *commit.File {
	i += s.from
	u, _ := slices.BinarySearch(s.ends, i+1)
	if u > 0 {
		i -= s.ends[u-1]
	}
	f := s.units[u].Files.At(i)
	return &f
}

// writeManifests describes the units' files in Iceberg manifests, each rolled at
// commit.manifest.target-size-bytes. Files come sorted by path, hence clustered
// by partition, so that each manifest covers few partitions. Many files are
// written by several writers at once.
func (b *build) writeManifests(ctx context.Context) ([]iceberg.ManifestFile, error) {
	files := newSpan(b.units)
	if files.len() == 0 {
		return nil, nil
	}
	conv, err := b.table.converter(b.base, b.units[0])
	if err != nil {
		return nil, newError(commit.CodeManifestInvalid, "describe the files for", b.table.name.String(), err)
	}
	target := int64(b.base.meta.Properties().GetInt(table.ManifestTargetSizeBytesKey, table.ManifestTargetSizeBytesDefault))
	workers := min(runtime.GOMAXPROCS(0), (files.len()+filesPerWorker-1)/filesPerWorker)
	out := make([][]iceberg.ManifestFile, workers)
	var mu sync.Mutex
	next := 0
	g, gctx := errgroup.WithContext(ctx)
	for w := range workers {
		part := files.cut(w*files.len()/workers, (w+1)*files.len()/workers)
		g.Go(func() error {
			for part.len() > 0 {
				mf, n, err := b.writeManifest(gctx, b.newPath(&mu, &next), conv, part, target)
				if err != nil {
					return err
				}
				out[w], part = append(out[w], mf), part.cut(n, part.len())
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	var all []iceberg.ManifestFile
	for _, ms := range out {
		all = append(all, ms...)
	}
	return all, nil
}

// converter makes the converter of a unit, or gives the last one again: an id
// names one schema or spec in the life of a table.
func (t *Table) converter(m *Metadata, u commit.Unit) (*converter, error) {
	if c := t.conv; c != nil && t.convUUID == m.UUID() && c.version == m.meta.Version() && c.schema.ID == u.SchemaID && c.spec.ID() == u.SpecID {
		return c, nil
	}
	c, err := newConverter(m, u)
	if err == nil {
		t.conv, t.convUUID = c, m.UUID()
	}
	return c, err
}

// writeManifest writes one manifest with at least one of the files and stops at
// the target size. It returns how many it took.
func (b *build) writeManifest(ctx context.Context, path string, conv *converter, files span, target int64) (iceberg.ManifestFile, int, error) {
	w, err := b.table.store.Create(ctx, path)
	if err != nil {
		return nil, 0, err
	}
	kept := false
	defer func() {
		if !kept {
			w.Abort()
		}
	}()
	out := &countingWriter{w: w}
	mw, err := newManifestWriter(b.base.meta.Version(), out, conv, b.snapshotID)
	if err != nil {
		return nil, 0, fmt.Errorf("manifest %s: %w", path, err)
	}
	n := 0
	for n < files.len() && (n == 0 || out.n < target) {
		if n%1024 == 0 && ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		f := files.at(n)
		partition, err := conv.partition(f)
		if err = errors.Join(conv.check(f), err); err != nil {
			return nil, 0, newError(commit.CodeManifestInvalid, "commit file", f.Path, err)
		}
		if err := mw.add(f, partition); err != nil {
			return nil, 0, fmt.Errorf("manifest %s: file %s: %w", path, f.Path, err)
		}
		n++
	}
	mf, err := mw.close(path, func() int64 { return out.n })
	if err != nil {
		return nil, 0, fmt.Errorf("manifest %s: %w", path, err)
	}
	b.pending.add(w.Commit, w.Abort)
	kept = true
	return mf, n, nil
}

// writtenList is a manifest list with the row id that follows it.
type writtenList struct {
	path      string
	nextRowID int64
}

func (b *build) writeList(manifests []iceberg.ManifestFile) (writtenList, error) {
	var buf bytes.Buffer
	var lw *iceberg.ManifestListWriter
	var err error
	switch v := b.base.meta.Version(); v {
	case 1:
		lw, err = iceberg.NewManifestListWriterV1(&buf, b.snapshotID, b.parentID())
	case 2:
		lw, err = iceberg.NewManifestListWriterV2(&buf, b.snapshotID, b.sequenceNumber(), b.parentID())
	case 3:
		lw, err = iceberg.NewManifestListWriterV3(&buf, b.snapshotID, b.sequenceNumber(), b.base.meta.NextRowID(), b.parentID())
	default:
		err = newError(commit.CodeTableUnsupported, "commit to", b.table.name.String(), fmt.Errorf("format version %d", v))
	}
	if err != nil {
		return writtenList{}, err
	}
	if err := errors.Join(lw.AddManifests(manifests), lw.Close()); err != nil {
		return writtenList{}, fmt.Errorf("manifest list: %w", err)
	}
	l := writtenList{path: metadataDir(b.base.meta) + "/snap-" + strconv.FormatInt(b.snapshotID, 10) + "-1-" + b.id.String() + ".avro"}
	if next := lw.NextRowID(); next != nil {
		l.nextRowID = *next
	}
	b.paths = append(b.paths, l.path)
	b.pending.put(b.table.store, l.path, buf.Bytes())
	b.table.lists[1] = manifestList{path: l.path, raw: buf.Bytes()}
	return l, nil
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
