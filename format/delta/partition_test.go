package delta

import (
	"math"
	"math/big"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

func decimalOf(t testing.TB, text string, scale int) Decimal {
	t.Helper()
	n, ok := new(big.Int).SetString(text, 10)
	if !ok {
		t.Fatal(text)
	}
	return Decimal{decimal128.FromBigInt(n), scale}
}

func micros(t testing.TB, text string) arrow.Timestamp {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05.999999", text)
	if err != nil {
		t.Fatal(err)
	}
	return arrow.Timestamp(at.UnixMicro())
}

func TestPartitionValues(t *testing.T) {
	d10, d38 := DecimalType{10, 2}, DecimalType{38, 0}
	nines := strings.Repeat("9", 38)
	for _, c := range []struct {
		t    Type
		v    any
		text string
	}{
		{String, "a/b", "a/b"},
		{String, " ", " "},
		{String, "München 😀", "München 😀"},
		{String, "__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"},
		{String, "null", "null"},
		{Boolean, true, "true"},
		{Boolean, false, "false"},
		{Byte, int8(-128), "-128"},
		{Short, int16(32767), "32767"},
		{Integer, int32(math.MinInt32), "-2147483648"},
		{Long, int64(math.MaxInt64), "9223372036854775807"},
		{Float, float32(1), "1.0"},
		{Float, float32(0.1), "0.1"},
		{Double, 1e10, "1.0E10"},
		{Double, 1e7, "1.0E7"},
		{Double, 9999999.0, "9999999.0"},
		{Double, 0.001, "0.001"},
		{Double, 0.00099, "9.9E-4"},
		{Double, -1.5e-300, "-1.5E-300"},
		{Double, math.Inf(1), "Infinity"},
		{Double, math.Inf(-1), "-Infinity"},
		{Float, float32(math.Inf(1)), "Infinity"},
		{Double, 0.0, "0.0"},
		{d10, decimalOf(t, "4200", 2), "42.00"},
		{d10, decimalOf(t, "-5", 2), "-0.05"},
		{d10, decimalOf(t, "0", 2), "0.00"},
		{d38, decimalOf(t, nines, 0), nines},
		{d38, decimalOf(t, "-"+nines, 0), "-" + nines},
		{DecimalType{38, 38}, decimalOf(t, "1", 38), "0." + strings.Repeat("0", 37) + "1"},
		{Date, arrow.Date32(19723), "2024-01-01"},
		{Date, arrow.Date32(-1), "1969-12-31"},
		{Date, arrow.Date32(-719162), "0001-01-01"},
		{Date, arrow.Date32(2932897), "+10000-01-01"},
		{Timestamp, micros(t, "2024-06-15 19:30:45"), "2024-06-15T19:30:45.000000Z"},
		{Timestamp, micros(t, "1969-12-31 23:59:59.999999"), "1969-12-31T23:59:59.999999Z"},
		{TimestampNTZ, micros(t, "2024-06-15 12:30:45"), "2024-06-15 12:30:45"},
		{TimestampNTZ, micros(t, "2024-06-15 12:30:45.1"), "2024-06-15 12:30:45.100000"},
		{TimestampNTZ, micros(t, "1969-12-31 23:59:59.999999"), "1969-12-31 23:59:59.999999"},
	} {
		got, err := EncodePartitionValue(c.t, c.v)
		if err != nil || got == nil || *got != c.text {
			t.Errorf("%v %v: wrote %v, %v, want %q", c.t, c.v, got, err, c.text)
			continue
		}
		back, err := DecodePartitionValue(c.t, got)
		if err != nil || !reflect.DeepEqual(back, c.v) {
			t.Errorf("%v %q: read %v (%T), %v, want %v (%T)", c.t, *got, back, back, err, c.v, c.v)
		}
	}
}

// TestPartitionValuesAnyZone: the zone of the machine is no part of a value.
func TestPartitionValuesAnyZone(t *testing.T) {
	was := time.Local
	defer func() { time.Local = was }()
	for _, zone := range []*time.Location{time.FixedZone("west", -8*3600), time.FixedZone("east", 9*3600)} {
		time.Local = zone
		TestPartitionValues(t)
	}
}

func TestPartitionNulls(t *testing.T) {
	for _, v := range []any{nil, ""} {
		if got, err := EncodePartitionValue(String, v); got != nil || err != nil {
			t.Errorf("%#v: %v, %v, want null", v, got, err)
		}
	}
	empty := ""
	for _, p := range []*string{nil, &empty} {
		for _, typ := range []Type{String, Long, Timestamp, DecimalType{5, 2}} {
			if v, err := DecodePartitionValue(typ, p); v != nil || err != nil {
				t.Errorf("%v: %v, %v, want null", typ, v, err)
			}
		}
	}
	minusZero, err := EncodePartitionValue(Double, math.Copysign(0, -1))
	if err != nil || *minusZero != "0.0" {
		t.Errorf("-0.0: %v, %v", minusZero, err)
	}
	nan, err := EncodePartitionValue(Double, math.NaN())
	if err != nil || *nan != "NaN" {
		t.Errorf("NaN: %v, %v", nan, err)
	}
	if v, err := DecodePartitionValue(Float, nan); err != nil || !math.IsNaN(float64(v.(float32))) {
		t.Errorf("NaN: read %v, %v", v, err)
	}
}

// TestPartitionValuesOfOthers: forms that other writers wrote.
func TestPartitionValuesOfOthers(t *testing.T) {
	for _, c := range []struct {
		t    Type
		text string
		want any
	}{
		{Timestamp, "2024-06-15 19:30:45", micros(t, "2024-06-15 19:30:45")},
		{Timestamp, "2024-06-15 19:30:45.123", micros(t, "2024-06-15 19:30:45.123")},
		{Timestamp, "2024-06-15T19:30:45.123456789Z", micros(t, "2024-06-15 19:30:45.123456")},
		{Timestamp, "2024-06-15T19:30:45+02:00", micros(t, "2024-06-15 17:30:45")},
		{Timestamp, "2024-06-15", micros(t, "2024-06-15 00:00:00")},
		{TimestampNTZ, "2024-06-15T19:30:45.5", micros(t, "2024-06-15 19:30:45.5")},
		{Boolean, "TRUE", true},
		{DecimalType{10, 2}, "42", decimalOf(t, "4200", 2)},
		{DecimalType{10, 2}, "4.2E+1", decimalOf(t, "4200", 2)},
		{DecimalType{10, 2}, "42.000", decimalOf(t, "4200", 2)},
		{DecimalType{5, 5}, "0E-10", decimalOf(t, "0", 5)},
		{Double, "5", 5.0},
		{Binary, "\x01a", []byte("\x01a")},
	} {
		got, err := DecodePartitionValue(c.t, &c.text)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v %q: %v, %v, want %v", c.t, c.text, got, err, c.want)
		}
	}
	for _, c := range []struct {
		t    Type
		text string
	}{
		{Byte, "128"},
		{Short, "1.0"},
		{Integer, "x"},
		{Long, "9223372036854775808"},
		{Float, "1e99"},
		{Double, "0x1p3"},
		{Double, "inf"},
		{Boolean, "yes"},
		{Date, "2024-02-30"},
		{Date, "24-01-01"},
		{Date, "2024-01-01 00:00:00"},
		{Timestamp, "2024-06-15 25:00:00"},
		{TimestampNTZ, "2024-06-15 12:00:00Z"},
		{Timestamp, "2024-06-15T19:30"},
		{DecimalType{4, 2}, "100"},
		{DecimalType{4, 2}, "0.001"},
		{DecimalType{4, 2}, "1e999999999"},
		{DecimalType{4, 2}, "-"},
		{&Array{Element: Long}, "1"},
		{Date, "999999999-01-01"},
	} {
		if v, err := DecodePartitionValue(c.t, &c.text); err == nil {
			t.Errorf("%v %q was read as %v", c.t, c.text, v)
		}
	}
}

