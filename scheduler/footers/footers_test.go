package footers_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"go.uber.org/goleak"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/scheduler/footers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// parquetFile is a file of rows rows and columns columns.
func parquetFile(t testing.TB, rows, columns int) []byte {
	t.Helper()
	var fields []arrow.Field
	var cols []arrow.Array
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	for c := range columns {
		for r := range rows {
			b.Append(int64(r))
		}
		col := b.NewArray()
		defer col.Release()
		cols = append(cols, col)
		fields = append(fields, arrow.Field{Name: fmt.Sprintf("column_with_a_long_name_%d", c), Type: arrow.PrimitiveTypes.Int64, Nullable: true})
	}
	schema := arrow.NewSchema(fields, nil)
	rec := array.NewRecordBatch(schema, cols, int64(rows))
	defer rec.Release()
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(schema, &out, parquet.NewWriterProperties(parquet.WithMaxRowGroupLength(7)), pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// unit is one of files that lie in a directory.
func unit(t testing.TB, contents ...[]byte) commit.Unit {
	t.Helper()
	dir := t.TempDir()
	s := commit.UnitSpec{TableUUID: "u", Prefix: "file://" + dir + "/", Table: commit.TableName{Catalog: "c", Name: "t"}}
	for i, raw := range contents {
		name := fmt.Sprintf("0-%d-a-0.parquet", i)
		if raw != nil {
			if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s.Files = append(s.Files, commit.File{Path: s.Prefix + name, Rows: 20, Size: int64(len(raw))})
	}
	return commit.NewUnit(s)
}

func check(t testing.TB, c *footers.Checker, u commit.Unit) error {
	t.Helper()
	return c.Check(t.Context(), objstore.New(objstore.Config{}), u)
}

func TestGoodFiles(t *testing.T) {
	wide := parquetFile(t, 20, 400) // a footer that is longer than the tail
	if n := binary.LittleEndian.Uint32(wide[len(wide)-8:]); n < 17<<10 {
		t.Fatalf("its footer has %d bytes", n)
	}
	u := unit(t, parquetFile(t, 20, 1), wide, parquetFile(t, 20, 3))
	if err := check(t, footers.New(false, 0), u); err != nil {
		t.Fatal(err)
	}
	if err := check(t, footers.New(false, 0), unit(t)); err != nil {
		t.Fatal(err)
	}
}

func TestFilesThatAreNotWhatTheirManifestSays(t *testing.T) {
	good := parquetFile(t, 20, 2)
	changed := func(at int, b ...byte) []byte {
		raw := bytes.Clone(good)
		copy(raw[len(raw)+at:], b)
		return raw
	}
	for name, tt := range map[string]struct {
		raw  []byte
		size int64 // in the manifest, 0 for the file's
		want string
	}{
		"missing":             {nil, 100, "files are there"},
		"empty":               {[]byte{}, 100, "the size that its manifest says"},
		"cut":                 {good[:len(good)-1], int64(len(good)), "the size that its manifest says"},
		"short":               {[]byte("PAR1PAR1"), 0, "whole Parquet"},
		"another end":         {changed(-1, '2'), 0, "whole Parquet"},
		"footer before it":    {changed(-8, 0xff, 0xff, 0, 0), 0, "more than the file"},
		"a huge footer":       {append(make([]byte, 65<<20), 1, 0, 0, 4, 'P', 'A', 'R', '1'), 0, "at most"},
		"a footer of nothing": {append([]byte("PAR1"), 0, 0, 0, 0, 'P', 'A', 'R', '1'), 0, "ends too early"},
		"a footer that stops": {append([]byte("PAR1\x00"), 1, 0, 0, 0, 'P', 'A', 'R', '1'), 0, "no number of rows"},
		"rows as text":        {append([]byte("PAR1\x38\x00\x00"), 3, 0, 0, 0, 'P', 'A', 'R', '1'), 0, "no number"},
		"more rows":           {parquetFile(t, 21, 2), 0, "21 rows in its footer instead of 20"},
		"fewer rows":          {parquetFile(t, 19, 2), 0, "19 rows"},
		"no rows":             {parquetFile(t, 0, 2), 0, "0 rows"},
	} {
		t.Run(name, func(t *testing.T) {
			u := unit(t, parquetFile(t, 20, 1), tt.raw)
			if tt.size > 0 {
				committest.EditFile(&u, 1, func(f *commit.File) { f.Size = tt.size })
			}
			err := check(t, footers.New(false, 0), u)
			if commit.CodeOf(err) != commit.CodeVerification || commit.ReasonOf(err) != commit.ReasonValidation ||
				!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), u.Files.Path(1)) {
				t.Errorf("%v, want the file and %q", err, tt.want)
			}
		})
	}
}

// flaky is a store that answers late, and counts.
type flaky struct {
	objstore.Store
	mu    sync.Mutex
	fails int
	opens map[string]int
}

func (f *flaky) Open(ctx context.Context, uri string) (objstore.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opens == nil {
		f.opens = map[string]int{}
	}
	f.opens[uri]++
	if f.fails != 0 {
		f.fails--
		return nil, &commit.Error{Code: commit.CodeStorage, Reason: commit.ReasonPermission, Op: "open", Object: uri, Cause: errors.New("503")}
	}
	return f.Store.Open(ctx, uri)
}

// A store that can't be reached is asked again, and never is a reason to refuse.
func TestStoreThatCannotBeReached(t *testing.T) {
	u := unit(t, parquetFile(t, 20, 1))
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{Store: objstore.New(objstore.Config{}), fails: 5}
		c := footers.New(false, time.Minute)
		if err := c.Check(t.Context(), s, u); err != nil {
			t.Errorf("after a while: %v", err)
		}
		s.fails = -1
		began := time.Now()
		err := c.Check(t.Context(), s, u)
		if err == nil || commit.CodeOf(err) != commit.CodeStorage {
			t.Errorf("%v", err)
		}
		if d := time.Since(began); d < 50*time.Second || d > 2*time.Minute {
			t.Errorf("it gave up after %v", d)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("stopped")) })
		if err := c.Check(ctx, s, u); err == nil {
			t.Error("it went on after its context's end")
		}
	})
}

