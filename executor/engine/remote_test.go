package engine

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/objstore/storetest"
	"github.com/firn-project/firn/plan"
)

// bucket is an S3 store behind a proxy that counts.
type bucket struct {
	*storetest.Proxy
	t       *testing.T
	storage map[string]string
}

func newBucket(t *testing.T) *bucket {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("data"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server())
	t.Cleanup(server.Close)
	t.Cleanup(objstore.CloseIdleConnections)
	p := storetest.NewProxy(t, server.URL)
	return &bucket{Proxy: p, t: t, storage: objstore.Config{Endpoint: p.URL, PathStyle: true, AccessKeyID: "k", SecretAccessKey: "s"}.Storage()}
}

// put makes an object of a local file.
func (b *bucket) put(key, path string) {
	b.t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := objstore.WriteFile(b.t.Context(), objstore.New(objstore.FromStorage(b.storage)), "s3://data/"+key, content); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bucket) source(kind plan.SourceKind, patterns ...string) plan.Source {
	src := files(kind, patterns...)
	src.Storage = b.storage
	return src
}

// chunkBytes is the size of some columns of some row groups, and of the footer.
func chunkBytes(t *testing.T, path string, columns []string, groups func(int) bool) int64 {
	t.Helper()
	r, err := file.OpenParquetFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	md := r.MetaData()
	n := int64(md.Size()) + 8
	for g := range md.NumRowGroups() {
		for c := range md.Schema.NumColumns() {
			if groups(g) && slices.Contains(columns, md.Schema.Column(c).Name()) {
				chunk, err := md.RowGroup(g).ColumnChunk(c)
				if err != nil {
					t.Fatal(err)
				}
				n += chunk.TotalCompressedSize()
			}
		}
	}
	return n
}

// Of an object only what a query needs is moved: the footer, and of its columns
// those row groups that the statistics don't rule out.
func TestObjectsMoveOnlyWhatIsNeeded(t *testing.T) {
	const groups, rows = 50, 2048
	dir := t.TempDir()
	write(t, dir, fmt.Sprintf(`COPY (SELECT i AS id, md5(i::VARCHAR) AS a, md5((i+1)::VARCHAR) AS b, md5((i+2)::VARCHAR) AS c, random() AS d
		FROM range(%d) t(i)) TO '%%s/t.parquet' (ROW_GROUP_SIZE %d)`, groups*rows, rows))
	path := filepath.Join(dir, "t.parquet")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	b := newBucket(t)
	b.put("t.parquet", path)
	e := newEngine(t)
	src := b.source(plan.SourceParquet, "s3://data/t.parquet")
	b.Begin(nil)
	src = mustProbe(t, e, "FROM firn_s0", src).Sources[0]
	if n := b.Sent(); n > 40<<10 {
		t.Errorf("%d bytes were read to bind", n)
	}
	sliced := src
	sliced.Files = slices.Clone(src.Files)
	sliced.Files[0].First, sliced.Files[0].End = 20*rows, 25*rows
	all := func(int) bool { return true }
	tenth := func(g int) bool { return g >= 20 && g < 25 }
	for _, c := range []struct {
		name, sql, want string
		src             plan.Source
		columns         []string
		groups          func(int) bool
	}{
		{
			"filter on statistics", fmt.Sprintf("SELECT sum(length(b)), sum(id) FROM firn_s0 WHERE id >= %d AND id < %d", 20*rows, 25*rows),
			"327680|471854080", src,
			[]string{"id", "b"},
			tenth,
		},
		{"slice", "SELECT sum(length(a)), sum(id) FROM firn_s0", "327680|471854080", sliced, []string{"id", "a"}, tenth},
		{"a column", "SELECT count(DISTINCT c) FROM firn_s0", "102400", src, []string{"c"}, all},
		{"no column", "SELECT count(*) FROM firn_s0", "102400", src, nil, all},
		{"everything", "SELECT sum(length(a) + length(b) + length(c) + id), sum(d) > 1000 FROM firn_s0", "5252659200|true", src, []string{"id", "a", "b", "c", "d"}, all},
		{"twice", "SELECT count(x.a) FROM firn_s0 x JOIN firn_s0 y USING (id)", "102400", src, []string{"id", "a"}, all},
	} {
		b.Begin(nil)
		if got := mustRun(t, e, c.sql, c.src).String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		need := chunkBytes(t, path, c.columns, c.groups)
		if got := b.Sent(); float64(got) > 1.2*float64(need)+footerGuess {
			t.Errorf("%s: %d bytes were moved, %d are needed of %d", c.name, got, need, info.Size())
		}
		t.Logf("%s: moved %d, needed %d of %d, requests %v", c.name, b.Sent(), need, info.Size(), b.Requests())
	}
}

