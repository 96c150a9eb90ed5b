package iceberg

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/google/uuid"
	"pgregory.net/rapid"
)

var pt = iceberg.PrimitiveTypes

func micros(s string) iceberg.Timestamp {
	t, err := time.Parse("2006-01-02T15:04:05.999999", s)
	if err != nil {
		panic(err)
	}
	return iceberg.Timestamp(t.UnixMicro())
}

func date(s string) iceberg.Date {
	return iceberg.Date(floorDiv(int64(micros(s+"T00:00:00")), microsPerDay))
}

func dec(s string, p, scale int) iceberg.Decimal {
	n, err := decimal128.FromString(s, int32(p), int32(scale))
	if err != nil {
		panic(err)
	}
	return iceberg.Decimal{Val: n, Scale: scale}
}

// TestBucketHashes has the vectors of the spec's Appendix B.
func TestBucketHashes(t *testing.T) {
	clock := iceberg.Time((22*3600 + 31*60 + 8) * 1e6)
	cases := []struct {
		typ  iceberg.Type
		v    any
		want int32
	}{
		{pt.Int32, int32(34), 2017239379},
		{pt.Int64, int64(34), 2017239379},
		{iceberg.DecimalTypeOf(4, 2), dec("14.20", 4, 2), -500754589},
		{pt.Date, date("2017-11-16"), -653330422},
		{pt.Time, clock, -662762989},
		{pt.Timestamp, micros("2017-11-16T22:31:08"), -2047944441},
		{pt.Timestamp, micros("2017-11-16T22:31:08.000001"), -1207196810},
		{pt.TimestampTz, micros("2017-11-16T22:31:08"), -2047944441},
		{pt.String, "iceberg", 1210000089},
		{pt.UUID, uuid.MustParse("f79c3e09-677c-4bbd-a479-3f349cb785e7"), 1488055340},
		{iceberg.FixedTypeOf(4), []byte{0, 1, 2, 3}, -188683207},
		{pt.Binary, []byte{0, 1, 2, 3}, -188683207},
	}
	for _, c := range cases {
		// With 2^31-1 buckets the bucket is the hash without its sign, but for
		// one value.
		got, err := TransformValue(iceberg.BucketTransform{NumBuckets: math.MaxInt32}, c.typ, c.v)
		if err != nil || got != c.want&math.MaxInt32 {
			t.Errorf("%s %v: bucket %v (%v), want hash %d", c.typ, c.v, got, err, c.want)
		}
	}
}

