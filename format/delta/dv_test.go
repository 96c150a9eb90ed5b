package delta

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
)

// inlineExample was written by Databricks (table cdf-table-with-cdc-and-dvs of
// delta-rs).
var inlineExample = DeletionVector{StorageType: "i", PathOrInlineDV: "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg000f5", SizeInBytes: 36, Cardinality: 2}

func TestInlineVector(t *testing.T) {
	d := inlineExample
	s, err := d.Inline()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Collect(s.All()), []int64{0, 5}; !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
	if !s.Contains(5) || s.Contains(1) || s.Contains(5+1<<32) || s.Contains(-1) {
		t.Error("Contains is wrong")
	}
	if s.Len() != 2 {
		t.Errorf("%d rows", s.Len())
	}
	// The protocol's own example has the older form, which begins otherwise.
	d = DeletionVector{StorageType: "i", PathOrInlineDV: "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", SizeInBytes: 40, Cardinality: 6}
	if _, err := d.Inline(); err == nil || !strings.Contains(err.Error(), "only form") {
		t.Errorf("another form: %v", err)
	}
}

func TestVectorNames(t *testing.T) {
	offset := int32(4)
	d := DeletionVector{StorageType: "u", PathOrInlineDV: "ab^-aqEH.-t@S}K{vb[*k^", Offset: &offset, SizeInBytes: 40, Cardinality: 6}
	got, err := d.File("s3://b/table")
	if want := "s3://b/table/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"; err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if got, want := d.ID(), "uab^-aqEH.-t@S}K{vb[*k^@4"; got != want {
		t.Errorf("id %q, want %q", got, want)
	}
	if (*DeletionVector)(nil).ID() != "" || inlineExample.ID() != "i"+inlineExample.PathOrInlineDV {
		t.Error("ids without an offset are wrong")
	}
	d = DeletionVector{StorageType: "p", PathOrInlineDV: "s3://c/deletion_vector_x.bin"}
	if got, err := d.File("s3://b/table"); err != nil || got != "s3://c/deletion_vector_x.bin" {
		t.Errorf("%s, %v", got, err)
	}
	for _, name := range []string{"short", "ab^-aqEH.-t@S}K{vb[*k~", "../^-aqEH.-t@S}K{vb[*k^"} {
		d = DeletionVector{StorageType: "u", PathOrInlineDV: name}
		if got, err := d.File("s3://b/table"); err == nil {
			t.Errorf("%q gave %q", name, got)
		}
	}
}

// vector is the content of a vector, frame that of its file from the offset on.
func vector(t testing.TB, parts map[uint32][]uint32) []byte {
	t.Helper()
	b := binary.LittleEndian.AppendUint32(nil, vectorMagic)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(parts)))
	var highs []uint32
	for h := range parts {
		highs = append(highs, h)
	}
	slices.Sort(highs)
	for _, h := range highs {
		b = binary.LittleEndian.AppendUint32(b, h)
		raw, err := roaring.BitmapOf(parts[h]...).ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, raw...)
	}
	return b
}

func frame(v []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(v)))
	b = append(b, v...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(v))
}

func TestFramedVector(t *testing.T) {
	v := vector(t, map[uint32][]uint32{0: {0, 5, 70000}, 2: {9}})
	d := DeletionVector{StorageType: "u", SizeInBytes: int32(len(v)), Cardinality: 4}
	s, err := d.Framed(frame(v))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Collect(s.All()), []int64{0, 5, 70000, 2<<32 + 9}; !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
	damaged := frame(v)
	damaged[len(damaged)-6]++
	if _, err := d.Framed(damaged); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("a damaged file: %v", err)
	}
	d.Cardinality = 5
	if _, err := d.Framed(frame(v)); err == nil || !strings.Contains(err.Error(), "the descriptor says 5") {
		t.Errorf("a wrong cardinality: %v", err)
	}
	d.SizeInBytes++
	if _, err := d.Framed(append(frame(v), 0)); err == nil || !strings.Contains(err.Error(), "the file says") {
		t.Errorf("a wrong size: %v", err)
	}
	for name, b := range map[string][]byte{
		"empty":      {},
		"magic":      make([]byte, 20),
		"count":      binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, vectorMagic), 1<<60),
		"cut off":    v[:len(v)-3],
		"left over":  append(slices.Clone(v), 0),
		"not sorted": append(append(slices.Clone(v[:4]), 2, 0, 0, 0, 0, 0, 0, 0), append(slices.Clone(v[12:]), v[12:]...)...),
	} {
		if s, err := parseRowSet(b); err == nil {
			t.Errorf("%s was read as %d rows", name, s.Len())
		}
	}
	if _, err := parseRowSet(vector(t, nil)); err != nil {
		t.Errorf("no bitmaps: %v", err)
	}
	if s, err := parseRowSet(vector(t, map[uint32][]uint32{0: nil})); err != nil || s.Len() != 0 {
		t.Errorf("an empty bitmap: %v", err)
	}
}

func FuzzDeletionVector(f *testing.F) {
	f.Add(vector(f, map[uint32][]uint32{0: {0, 5, 70000}, 2: {9}}), inlineExample.PathOrInlineDV)
	f.Fuzz(func(t *testing.T, b []byte, letters string) {
		if s, err := parseRowSet(b); err == nil {
			n, last := int64(0), int64(-1)
			for row := range s.All() {
				if row <= last || !s.Contains(row) {
					t.Fatalf("row %d after %d", row, last)
				}
				last = row
				if n++; n > 1<<20 {
					return
				}
			}
			if n != s.Len() {
				t.Fatalf("%d rows, %d said", n, s.Len())
			}
		}
		for _, typ := range []string{"i", "u", "p"} {
			d := DeletionVector{StorageType: typ, PathOrInlineDV: letters, SizeInBytes: int32(len(b)), Cardinality: 1}
			_, _ = d.Inline()
			_, _ = d.File("s3://b/t")
			_, _ = d.Framed(b)
		}
	})
}
