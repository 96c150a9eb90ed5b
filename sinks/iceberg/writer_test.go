package iceberg

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/sinks"
)

func TestNoRowsNoFile(t *testing.T) {
	tb := keyed(t)
	if files := tb.write(t); len(files) != 0 {
		t.Errorf("%d files without a batch", len(files))
	}
	if files := tb.write(t, tb.batch(t, `[]`)); len(files) != 0 {
		t.Errorf("%d files without a row", len(files))
	}
	tb.wantNoFiles(t)
}

// TestAbortDeletesFinishedFiles: rolled files are visible before the attempt
// ends; an attempt that fails takes them back.
func TestAbortDeletesFinishedFiles(t *testing.T) {
	tb := keyed(t)
	tb.opts.Context.TargetFileSize = 2000
	w := tb.open(t)
	b := tb.numbers(0, 5000, 3)
	defer b.Release()
	if err := w.Write(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	n := 0
	for range tb.opts.Store.List(context.Background(), tb.opts.Context.Prefix) {
		n++
	}
	if n == 0 {
		t.Fatal("nothing was finished yet: the test doesn't test it")
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	tb.wantNoFiles(t)
	if err := w.Write(context.Background(), b); err == nil {
		t.Error("rows are taken after Abort")
	}
	if err := w.Abort(); err != nil {
		t.Errorf("a second Abort: %v", err)
	}
}

func TestAbortAfterCloseKeepsFiles(t *testing.T) {
	tb := keyed(t)
	w := tb.open(t)
	b := tb.numbers(0, 10, 1)
	defer b.Release()
	if err := w.Write(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	files, err := w.Close(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Abort(); err != nil {
		t.Fatal(err)
	}
	if _, err := tb.opts.Store.Stat(context.Background(), files[0].Path); err != nil {
		t.Errorf("the file is gone: %v", err)
	}
	if _, err := w.Close(context.Background()); err == nil {
		t.Error("a second Close gives files")
	}
}

// failingStore fails the nth call of one kind.
type failingStore struct {
	objstore.Store
	kind string
	n    int
	err  error
}

func (s *failingStore) hit(kind string) error {
	if kind != s.kind {
		return nil
	}
	if s.n--; s.n >= 0 {
		return nil
	}
	return s.err
}

func (s *failingStore) Create(ctx context.Context, uri string) (objstore.Writer, error) {
	if err := s.hit("create"); err != nil {
		return nil, err
	}
	w, err := s.Store.Create(ctx, uri)
	return &failingWriter{w, s}, err
}

type failingWriter struct {
	objstore.Writer
	store *failingStore
}

func (w *failingWriter) Write(b []byte) (int, error) {
	if err := w.store.hit("write"); err != nil {
		return 0, err
	}
	return w.Writer.Write(b)
}

func (w *failingWriter) Commit(ctx context.Context) error {
	if err := w.store.hit("commit"); err != nil {
		w.Abort()
		return err
	}
	if err := w.Writer.Commit(ctx); err != nil {
		return err
	}
	return w.store.hit("lost reply")
}

// TestStoreFailures: whatever fails, the error is one for a person and nothing
// is left behind, also when a file became visible although its commit failed.
func TestStoreFailures(t *testing.T) {
	full := fmt.Errorf("disk: %w", objstore.ErrFull)
	for _, c := range []struct {
		kind string
		n    int
	}{{"create", 0}, {"create", 2}, {"write", 0}, {"write", 9}, {"commit", 0}, {"commit", 2}, {"lost reply", 1}} {
		t.Run(fmt.Sprintf("%s %d", c.kind, c.n), func(t *testing.T) {
			tb := keyed(t)
			tb.opts.Context.TargetFileSize = 3000
			tb.opts.Store = &failingStore{Store: tb.opts.Store, kind: c.kind, n: c.n, err: full}
			w := tb.open(t)
			b := tb.numbers(0, 3000, 4)
			defer b.Release()
			err := w.Write(context.Background(), b)
			_, cerr := w.Close(context.Background())
			if cerr == nil || err != nil && !errors.Is(cerr, objstore.ErrFull) {
				t.Fatalf("Write: %v, Close: %v", err, cerr)
			}
			if e, ok := errors.AsType[*commit.Error](cerr); !ok || e.Code != commit.CodeDataFile || !strings.Contains(e.Object, "a-1") || !errors.Is(cerr, objstore.ErrFull) {
				t.Errorf("the error isn't one for a person: %v", cerr)
			}
			tb.wantNoFiles(t)
		})
	}
}

func TestNoRoomToSpill(t *testing.T) {
	tb := keyed(t)
	tb.opts.OpenFiles, tb.opts.Memory, tb.opts.SpillDir = 1, 8000, "/nonexistent/dir"
	err := tb.failure(t, tb.numbers(0, 3000, 3))
	if commit.CodeOf(err) != commit.CodeSpill {
		t.Errorf("want %s: %v", commit.CodeSpill, err)
	}
}

func TestCancelled(t *testing.T) {
	tb := keyed(t)
	w := tb.open(t)
	ctx, cancel := context.WithCancel(context.Background())
	b := tb.numbers(0, 100, 3)
	defer b.Release()
	if err := w.Write(ctx, b); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Write(ctx, b); !errors.Is(err, context.Canceled) {
		t.Errorf("want context.Canceled: %v", err)
	}
	if _, err := w.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("want context.Canceled: %v", err)
	}
	tb.wantNoFiles(t)
}

func TestBadOptions(t *testing.T) {
	for name, change := range map[string]func(*sinks.Options){
		"no attempt":             func(o *sinks.Options) { o.Attempt = "" },
		"attempt that climbs":    func(o *sinks.Options) { o.Attempt = "../a" },
		"prefix without a slash": func(o *sinks.Options) { o.Context.Prefix = "file:///x" },
		"no store":               func(o *sinks.Options) { o.Store = nil },
	} {
		tb := keyed(t)
		change(&tb.opts)
		if _, err := sinks.Open(context.Background(), New(), tb.opts); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

func TestParquetProperties(t *testing.T) {
	chunk := func(t *testing.T, props map[string]string, at int) (codec compress.Compression, encodings string, size int64) {
		t.Helper()
		tb := newTable(t, iceberg.NewSchema(0, field(1, "k", p.Int32), field(2, "v", &iceberg.StructType{FieldList: []iceberg.NestedField{field(3, "s", p.String)}})), nil, props)
		rows := make([]string, 3000)
		for i := range rows {
			rows[i] = fmt.Sprintf(`{"k":%d,"v":{"s":"value %d"}}`, i%7, i%7)
		}
		f := tb.write(t, tb.batch(t, "["+strings.Join(rows, ",")+"]"))[0]
		c, err := tb.openParquet(t, f).MetaData().RowGroup(0).ColumnChunk(at)
		if err != nil {
			t.Fatal(err)
		}
		return c.Compression(), fmt.Sprint(c.Encodings()), c.TotalCompressedSize()
	}
	for name, want := range map[string]compress.Compression{
		"": compress.Codecs.Zstd, "ZSTD": compress.Codecs.Zstd, "gzip": compress.Codecs.Gzip, "snappy": compress.Codecs.Snappy,
		"lz4": compress.Codecs.Lz4Raw, "brotli": compress.Codecs.Brotli, "uncompressed": compress.Codecs.Uncompressed,
	} {
		if got, _, _ := chunk(t, map[string]string{"write.parquet.compression-codec": name}, 0); got != want {
			t.Errorf("codec %q: %v", name, got)
		}
	}
	dictionary := parquet.Encodings.RLEDict.String()
	if _, enc, _ := chunk(t, nil, 1); !strings.Contains(enc, dictionary) {
		t.Errorf("no dictionary for seven values: %s", enc)
	}
	if _, enc, _ := chunk(t, map[string]string{"parquet.enable.dictionary": "false"}, 1); strings.Contains(enc, dictionary) {
		t.Errorf("a dictionary although off: %s", enc)
	}
	if _, enc, _ := chunk(t, map[string]string{"write.parquet.dict-encoding-enabled.column.v.s": "false"}, 1); strings.Contains(enc, dictionary) {
		t.Errorf("a dictionary although off for the column: %s", enc)
	}
	_, _, low := chunk(t, map[string]string{"write.parquet.compression-level": "1", "parquet.enable.dictionary": "false"}, 1)
	_, _, high := chunk(t, map[string]string{"write.parquet.compression-level": "19", "parquet.enable.dictionary": "false"}, 1)
	if high >= low {
		t.Errorf("level 19 gives %d bytes, level 1 %d", high, low)
	}
}

func TestMetricsProperties(t *testing.T) {
	tb := newTable(t, iceberg.NewSchema(0, field(1, "a", p.String), field(2, "b", p.String), field(3, "c", p.String)), nil, map[string]string{
		"write.metadata.metrics.default": "counts", "write.metadata.metrics.column.a": "none", "write.metadata.metrics.column.c": "truncate(2)",
	})
	f := tb.write(t, tb.batch(t, `[{"a":"x","b":"y","c":"zebra"}]`))[0]
	if got := fmt.Sprint(f.ValueCounts, f.NullCounts, len(f.ColumnSizes), f.Lower, f.Upper); got != "map[2:1 3:1] map[2:0 3:0] 2 map[3:[122 101]] map[3:[122 102]]" {
		t.Errorf("kept %s", got)
	}
}
