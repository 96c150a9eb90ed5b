package bench

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	sqlcat "github.com/apache/iceberg-go/catalog/sql"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/committer"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/journal/journaltest"
	firnsql "github.com/firn-project/firn/sql"
)

var benchTable = commit.TableName{Catalog: "lake", Namespace: []string{"air"}, Name: "t"}

func benchSchema() *iceberg.Schema {
	return iceberg.NewSchema(0, iceberg.NestedField{ID: 1, Name: "id", Type: iceberg.PrimitiveTypes.Int64})
}

// lane is a committer with its journal over a SQL catalog: what a scheduler has
// for written files.
type lane struct {
	com    *committer.Committer
	set    *catalog.Set
	target plan.Pinned
	// file is a written file, its path and attempt left out.
	file commit.File
	jobs atomic.Int64
}

func newLane(b *testing.B) *lane {
	b.Helper()
	ctx, dir := context.Background(), b.TempDir()
	set, err := catalog.Open(ctx, []catalog.Config{{
		Name: "lake", Type: "sql", URI: "sqlite://" + filepath.Join(dir, "catalog.db"), Warehouse: filepath.Join(dir, "warehouse"),
	}})
	if err != nil {
		b.Fatal(err)
	}
	if err := set.CreateNamespace(ctx, "lake", benchTable.Namespace, nil, true); err != nil {
		b.Fatal(err)
	}
	schema, err := json.Marshal(benchSchema())
	if err != nil {
		b.Fatal(err)
	}
	if err := set.CreateTable(ctx, firnsql.TableDef{Name: benchTable, Format: "iceberg", SchemaJSON: schema}); err != nil {
		b.Fatal(err)
	}
	j, err := journal.Open(ctx, filepath.Join(dir, "state"))
	if err != nil {
		b.Fatal(err)
	}
	l := &lane{set: set, com: committer.New(committer.Config{Open: set.OpenTable, Recorder: journaled{j}}), file: commit.File{
		Format: "PARQUET", Rows: 1, Size: 1000,
		ValueCounts: map[int]int64{1: 1}, Lower: map[int][]byte{1: make([]byte, 8)}, Upper: map[int][]byte{1: make([]byte, 8)},
	}}
	if l.target, err = set.Pin(ctx, benchTable); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		l.com.Close(ctx)
		if err := errors.Join(j.Close(), set.Close()); err != nil {
			b.Error(err)
		}
	})
	return l
}

// handIn commits one written file. The file is described and never read.
func (l *lane) handIn(int, int) (int, error) {
	job := fmt.Sprintf("j-%d", l.jobs.Add(1))
	prefix := l.target.DataLocation + "/" + job + "/"
	r := committer.Root{
		JobID: job, Key: job, Tasks: 1, Attempts: []string{"a-1"},
		Plan: &plan.Commit{Target: l.target, Branch: commit.MainBranch, Operation: commit.OperationAppend, Prefix: prefix},
		Read: func(_ context.Context, into *commit.Packer) error {
			f := l.file
			f.Path, f.Attempt = prefix+"0-0-a-1-0.parquet", "a-1"
			into.Add(f)
			return nil
		},
	}
	rep, err := l.com.Run(context.Background(), r)
	if err == nil && rep.State != commit.CommitCommitted {
		err = fmt.Errorf("%s", rep.State)
	}
	return rep.Attempts - 1, err
}

