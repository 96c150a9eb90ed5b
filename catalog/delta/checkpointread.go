package delta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/firn-project/firn/format/delta"
	"github.com/firn-project/firn/internal/objstore"
)

// wanted says which actions of a checkpoint are asked for.
type wanted struct {
	// state: protocol, metaData, txn, domainMetadata.
	state bool
	// files: add and remove, in sidecars too.
	files bool
}

// readCheckpoint calls f for the actions wanted of a checkpoint. Sidecars are read
// after the files that name them, and aren't given to f.
func (l *Log) readCheckpoint(ctx context.Context, c *checkpoint, w wanted, f func(Action) error) error {
	var sidecars []Sidecar
	take := func(a Action) error {
		switch {
		case a.Sidecar != nil:
			sidecars = append(sidecars, *a.Sidecar)
			return nil
		case a.Add != nil || a.Remove != nil:
			if !w.files {
				return nil
			}
		case !w.state:
			return nil
		}
		return f(a)
	}
	for _, part := range c.files {
		if err := l.readCheckpointFile(ctx, l.uri(part.name), w, take); err != nil {
			return err
		}
	}
	if !w.files {
		return nil
	}
	for _, s := range sidecars {
		uri, err := l.sidecarURI(s.Path)
		if err != nil {
			return damaged(l.uri(c.files[0].name), err)
		}
		if err := l.readParquet(ctx, uri, wanted{files: true}, take); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) readCheckpointFile(ctx context.Context, uri string, w wanted, take func(Action) error) error {
	if strings.HasSuffix(uri, parquetSuffix) {
		return l.readParquet(ctx, uri, w, take)
	}
	_, err := l.readLines(ctx, strings.TrimPrefix(uri, l.uri("")), func(line []byte) error {
		if !w.files && isFileLine(line) {
			return nil
		}
		a, err := decodeAction(line)
		if err != nil {
			return err
		}
		return take(a)
	})
	return err
}

// sidecarURI is where a sidecar lies: a name in _sidecars, or an absolute URI.
func (l *Log) sidecarURI(path string) (string, error) {
	return delta.ResolvePath(l.uri(sidecarDir), path)
}

// readParquet calls f for the actions wanted of a Parquet file. A file that breaks
// the format is an error, also where the library panics over it.
func (l *Log) readParquet(ctx context.Context, uri string, w wanted, f func(Action) error) (err error) {
	o, err := l.store.Open(ctx, uri)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	var ours error // an error of f, which says nothing of the file
	err = scanParquet(ctx, o, w, func(a Action) error {
		ours = f(a)
		return ours
	})
	switch {
	case ours != nil:
		return ours
	case err == nil, errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, objstore.ErrPermission), isNotFound(err):
		return err
	}
	return damaged(uri, err)
}