func TestPartitionValueRefusals(t *testing.T) {
	for _, c := range []struct {
		t Type
		v any
	}{
		{Binary, []byte("x")},
		{String, "\xff"},
		{Integer, int64(1)},
		{Date, arrow.Timestamp(1)},
		{DecimalType{4, 2}, Decimal{decimal128.FromI64(100000), 2}},
		{DecimalType{4, 2}, Decimal{decimal128.FromI64(1), 3}},
		{&Struct{}, "x"},
	} {
		if got, err := EncodePartitionValue(c.t, c.v); err == nil {
			t.Errorf("%v %v was written as %q", c.t, c.v, *got)
		}
	}
}

func TestPaths(t *testing.T) {
	value := func(s string) map[string]*string { return map[string]*string{"country": &s} }
	dir := PartitionDir([]string{"country"}, value("Serbia/srb%"))
	if want := "country=Serbia%2Fsrb%25"; dir != want {
		t.Errorf("directory %q, want %q", dir, want)
	}
	if got, want := EncodePath(dir+"/x"), "country=Serbia%252Fsrb%2525/x"; got != want {
		t.Errorf("path %q, want %q", got, want)
	}
	if got := PartitionDir([]string{"country", "b"}, value("")); got != "country=__HIVE_DEFAULT_PARTITION__/b=__HIVE_DEFAULT_PARTITION__" {
		t.Errorf("null: %q", got)
	}
	// Every ASCII letter, and some that aren't, as a value.
	for c := rune(1); c < 127; c++ {
		checkPath(t, "a"+string(c)+"b")
	}
	for _, v := range []string{"München", "😀", "..", ".", " ", "%", "%2F", "\u007f", strings.Repeat("ü%", 300)} {
		checkPath(t, v)
	}
}