func TestTransforms(t *testing.T) {
	trunc := func(n int) iceberg.Transform { return iceberg.TruncateTransform{Width: n} }
	year, month, day, hour := iceberg.YearTransform{}, iceberg.MonthTransform{}, iceberg.DayTransform{}, iceberg.HourTransform{}
	cases := []struct {
		transform iceberg.Transform
		typ       iceberg.Type
		v, want   any
	}{
		{year, pt.Date, date("1970-01-01"), int32(0)},
		{year, pt.Date, date("1969-12-31"), int32(-1)},
		{year, pt.Date, date("2000-02-29"), int32(30)},
		{month, pt.Date, date("2001-07-31"), int32(31*12 + 6)},
		{month, pt.Date, date("1969-12-31"), int32(-1)},
		{month, pt.Date, date("1968-12-31"), int32(-13)},
		{day, pt.Date, date("1969-12-31"), iceberg.Date(-1)},
		{year, pt.Timestamp, micros("1969-12-31T23:59:59.999999"), int32(-1)},
		{month, pt.Timestamp, micros("1969-12-31T23:59:59.999999"), int32(-1)},
		{day, pt.Timestamp, micros("1969-12-31T23:59:59.999999"), iceberg.Date(-1)},
		{hour, pt.Timestamp, micros("1969-12-31T23:59:59.999999"), int32(-1)},
		{hour, pt.Timestamp, micros("1970-01-01T00:59:59.999999"), int32(0)},
		{hour, pt.TimestampTz, micros("2017-11-16T22:31:08"), int32(419686)},
		{day, pt.TimestampTz, micros("1969-12-30T00:00:00"), iceberg.Date(-2)},
		{year, pt.Timestamp, micros("0001-01-01T00:00:00"), int32(-1969)},
		{trunc(10), pt.Int32, int32(1), int32(0)},
		{trunc(10), pt.Int32, int32(-1), int32(-10)},
		{trunc(10), pt.Int64, int64(-10), int64(-10)},
		{trunc(10), pt.Int64, int64(math.MaxInt64), int64(math.MaxInt64 - 7)},
		{trunc(math.MaxInt32), pt.Int32, int32(math.MaxInt32 - 1), int32(0)},
		{trunc(50), iceberg.DecimalTypeOf(4, 2), dec("10.65", 4, 2), dec("10.50", 4, 2)},
		{trunc(50), iceberg.DecimalTypeOf(4, 2), dec("-0.05", 4, 2), dec("-0.50", 4, 2)},
		{trunc(3), pt.String, "iceberg", "ice"},
		{trunc(2), pt.String, "日本語", "日本"},
		{trunc(2), pt.String, "😀😀😀", "😀😀"},
		{trunc(9), pt.String, "short", "short"},
		{trunc(3), pt.String, "", ""},
		{trunc(2), pt.Binary, []byte{0xff, 0, 1}, []byte{0xff, 0}},
		{iceberg.IdentityTransform{}, pt.String, "null", "null"},
		{iceberg.VoidTransform{}, pt.String, "x", nil},
		{iceberg.BucketTransform{NumBuckets: 16}, pt.String, nil, nil},
	}
	for _, c := range cases {
		got, err := TransformValue(c.transform, c.typ, c.v)
		if err != nil || fmt.Sprintf("%T %v", got, got) != fmt.Sprintf("%T %v", c.want, c.want) {
			t.Errorf("%s of %v: %T %v (%v), want %T %v", c.transform, c.v, got, got, err, c.want, c.want)
		}
	}
}

// TestTruncateBelowItsType: the multiple below isn't a number of the type.
func TestTruncateBelowItsType(t *testing.T) {
	for _, c := range []struct {
		typ   iceberg.Type
		v     any
		width int
	}{
		{pt.Int32, int32(math.MinInt32), 10000},
		{pt.Int64, int64(math.MinInt64), 10},
		{iceberg.DecimalTypeOf(4, 2), dec("-99.99", 4, 2), 50},
	} {
		if got, err := TransformValue(iceberg.TruncateTransform{Width: c.width}, c.typ, c.v); err == nil {
			t.Errorf("truncate[%d] of %v gives %v, which isn't below it", c.width, c.v, got)
		}
	}
	got, err := TransformValue(iceberg.TruncateTransform{Width: 2}, pt.Int32, int32(math.MinInt32))
	if err != nil || got != int32(math.MinInt32) {
		t.Errorf("the smallest number is a multiple of 2: %v %v", got, err)
	}
}

// TestValuesOfNullRowsAreNotLookedAt: a null row's value is anything.
func TestValuesOfNullRowsAreNotLookedAt(t *testing.T) {
	b := array.NewInt32Builder(mem)
	defer b.Release()
	b.AppendValues([]int32{math.MinInt32, 7}, nil)
	whole := b.NewArray()
	bits := memory.NewBufferBytes([]byte{0b10})
	data := array.NewData(whole.DataType(), 2, []*memory.Buffer{bits, whole.Data().Buffers()[1]}, nil, 1, 0)
	a := array.NewInt32Data(data)
	k, err := truncateColumn(a, pt.Int32, a, 10000)
	if err != nil || !k.null(0) || k.ints[1] != 0 {
		t.Errorf("%v", err)
	}
}