func TestSample(t *testing.T) {
	raw := parquetFile(t, 20, 1)
	u := unit(t, raw)
	var many commit.Packer
	for many.Len() < 3000 {
		many.Add(u.Files.At(0))
	}
	u.Files = many.Files()
	for all, want := range map[bool]int{true: 3000, false: 1020} {
		s := &flaky{Store: objstore.New(objstore.Config{})}
		if err := footers.New(all, 0).Check(t.Context(), s, u); err != nil {
			t.Fatal(err)
		}
		if n := s.opens[u.Files.Path(0)]; n != want {
			t.Errorf("all=%v: %d of 3000 files were looked at, want %d", all, n, want)
		}
	}
}

// Whatever a footer holds, looking at it ends, and with an error or a number.
func FuzzFooter(f *testing.F) {
	raw := parquetFile(f, 20, 2)
	f.Add(raw)
	f.Add([]byte("PAR1\x19\xfc\xff\xff\xff\xff\x0f\x0c\x0d\x00\x00\x00PAR1"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > 1<<16 {
			return
		}
		u := unit(t, raw)
		if len(raw) == 0 {
			return
		}
		err := footers.New(false, 0).Check(t.Context(), objstore.New(objstore.Config{}), u)
		if err != nil && commit.CodeOf(err) != commit.CodeVerification {
			t.Errorf("%v", err)
		}
	})
}

// BenchmarkOneFile is what the check adds to an INSERT of one row.
func BenchmarkOneFile(b *testing.B) {
	u := unit(b, parquetFile(b, 20, 3))
	c, s := footers.New(false, 0), objstore.New(objstore.Config{})
	for b.Loop() {
		if err := c.Check(b.Context(), s, u); err != nil {
			b.Fatal(err)
		}
	}
}