func checkPath(t *testing.T, v string) {
	t.Helper()
	rel := PartitionDir([]string{"p"}, map[string]*string{"p": &v}) + "/part-0.parquet"
	if parts := strings.Split(rel, "/"); len(parts) != 2 || len(parts[0]) > 255 || filepath.Clean(rel) != rel {
		t.Errorf("%q: the directory is %q", v, rel)
	}
	enc := EncodePath(rel)
	if strings.Trim(enc, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.!~*'();/?:@&=+$,%") != "" || strings.ContainsAny(enc, "?#") {
		t.Errorf("%q: %q isn't a URI's path", v, enc)
	}
	if got := DecodePath(enc); got != rel {
		t.Errorf("%q: %q was read as %q", v, enc, got)
	}
	if uri, err := ResolvePath("s3://b/t", enc); err != nil || uri != "s3://b/t/"+rel {
		t.Errorf("%q: %q, %v", v, uri, err)
	}
}

func TestResolvePath(t *testing.T) {
	for _, c := range []struct{ root, path, want string }{
		{"file:///t", "a%20b/c", "file:///t/a b/c"},
		{"file:///t", "file:/x/y%25z", "file:///x/y%z"},
		{"file:///t", "file:///x/y", "file:///x/y"},
		{"file:///t", "/x/y", "file:///x/y"},
		{"/t", "/x/y", "/x/y"},
		{"s3://b/t", "/x/y", "s3://b/x/y"},
		{"s3://b/t", "s3://c/d//e", "s3://c/d//e"},
		{"s3://b/t", "a:b/c", "s3://b/t/a:b/c"},
		{"s3://b/t", "test%25file%25prefix-part-0", "s3://b/t/test%file%prefix-part-0"},
		{"s3://b/t", "50%/x", "s3://b/t/50%/x"},
	} {
		if got, err := ResolvePath(c.root, c.path); err != nil || got != c.want {
			t.Errorf("%s of %s: %q, %v, want %q", c.path, c.root, got, err, c.want)
		}
	}
	for _, p := range []string{"", "../x", "a/%2E%2E/x", "a%00b"} {
		if got, err := ResolvePath("s3://b/t", p); err == nil {
			t.Errorf("%q was taken for %q", p, got)
		}
	}
	for _, same := range [][2]string{{"a%20b", "a b"}, {"file:/x/y", "file:///x/y"}, {"/x/y", "file:/x/y"}} {
		if a, b := CanonicalPath(same[0]), CanonicalPath(same[1]); a != b {
			t.Errorf("%q and %q are %q and %q", same[0], same[1], a, b)
		}
	}
}

func FuzzPartitionValue(f *testing.F) {
	types := []Type{Boolean, Byte, Short, Integer, Long, Float, Double, String, Date, Timestamp, TimestampNTZ, DecimalType{10, 2}, DecimalType{38, 38}}
	for i, s := range []string{"true", "1", "2", "3", "4", "1.5", "NaN", "a/b", "2024-01-01", "2024-01-01T00:00:00Z", "2024-01-01 00:00:00.5", "1.23", "0E-10"} {
		f.Add(i, s)
	}
	f.Fuzz(func(t *testing.T, i int, text string) {
		typ := types[uint(i)%uint(len(types))]
		v, err := DecodePartitionValue(typ, &text)
		if err != nil || v == nil {
			return
		}
		out, err := EncodePartitionValue(typ, v)
		if err != nil {
			if typ == String {
				return // not UTF-8
			}
			t.Fatalf("%v %q is %v, which can't be written: %v", typ, text, v, err)
		}
		again, err := DecodePartitionValue(typ, out)
		if err != nil {
			t.Fatalf("%v %q was written as %q: %v", typ, text, *out, err)
		}
		if twice, err := EncodePartitionValue(typ, again); err != nil || *twice != *out {
			t.Fatalf("%v %q: %q, then %v, %v", typ, text, *out, twice, err)
		}
	})
}

func FuzzPath(f *testing.F) {
	f.Add("p=a%252Fb/part")
	f.Add("file:/x/%zz")
	f.Add("50%")
	f.Fuzz(func(t *testing.T, path string) {
		if got := DecodePath(EncodePath(path)); got != path {
			t.Fatalf("%q became %q", path, got)
		}
		CanonicalPath(path)
		if uri, err := ResolvePath("s3://b/t", path); err == nil && strings.HasPrefix(uri, "s3://b/t/") {
			for part := range strings.SplitSeq(DecodePath(path), "/") {
				if part == ".." && !hasScheme(DecodePath(path)) {
					t.Fatalf("%q leaves the table: %q", path, uri)
				}
			}
		}
	})
}