func TestTimesBeyondTheirPartitions(t *testing.T) {
	if v, err := TransformValue(iceberg.HourTransform{}, pt.Timestamp, iceberg.Timestamp(math.MaxInt64)); err == nil {
		t.Errorf("the hour %v isn't an int", v)
	}
	if v, err := TransformValue(iceberg.DayTransform{}, pt.Timestamp, iceberg.Timestamp(math.MaxInt64)); err != nil {
		t.Errorf("the day %v is one: %v", v, err)
	}
}

func TestTransformsOfOtherTypes(t *testing.T) {
	for _, c := range []struct {
		transform iceberg.Transform
		typ       iceberg.Type
	}{
		{iceberg.MonthTransform{}, pt.Int32},
		{iceberg.HourTransform{}, pt.Date},
		{iceberg.BucketTransform{NumBuckets: 4}, pt.Float64},
		{iceberg.BucketTransform{NumBuckets: 4}, pt.Bool},
		{iceberg.BucketTransform{}, pt.Int32},
		{iceberg.TruncateTransform{}, pt.Int32},
		{iceberg.TruncateTransform{Width: 4}, pt.Date},
		{iceberg.IdentityTransform{}, &iceberg.ListType{ElementID: 1, Element: pt.Int32}},
	} {
		if _, err := newTransformer(c.transform, c.typ); err == nil {
			t.Errorf("%s takes a %s", c.transform, c.typ)
		}
	}
}

// TestTransformsAgreeWithTheLibrary compares with iceberg-go over random values.
func TestTransformsAgreeWithTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		us := rapid.Int64Range(-62135596800e6, 253402300799e6).Draw(t, "µs")
		n := rapid.Int64().Draw(t, "n")
		s := rapid.String().Draw(t, "s")
		width := rapid.IntRange(1, 1<<29).Draw(t, "width")
		for _, c := range []struct {
			transform iceberg.Transform
			typ       iceberg.Type
			v         iceberg.Literal
		}{
			{iceberg.YearTransform{}, pt.Timestamp, iceberg.TimestampLiteral(us)},
			{iceberg.MonthTransform{}, pt.Timestamp, iceberg.TimestampLiteral(us)},
			{iceberg.DayTransform{}, pt.Timestamp, iceberg.TimestampLiteral(us)},
			{iceberg.HourTransform{}, pt.Timestamp, iceberg.TimestampLiteral(us)},
			{iceberg.MonthTransform{}, pt.Date, iceberg.DateLiteral(us / microsPerDay)},
			{iceberg.BucketTransform{NumBuckets: width}, pt.Int64, iceberg.Int64Literal(n)},
			{iceberg.BucketTransform{NumBuckets: width}, pt.String, iceberg.StringLiteral(s)},
			{iceberg.TruncateTransform{Width: width}, pt.String, iceberg.StringLiteral(s)},
			{iceberg.TruncateTransform{Width: width}, pt.Int64, iceberg.Int64Literal(n / 2)},
		} {
			want := c.transform.Apply(iceberg.Optional[iceberg.Literal]{Val: c.v, Valid: true})
			got, err := TransformValue(c.transform, c.typ, c.v.Any())
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want.Val.Any()) {
				t.Fatalf("%s of %v: %v (%v), the library says %v", c.transform, c.v, got, err, want.Val)
			}
		}
	})
}

// TestTruncateNumbers: the result is the largest multiple that isn't above.
func TestTruncateNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Int32().Draw(t, "v")
		width := rapid.Int32Range(1, math.MaxInt32).Draw(t, "width")
		got, err := TransformValue(iceberg.TruncateTransform{Width: int(width)}, pt.Int32, v)
		below := int64(v) - ((int64(v)%int64(width))+int64(width))%int64(width)
		if below < math.MinInt32 {
			if err == nil {
				t.Fatalf("got %v for %d, which doesn't fit", got, below)
			}
			return
		}
		if err != nil || int64(got.(int32)) != below {
			t.Fatalf("got %v (%v), want %d", got, err, below)
		}
	})
}

func record(t *testing.T, schema *iceberg.Schema, rows string) arrow.RecordBatch {
	t.Helper()
	as, err := ArrowSchema(schema)
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := array.RecordFromJSON(mem, as, strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
