package iceberg

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/iceberg-go"

	"github.com/firn-project/firn/sinks"
	"github.com/firn-project/firn/sinks/parquetfile"
)

// texts is a column under test: n values of which value gives each.
type texts struct {
	name  string
	n     int
	value func(r *rand.Rand, i int) (text string, null bool)
	// dictionary: the column has one in the file. ours: it was made here.
	dictionary, ours bool
}

func word(r *rand.Rand, words ...string) string { return words[r.IntN(len(words))] }

var textColumns = []texts{
	{"short", 300000, func(r *rand.Rand, _ int) (string, bool) {
		return word(r, "SFO", "LAX", "a", "a\x00", "AAAAAAA"), false
	}, true, true},
	{"with empty ones", 300000, func(r *rand.Rand, _ int) (string, bool) { return word(r, "SFO", "LAX", ""), false }, true, false},
	{"long", 50000, func(r *rand.Rand, _ int) (string, bool) {
		return word(r, "eightttt", "nine is this", "ünïcödé is long too", "eighttt"), false
	}, true, true},
	{"with nulls", 50000, func(r *rand.Rand, _ int) (string, bool) { return word(r, "x", "yy", "a text"), r.IntN(3) == 0 }, true, true},
	{"with nulls over several pages", 900000, func(r *rand.Rand, _ int) (string, bool) { return fmt.Sprint("k", r.IntN(500)), r.IntN(3) == 0 }, true, false},
	{"over several pages", 1000000, func(r *rand.Rand, _ int) (string, bool) { return fmt.Sprint("k", r.IntN(1500)), false }, true, true},
	{"thousands", 100000, func(r *rand.Rand, _ int) (string, bool) { return fmt.Sprintf("k%d", r.IntN(9000)), false }, true, false},
	{"all different", 20000, func(_ *rand.Rand, i int) (string, bool) { return fmt.Sprint("row ", i), false }, false, false},
	{"few rows", 3, func(_ *rand.Rand, i int) (string, bool) { return fmt.Sprint(i), false }, false, false},
	{"empty", 5000, func(*rand.Rand, int) (string, bool) { return "", false }, true, false},
	{"nulls only", 5000, func(*rand.Rand, int) (string, bool) { return "", true }, false, false},
	{"a large dictionary", 30000, func(_ *rand.Rand, i int) (string, bool) {
		return strings.Repeat("x", 5000) + fmt.Sprint(i%600), false
	}, true, false},
}

// Text comes back as it was, with the statistics that it has, whether it was
// given to the library as a dictionary or not.
func TestTextRoundTrip(t *testing.T) {
	for _, c := range textColumns {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			r := rand.New(rand.NewPCG(7, uint64(c.n)))
			tb := newTable(t, iceberg.NewSchema(0, field(1, "s", iceberg.PrimitiveTypes.String)), nil, nil)
			b := array.NewStringBuilder(memory.DefaultAllocator)
			defer b.Release()
			var want []string
			var nulls int64
			for i := range c.n + 10 {
				v, null := c.value(r, i)
				if null {
					b.AppendNull()
					v = array.NullValueStr
				} else {
					b.Append(v)
				}
				if i >= 5 && i < c.n+5 {
					want = append(want, v)
					if null {
						nulls++
					}
				}
			}
			// A slice: its offset isn't zero, nor is that of its bits.
			part := array.NewSlice(b.NewArray(), 5, int64(c.n+5))
			s := parquetfile.Defaults()
			if ours := parquetfile.DictionaryOf(part.(*array.String), s.DictionaryBytes, s.PageBytes) != nil; ours != c.ours {
				t.Errorf("a dictionary was made here: %t, want %t", ours, c.ours)
			}
			files := tb.write(t, array.NewRecordBatch(tb.arrow, []arrow.Array{part}, int64(c.n)))
			if len(files) != 1 || files[0].NullCounts[1] != nulls {
				t.Fatalf("%+v", files)
			}
			if got := tb.column(t, "s", files...); !slices.Equal(got, want) {
				t.Error("other values came back")
			}
			rd := tb.openParquet(t, files[0])
			chunk, err := rd.MetaData().RowGroup(0).ColumnChunk(0)
			if err != nil {
				t.Fatal(err)
			}
			if got := chunk.HasDictionaryPage(); got != c.dictionary {
				t.Errorf("the column has a dictionary: %t, want %t", got, c.dictionary)
			}
			stats, err := chunk.Statistics()
			if err != nil {
				t.Fatal(err)
			}
			values := slices.DeleteFunc(want, func(s string) bool { return s == array.NullValueStr })
			if s := stats.(*metadata.ByteArrayStatistics); s.NullCount() != nulls ||
				s.HasMinMax() && (string(s.Min()) != slices.Min(values) || string(s.Max()) != slices.Max(values)) {
				t.Errorf("statistics %v of %d nulls", s, nulls)
			}
			checkPages(t, rd, c.n, nulls)
		})
	}
}