// writeMetadataOnce encodes and writes the table's metadata file and its manifest
// list, and nothing else.
func (l *lane) writeMetadataOnce(b *testing.B) time.Duration {
	b.Helper()
	t, err := l.set.OpenTable(context.Background(), benchTable)
	if err != nil {
		b.Fatal(err)
	}
	defer t.Close()
	read, err := t.Read(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	m := read.(interface{ Table() table.Metadata }).Table()
	s := m.CurrentSnapshot()
	raw, err := os.ReadFile(strings.TrimPrefix(s.ManifestList, "file://"))
	if err != nil {
		b.Fatal(err)
	}
	manifests, err := iceberg.ReadManifestList(bytes.NewReader(raw))
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	start := time.Now()
	if raw, err = json.Marshal(m); err != nil {
		b.Fatal(err)
	}
	writeSynced(b, filepath.Join(dir, "metadata.json"), raw)
	var buf bytes.Buffer
	w, err := iceberg.NewManifestListWriterV2(&buf, s.SnapshotID, s.SequenceNumber, s.ParentSnapshotID)
	if err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(w.AddManifests(manifests), w.Close()); err != nil {
		b.Fatal(err)
	}
	writeSynced(b, filepath.Join(dir, "list.avro"), buf.Bytes())
	return time.Since(start)
}

// journaled records as the scheduler does.
type journaled struct{ j *journal.SQLite }

func (r journaled) RecordSeal(ctx context.Context, u commit.Unit) error {
	manifest, err := json.Marshal(u.Files.At(0))
	if err != nil {
		return err
	}
	return r.j.Seal(ctx, journal.Unit{
		JobID: u.JobID, Key: u.Key, Token: u.Token, Digest: u.Digest, Table: u.Table, TableUUID: u.TableUUID, Branch: u.Branch,
		Operation: u.Operation, SchemaID: u.SchemaID, SpecID: u.SpecID, Prefix: u.Prefix, Files: int64(u.Files.Len()), Rows: u.Rows,
		Bytes: u.Bytes, Tasks: u.Tasks, Sealed: time.Now(),
	}, journaltest.Body(manifest))
}

func (r journaled) RecordSend(ctx context.Context, q commit.Request) error {
	return r.j.Send(ctx, journal.Send{
		RequestID: q.ID, SnapshotID: q.SnapshotID, Head: q.Head, Seat: q.Seat, Tokens: q.Tokens, MetadataFiles: q.MetadataFiles, At: time.Now(),
	})
}

func (r journaled) RecordOutcome(ctx context.Context, u commit.Unit, o commit.Outcome) error {
	return r.j.Outcome(ctx, u.JobID, journal.Outcome{State: o.State, Reason: o.Reason})
}

// library is a table of the library's own SQL catalog, with a catalog handle for
// each writer.
type library struct {
	cats  []*sqlcat.Catalog
	dir   string
	files atomic.Int64
}

var ident = table.Identifier{"air", "t"}

func newLibrary(b *testing.B, writers int) *library {
	b.Helper()
	ctx := context.Background()
	l := &library{dir: b.TempDir()}
	for range writers {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(l.dir, "catalog.db")+
			"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = db.Close() })
		cat, err := sqlcat.NewCatalog("lib", db, sqlcat.SQLite, iceberg.Properties{"warehouse": "file://" + l.dir, "init_catalog_tables": "true"})
		if err != nil {
			b.Fatal(err)
		}
		l.cats = append(l.cats, cat)
	}
	if err := l.cats[0].CreateNamespace(ctx, table.Identifier{"air"}, nil); err != nil {
		b.Fatal(err)
	}
	if _, err := l.cats[0].CreateTable(ctx, ident, benchSchema()); err != nil {
		b.Fatal(err)
	}
	return l
}

// appendRow appends one row. The library gives up when the table moved between
// its load and its commit, so the statement is run again until it gets through,
// with a jittered pause.
func (l *library) appendRow(w, _ int) (int, error) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	bld := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer bld.Release()
	bld.Field(0).(*array.Int64Builder).Append(int64(w))
	rec := bld.NewRecordBatch()
	defer rec.Release()
	rows := array.NewTableFromRecords(schema, []arrow.RecordBatch{rec})
	defer rows.Release()
	return l.retry(w, func(ctx context.Context, tbl *table.Table) error {
		_, err := tbl.AppendTable(ctx, rows, 1, nil)
		return err
	})
}

// addFile commits one written file, without looking for it in every manifest.
func (l *library) addFile(w, _ int) (int, error) {
	path := fmt.Sprintf("file://%s/air/t/data/%d.parquet", l.dir, l.files.Add(1))
	return l.retry(w, func(ctx context.Context, tbl *table.Table) error {
		bld, err := iceberg.NewDataFileBuilder(*iceberg.UnpartitionedSpec, iceberg.EntryContentData, path, iceberg.ParquetFile, nil, nil, nil, 1, 1000)
		if err != nil {
			return err
		}
		bld.ValueCounts(map[int]int64{1: 1}).LowerBoundValues(map[int][]byte{1: make([]byte, 8)}).UpperBoundValues(map[int][]byte{1: make([]byte, 8)})
		tx := tbl.NewTransaction()
		if err := tx.AddDataFiles(ctx, []iceberg.DataFile{bld.Build()}, nil, table.WithoutDuplicateCheck()); err != nil {
			return err
		}
		_, err = tx.Commit(ctx)
		return err
	})
}

func (l *library) retry(w int, commit func(context.Context, *table.Table) error) (int, error) {
	ctx := context.Background()
	for n := 0; ; n++ {
		tbl, err := l.cats[w].LoadTable(ctx, ident)
		if err == nil {
			if err = commit(ctx, tbl); err == nil {
				return n, nil
			}
		}
		if n == 1000 {
			return n, err
		}
		time.Sleep(time.Duration(rand.Int64N(int64(10 * time.Millisecond))))
	}
}
