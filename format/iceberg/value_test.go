package iceberg

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/apache/iceberg-go"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

func TestEncodeValue(t *testing.T) {
	for _, c := range []struct {
		typ  iceberg.Type
		v    any
		want string
	}{
		{pt.Bool, false, "00"},
		{pt.Bool, true, "01"},
		{pt.Int32, int32(1), "01000000"},
		{pt.Int64, int64(-1), "ffffffffffffffff"},
		{pt.Float32, float32(1), "0000803f"},
		{pt.Date, iceberg.Date(-1), "ffffffff"},
		{pt.Timestamp, iceberg.Timestamp(1), "0100000000000000"},
		{pt.TimestampTz, iceberg.Timestamp(1), "0100000000000000"},
		{pt.Time, iceberg.Time(2), "0200000000000000"},
		{pt.String, "", ""},
		{pt.String, "é", "c3a9"},
		{pt.Binary, []byte{}, ""},
		{iceberg.FixedTypeOf(2), []byte{1, 2}, "0102"},
		{pt.UUID, uuid.MustParse("f79c3e09-677c-4bbd-a479-3f349cb785e7"), "f79c3e09677c4bbda4793f349cb785e7"},
		{iceberg.DecimalTypeOf(5, 2), dec("0.00", 5, 2), "00"},
		{iceberg.DecimalTypeOf(5, 2), dec("1.27", 5, 2), "7f"},
		{iceberg.DecimalTypeOf(5, 2), dec("1.28", 5, 2), "0080"},
		{iceberg.DecimalTypeOf(5, 2), dec("-1.28", 5, 2), "80"},
		{iceberg.DecimalTypeOf(5, 2), dec("-1.29", 5, 2), "ff7f"},
		{iceberg.DecimalTypeOf(5, 2), dec("-0.01", 5, 2), "ff"},
	} {
		got, err := EncodeValue(c.typ, c.v)
		if err != nil || got == nil || fmt.Sprintf("%x", got) != c.want {
			t.Errorf("%s %v: %x (nil %v, %v), want %s", c.typ, c.v, got, got == nil, err, c.want)
		}
		back, err := DecodeValue(c.typ, got)
		if err != nil || fmt.Sprintf("%T %v", back, back) != fmt.Sprintf("%T %v", c.v, c.v) {
			t.Errorf("%s %v comes back as %T %v (%v)", c.typ, c.v, back, back, err)
		}
	}
}

func TestDecodeHostileValues(t *testing.T) {
	for _, c := range []struct {
		typ iceberg.Type
		b   []byte
	}{
		{pt.Bool, nil},
		{pt.Bool, []byte{1, 1}},
		{pt.Int32, make([]byte, 8)},
		{pt.Int64, make([]byte, 5)},
		{pt.Timestamp, make([]byte, 4)},
		{pt.Float32, make([]byte, 8)},
		{pt.Float64, nil},
		{pt.Date, nil},
		{pt.UUID, make([]byte, 15)},
		{iceberg.FixedTypeOf(3), make([]byte, 2)},
		{pt.String, []byte{0xff}},
		{iceberg.DecimalTypeOf(5, 2), nil},
		{iceberg.DecimalTypeOf(5, 2), make([]byte, 17)},
		{iceberg.DecimalTypeOf(3, 0), []byte{0x7f, 0xff}},
		{iceberg.DecimalTypeOf(38, 0), append([]byte{0x80}, make([]byte, 15)...)},
		{&iceberg.ListType{ElementID: 1, Element: pt.Int32}, []byte{1}},
		{nil, []byte{1}},
	} {
		if v, err := DecodeValue(c.typ, c.b); err == nil {
			t.Errorf("%v: %x is read as %v", c.typ, c.b, v)
		}
	}
	if v, err := DecodeValue(pt.Int64, []byte{0xff, 0xff, 0xff, 0xff}); err != nil || v != int64(-1) {
		t.Errorf("a promoted int: %v %v", v, err)
	}
}

func TestEncodeMismatch(t *testing.T) {
	for _, c := range []struct {
		typ iceberg.Type
		v   any
	}{{pt.Int32, int64(1)}, {pt.String, []byte("x")}, {pt.Binary, "x"}, {pt.Date, int32(1)}, {iceberg.FixedTypeOf(2), []byte{1}}, {pt.Int32, nil}, {pt.Int32, struct{}{}}} {
		if _, err := EncodeValue(c.typ, c.v); err == nil {
			t.Errorf("%T is taken for a %s", c.v, c.typ)
		}
	}
}

// TestDecimalBytes: minimal, and the order of bytes and sign holds.
func TestDecimalBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := decimal128.New(rapid.Int64Range(math.MinInt64/2, math.MaxInt64/2).Draw(t, "hi"), rapid.Uint64().Draw(t, "lo"))
		if rapid.Bool().Draw(t, "small") {
			d = decimal128.FromI64(rapid.Int64().Draw(t, "n"))
		}
		b := decimalBytes(d)
		if back, ok := decimalFromBytes(b); !ok || back != d {
			t.Fatalf("%x comes back as %v", b, back)
		}
		want := d.BigInt().BitLen()
		if d.Sign() < 0 {
			want = decimal128.FromBigInt(d.BigInt().Not(d.BigInt())).BigInt().BitLen()
		}
		if len(b) != want/8+1 {
			t.Fatalf("%d bytes for %d bits", len(b), want)
		}
	})
}

func TestCompareValues(t *testing.T) {
	nan := math.NaN()
	ascending := [][]any{
		{math.Inf(-1), -1.0, math.Copysign(0, -1), 0.0, 1.0, math.Inf(1), nan},
		{"", "a", "aa", "b", "é", "日", "😀"},
		{[]byte{}, []byte{0}, []byte{0x7f}, []byte{0x80}, []byte{0xff}},
		{dec("-1.5", 5, 1), dec("0", 5, 1), dec("9999.9", 5, 1)},
		{false, true},
		{int32(-1), int32(0)},
	}
	for _, vs := range ascending {
		for i := range vs {
			for j := range vs {
				got, err := CompareValues(vs[i], vs[j])
				if err != nil || got != bytes.Compare([]byte{byte(i)}, []byte{byte(j)}) {
					t.Errorf("%v with %v: %d (%v)", vs[i], vs[j], got, err)
				}
			}
		}
	}
	if _, err := CompareValues(int32(1), int64(1)); err == nil {
		t.Error("values of two types are compared")
	}
}