// checkPages checks that no page claims more nulls than it has values, and that
// together they have all.
func checkPages(t *testing.T, rd *file.Reader, n int, nulls int64) {
	t.Helper()
	pages, err := rd.RowGroup(0).GetColumnPageReader(0)
	if err != nil {
		t.Fatal(err)
	}
	var values, claimed int64
	for pages.Next() {
		p, ok := pages.Page().(*file.DataPageV1)
		if !ok {
			continue
		}
		values += int64(p.NumValues())
		if s := p.Statistics(); s.HasNullCount {
			claimed += s.NullCount
			if s.NullCount > int64(p.NumValues()) {
				t.Errorf("a page of %d values has %d nulls", p.NumValues(), s.NullCount)
			}
		}
	}
	if values != int64(n) || claimed != nulls {
		t.Errorf("the pages have %d values and %d nulls, want %d and %d", values, claimed, n, nulls)
	}
}

func TestTextWithoutDictionaryByProperty(t *testing.T) {
	for _, props := range []map[string]string{
		{"parquet.enable.dictionary": "false"},
		{"write.parquet.dict-encoding-enabled.column.s": "false"},
	} {
		tb := newTable(t, iceberg.NewSchema(0, field(1, "s", iceberg.PrimitiveTypes.String)), nil, props)
		files := tb.write(t, tb.batch(t, "["+strings.TrimSuffix(strings.Repeat(`{"s":"abc"},`, 1000), ",")+"]"))
		chunk, err := tb.openParquet(t, files[0]).MetaData().RowGroup(0).ColumnChunk(0)
		if err != nil || chunk.HasDictionaryPage() || slices.Contains(chunk.Encodings(), parquet.Encodings.PlainDict) {
			t.Errorf("%v: dictionary %t, encodings %v, %v", props, chunk.HasDictionaryPage(), chunk.Encodings(), err)
		}
	}
}

// BenchmarkText writes a million short texts of 300 different ones.
func BenchmarkText(b *testing.B) {
	tb := newTable(b, iceberg.NewSchema(0, field(1, "s", iceberg.PrimitiveTypes.String)), nil, nil)
	r := rand.New(rand.NewPCG(1, 2))
	sb := array.NewStringBuilder(memory.DefaultAllocator)
	for range 1000000 {
		sb.Append(fmt.Sprintf("%c%c%c", 'A'+r.IntN(7), 'A'+r.IntN(7), 'A'+r.IntN(6)))
	}
	rows := array.NewRecordBatch(tb.arrow, []arrow.Array{sb.NewArray()}, 1000000)
	l, err := New().Bind(tb.opts.Context)
	if err != nil {
		b.Fatal(err)
	}
	props := pqarrow.NewArrowWriterProperties()
	for name, write := range map[string]func() error{
		"library": func() error {
			w, err := pqarrow.NewFileWriter(tb.arrow, io.Discard, parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd)), props)
			if err != nil {
				return err
			}
			return w.Write(rows)
		},
		"dictionary": func() error {
			e, err := newEncoder(l.(*layout), io.Discard, sinks.Partition{})
			if err != nil {
				return err
			}
			return e.writer.WriteRowGroup(rows)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := write(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
