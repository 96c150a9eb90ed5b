//go:build integration

package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// needed is how many bytes the footer of a Parquet file has, and some columns of
// some of its row groups.
func needed(t *testing.T, path string, first, end int, columns ...string) int64 {
	t.Helper()
	r, err := file.OpenParquetFile(path, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	md := r.MetaData()
	n := int64(md.Size())
	for g := first; g < end; g++ {
		for c := range md.Schema.NumColumns() {
			if !slices.Contains(columns, md.Schema.Column(c).Name()) {
				continue
			}
			chunk, err := md.RowGroup(g).ColumnChunk(c)
			if err != nil {
				t.Fatal(err)
			}
			n += chunk.TotalCompressedSize()
		}
	}
	return n
}

// TestRangeReads: of an object of 1 GB in MinIO, a statement over two columns and
// a tenth of the row groups moves no more than 1.2 times these. One that needs more
// than the executors may keep on disk goes on without keeping it, and a text object
// that doesn't fit there is an error.
func TestRangeReads(t *testing.T) {
	const rows, perGroup, first, end = 13_500_000, 122_880, 50, 61
	dir := t.TempDir()
	path, text := filepath.Join(dir, "big.parquet"), filepath.Join(dir, "big.csv")
	// Random numbers, as they are: nothing makes them smaller.
	duck(t, fmt.Sprintf(`COPY (SELECT i AS id, random() AS a, random() AS b, random() AS c, random() AS d, random() AS e, random() AS f, random() AS g, random() AS h, random() AS k
		FROM range(%d) t(i)) TO '%s' (COMPRESSION uncompressed, ROW_GROUP_SIZE %d)`, rows, path, perGroup),
		fmt.Sprintf("COPY (SELECT repeat('x', 1000) AS x FROM range(70000)) TO '%s'", text))
	info, err := os.Stat(path)
	if err != nil || info.Size() < 1<<30 {
		t.Fatalf("%v, %v", info, err)
	}
	s := onMinIO(t)
	upload(t, s.store, path, "s3://lake/landing/big.parquet")
	upload(t, s.store, text, "s3://lake/landing/big.csv")
	proxy := storetest.NewProxy(t, s.store.Endpoint)
	s.store.Endpoint = proxy.URL
	settings := with(s.store.Storage(), s.sts)
	s.catalog["properties"] = settings
	c := process.NewClient(t, "--server", startOn(t, lakeOf(s.catalog, "s3://lake/landing", settings), "--object-cache", "64MB"))
	c.Exec(nil, "CREATE NAMESPACE lake.air")
	c.Exec(nil, "CREATE TABLE lake.air.t (id bigint, b double)")

	const big = "read_parquet('s3://lake/landing/big.parquet')"
	tenth := fmt.Sprintf(" FROM %s WHERE id >= %d AND id < %d", big, first*perGroup, end*perGroup)
	for _, q := range []struct {
		name, sql string
		need      int64
	}{
		{"SELECT of a tenth", "SELECT sum(b) AS b" + tenth, needed(t, path, first, end, "id", "b")},
		{"INSERT of a tenth", "INSERT INTO lake.air.t SELECT id, b" + tenth, needed(t, path, first, end, "id", "b")},
		// Its nine columns don't fit on the disk.
		{"SELECT of all", "SELECT sum(a + b + c + d + e + f + g + h + k) AS s FROM " + big, needed(t, path, 0, rows/perGroup, "a", "b", "c", "d", "e", "f", "g", "h", "k")},
	} {
		proxy.Begin(nil)
		began := time.Now()
		c.Exec(nil, q.sql)
		sent := proxy.Sent()
		t.Logf("%s: %d bytes moved of %d, %d needed (%.3f), %.1fs, requests %v",
			q.name, sent, info.Size(), q.need, float64(sent)/float64(q.need), time.Since(began).Seconds(), proxy.Requests())
		if float64(sent) > 1.2*float64(q.need) || sent < q.need/2 {
			t.Errorf("%s: %d bytes were moved, %d are needed", q.name, sent, q.need)
		}
	}
	if n := c.Row("SELECT count(*) AS n FROM lake.air.t")["n"]; n != float64((end-first)*perGroup) {
		t.Errorf("%v rows", n)
	}

	proxy.Begin(nil)
	r := c.Try("SELECT count(*) AS n FROM read_csv('s3://lake/landing/big.csv')")
	if r.Code == 0 || !strings.Contains(r.Stderr, "s3://lake/landing/big.csv") || !strings.Contains(r.Stderr, "--object-cache") {
		t.Errorf("a text object beyond the quota: exit code %d\n%s", r.Code, r.Stderr)
	}
	if n := proxy.Sent(); n > 0 {
		t.Errorf("%d bytes were moved of an object that doesn't fit", n)
	}
}