func scanParquet(ctx context.Context, o objstore.Object, w wanted, f func(Action) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not a Parquet file that can be read: %v", p)
		}
	}()
	r, err := file.NewParquetReader(io.NewSectionReader(o, 0, o.Size()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	rows, err := newActionRows(r, w)
	if err != nil {
		return err
	}
	if n := r.NumRows(); n < 0 || n/maxRowsPerByte > o.Size() {
		return fmt.Errorf("it claims %d rows in %d bytes", n, o.Size())
	}
	left := r.NumRows()
	for g := range r.NumRowGroups() {
		group := r.RowGroup(g)
		if err := rows.open(group); err != nil {
			return err
		}
		if left -= group.NumRows(); group.NumRows() < 0 || left < 0 {
			return errors.New("its row groups have more rows than the file")
		}
		if rows.skip {
			continue
		}
		for i := range group.NumRows() {
			if i%8192 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			a, ok, err := rows.next()
			if err != nil {
				return fmt.Errorf("row group %d: %w", g, err)
			}
			if ok {
				if err := f(a); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// maxRowsPerByte keeps a small file from claiming rows without end. Real ones have
// tens of bytes a row.
const maxRowsPerByte = 64

// metaOf is the part of a row group's metadata that noValues asks.
type metaOf interface {
	ColumnChunk(i int) (*metadata.ColumnChunkMetaData, error)
}

// actionRows makes actions of a checkpoint's rows.
type actionRows struct {
	leaves []*leaf
	// open leaves are those of the current row group, less what it doesn't need.
	current []*leaf
	skip    bool

	byPath map[string]*leaf
	pairs  map[string]pair
	parsed []*leaf
	// stats of the row group are in stats_parsed only, or in both.
	useParsed bool
	marks     []*leaf
	add       addLeaves
	remove    removeLeaves
	protocol  protocolLeaves
	metaData  metadataLeaves
	txn       txnLeaves
	domain    domainLeaves
	sidecar   sidecarLeaves
}

// Columns of each action that are read; maps and lists by their own name.
var actionColumns = map[string][]string{
	"add": {
		"path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "stats_parsed", "tags", "deletionVector", "baseRowId",
		"defaultRowCommitVersion", "clusteringProvider",
	},
	"remove":         {"path", "deletionTimestamp", "dataChange", "extendedFileMetadata", "partitionValues", "size", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion"},
	"protocol":       {"minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"},
	"metaData":       {"id", "name", "description", "format", "schemaString", "partitionColumns", "createdTime", "configuration"},
	"txn":            {"appId", "version", "lastUpdated"},
	"domainMetadata": {"domain", "configuration", "removed"},
	"sidecar":        {"path", "sizeInBytes", "modificationTime"},
}

// newActionRows finds the columns by their paths.
func newActionRows(r *file.Reader, w wanted) (*actionRows, error) {
	rows := &actionRows{byPath: map[string]*leaf{}, pairs: map[string]pair{}}
	tops := map[string]bool{}
	if w.state {
		tops["protocol"], tops["metaData"], tops["txn"], tops["domainMetadata"] = true, true, true, true
	}
	if w.files {
		tops["add"], tops["remove"], tops["sidecar"] = true, true, true
	}
	s := r.MetaData().Schema
	for i := range s.NumColumns() {
		desc := s.Column(i)
		path := desc.ColumnPath()
		if len(path) < 2 || !tops[path[0]] || !readsColumn(path) {
			continue
		}
		l := newLeaf(i, desc)
		if path[1] == "stats_parsed" && path[0] == "add" {
			if l.maxRep == 0 && len(path) > 2 {
				rows.parsed = append(rows.parsed, l)
			}
			continue
		}
		if err := rows.place(l); err != nil {
			return nil, err
		}
	}
	rows.bind()
	// A part may have none of the actions wanted, and then not even their columns.
	if len(rows.marks) == 0 && !hasActions(s) {
		return nil, errors.New("the file has no columns of actions")
	}
	return rows, nil
}

func hasActions(s *schema.Schema) bool {
	for i := range s.NumColumns() {
		top := s.Column(i).ColumnPath()[0]
		if _, ok := actionColumns[top]; ok || top == "checkpointMetadata" || top == "cdc" || top == "commitInfo" {
			return true
		}
	}
	return false
}

func readsColumn(path []string) bool { return slices.Contains(actionColumns[path[0]], path[1]) }

// place files a leaf under its path. The inner names of lists and maps differ
// between writers, so these go by the name of the list or map: of a map the keys
// come first.
func (r *actionRows) place(l *leaf) error {
	r.leaves = append(r.leaves, l)
	if l.maxRep == 0 {
		r.byPath[strings.Join(l.path, ".")] = l
		return nil
	}
	name := strings.Join(l.path[:2], ".")
	if l.path[0] == "metaData" && l.path[1] == "format" {
		name = "metaData.format.options"
	}
	p := r.pairs[name]
	switch {
	case l.maxRep > 1:
		return fmt.Errorf("column %s: lists in lists", name)
	case p.keys == nil:
		p.keys = l
	case p.values == nil:
		p.values = l
	default:
		return fmt.Errorf("column %s has more than keys and values", name)
	}
	r.pairs[name] = p
	return nil
}

// open starts a row group. It is passed over when statistics prove that it has
// none of the actions wanted.
func (r *actionRows) open(group *file.RowGroupReader) error {
	r.skip = true
	for _, m := range r.marks {
		if !noValues(group.MetaData(), m.column) {
			r.skip = false
		}
	}
	if r.skip {
		return nil
	}
	r.current = r.leaves
	r.useParsed = len(r.parsed) > 0 && !r.statsInAll(group.MetaData())
	if r.useParsed {
		r.current = append(append([]*leaf(nil), r.leaves...), r.parsed...)
	}
	for _, l := range r.current {
		if err := l.open(group); err != nil {
			return err
		}
	}
	return nil
}

// statsInAll says whether each add of the row group is known to have its
// statistics as text too.
func (r *actionRows) statsInAll(m metaOf) bool {
	if r.add.stats == nil || r.add.path == nil {
		return false
	}
	nulls := func(l *leaf) int64 {
		c, err := m.ColumnChunk(l.column)
		if err != nil {
			return -1
		}
		s, err := c.Statistics()
		if err != nil || s == nil || !s.HasNullCount() {
			return -1
		}
		return s.NullCount()
	}
	n := nulls(r.add.stats)
	return n >= 0 && n == nulls(r.add.path)
}

// next is the action of the next row; ok is false when it is none of those
// wanted.
func (r *actionRows) next() (a Action, ok bool, err error) {
	for _, l := range r.current {
		if err := l.advance(); err != nil {
			return a, false, err
		}
	}
	switch {
	case present(r.add.path):
		a.Add = r.addAction()
	case present(r.remove.path):
		a.Remove = r.removeAction()
	case present(r.txn.appID):
		a.Txn = r.txnAction()
	case present(r.protocol.reader):
		a.Protocol = r.protocolAction()
	case present(r.metaData.id), present(r.metaData.schemaString):
		a.Metadata = r.metadataAction()
	case present(r.domain.domain):
		a.DomainMetadata = r.domainAction()
	case present(r.sidecar.path):
		a.Sidecar = r.sidecarAction()
	default:
		return a, false, nil
	}
	return a, true, a.check()
}

func present(l *leaf) bool { return l != nil && l.has }