// Reads of objects outlive what a store does for a while, and fail with the
// store's words and the object's name when it goes on.
func TestObjectsWithFaults(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "COPY (SELECT i AS id, md5(i::VARCHAR) AS a FROM range(100000) t(i)) TO '%s/t.parquet' (ROW_GROUP_SIZE 10240)")
	b := newBucket(t)
	b.put("t.parquet", filepath.Join(dir, "t.parquet"))
	e := newEngine(t)
	src := mustProbe(t, e, "FROM firn_s0", b.source(plan.SourceParquet, "s3://data/t.parquet")).Sources[0]
	kinds := []storetest.Fault{storetest.Busy, storetest.None, storetest.Reset, storetest.Cut, storetest.Broken, storetest.ResetBody}
	b.Begin(func(r storetest.Request) storetest.Fault { return kinds[r.N%len(kinds)] })
	if got := mustRun(t, e, "SELECT count(DISTINCT a), sum(id) FROM firn_s0", src).String(); got != "100000|4999950000" {
		t.Errorf("got %s", got)
	}
	if n := len(b.Faults()); n < 4 {
		t.Errorf("faults %v", b.Faults())
	}
}

func TestObjectsErrorsAreTold(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "COPY (SELECT i AS id, md5(i::VARCHAR) AS a FROM range(100000) t(i)) TO '%s/t.parquet' (ROW_GROUP_SIZE 10240)", "COPY (SELECT 1 AS id, '' AS a) TO '%s/u.parquet'")
	b := newBucket(t)
	b.put("t.parquet", filepath.Join(dir, "t.parquet"))
	e := newEngine(t)
	src := mustProbe(t, e, "FROM firn_s0", b.source(plan.SourceParquet, "s3://data/t.parquet")).Sources[0]

	// It's gone, and then it's another one.
	if err := objstore.New(objstore.FromStorage(b.storage)).Delete(t.Context(), "s3://data/t.parquet"); err != nil {
		t.Fatal(err)
	}
	_, err := run(t.Context(), e, task(), &plan.Query{SQL: "SELECT max(a) FROM firn_s0", Sources: []plan.Source{src}})
	if commit.CodeOf(err) == "" || !strings.Contains(err.Error(), "s3://data/t.parquet") || Class(err) != ClassNotRetryable {
		t.Errorf("a missing object: %v", err)
	}
	b.put("t.parquet", filepath.Join(dir, "u.parquet"))
	_, err = run(t.Context(), e, task(), &plan.Query{SQL: "SELECT max(a) FROM firn_s0", Sources: []plan.Source{src}})
	if err == nil || !strings.Contains(err.Error(), "when the query was planned") {
		t.Errorf("a replaced object: %v", err)
	}
}

// What a task keeps of objects is bounded: Parquet goes on without keeping more,
// text is refused.
func TestObjectsQuota(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "COPY (SELECT i AS id, md5(i::VARCHAR) AS a FROM range(100000) t(i)) TO '%s/t.parquet' (ROW_GROUP_SIZE 10240)")
	writeText(t, dir+"/t.csv", "id\n"+strings.Repeat("1\n", 100_000))
	b := newBucket(t)
	b.put("t.parquet", filepath.Join(dir, "t.parquet"))
	b.put("t.csv", filepath.Join(dir, "t.csv"))
	e := newEngine(t)
	e.cfg.MaxStage = 100 << 10
	src := mustProbe(t, e, "FROM firn_s0", b.source(plan.SourceParquet, "s3://data/t.parquet")).Sources[0]
	if got := mustRun(t, e, "SELECT count(DISTINCT a), sum(id) FROM firn_s0", src).String(); got != "100000|4999950000" {
		t.Errorf("got %s", got)
	}
	err := probeFails(t, e, "FROM firn_s0", b.source(plan.SourceCSV, "s3://data/t.csv"))
	if commit.CodeOf(err) != commit.CodeSpillFull || !strings.Contains(err.Error(), "t.csv") {
		t.Errorf("text beyond the quota: %v", err)
	}
}

// A task that is cancelled while the store hangs ends at once.
func TestObjectsCancelled(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "COPY (SELECT i AS id, md5(i::VARCHAR) AS a FROM range(100000) t(i)) TO '%s/t.parquet' (ROW_GROUP_SIZE 10240)")
	b := newBucket(t)
	b.put("t.parquet", filepath.Join(dir, "t.parquet"))
	e := newEngine(t)
	src := mustProbe(t, e, "FROM firn_s0", b.source(plan.SourceParquet, "s3://data/t.parquet")).Sources[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.Begin(func(r storetest.Request) storetest.Fault {
		if r.Op == storetest.Get && r.N == 2 {
			cancel()
			return storetest.Stall
		}
		return storetest.None
	})
	_, err := run(ctx, e, task(), &plan.Query{SQL: "SELECT max(a) FROM firn_s0", Sources: []plan.Source{src}})
	if Class(err) != ClassCancelled {
		t.Errorf("error %v", err)
	}
}
