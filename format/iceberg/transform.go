package iceberg

import (
	"fmt"
	"math"
	"math/big"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/iceberg-go"
	"github.com/google/uuid"
)

// transformer computes one transform over an array of its source type, row by
// row, into the key column of its result type. nulls tells which rows are null:
// what the array holds there is anything and must not be looked at.
type transformer func(a arrow.Array, nulls nullness) (*keyColumn, error)

// resultType is the type of a transform's values. A day is stored as a date,
// as Java and iceberg-go do.
func resultType(t iceberg.Transform, source iceberg.Type) iceberg.Type { return t.ResultType(source) }

// newTransformer checks that a transform takes a source type and binds it.
func newTransformer(t iceberg.Transform, source iceberg.Type) (transformer, error) {
	if _, ok := source.(iceberg.PrimitiveType); !ok || !t.CanTransform(source) {
		return nil, fmt.Errorf("the transform %s doesn't take a %s", t, source)
	}
	if _, err := arrowType(source, ""); err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case iceberg.IdentityTransform:
		return func(a arrow.Array, nulls nullness) (*keyColumn, error) { return readColumn(a, source, nulls) }, nil
	case iceberg.BucketTransform:
		if t.NumBuckets < 1 || t.NumBuckets > math.MaxInt32 {
			return nil, fmt.Errorf("bucket[%d]: the number of buckets must be at least 1", t.NumBuckets)
		}
		return func(a arrow.Array, nulls nullness) (*keyColumn, error) {
			return bucket(a, source, nulls, int32(t.NumBuckets))
		}, nil
	case iceberg.TruncateTransform:
		if t.Width < 1 || t.Width > math.MaxInt32 {
			return nil, fmt.Errorf("truncate[%d]: the width must be at least 1", t.Width)
		}
		return func(a arrow.Array, nulls nullness) (*keyColumn, error) {
			return truncateColumn(a, source, nulls, t.Width)
		}, nil
	case iceberg.YearTransform:
		return dateTransformer(source, func(day int64) int64 { y, _ := civil(day); return y - 1970 }), nil
	case iceberg.MonthTransform:
		return dateTransformer(source, func(day int64) int64 { y, m := civil(day); return (y-1970)*12 + m - 1 }), nil
	case iceberg.DayTransform:
		return dateTransformer(source, func(day int64) int64 { return day }), nil
	case iceberg.HourTransform:
		return intTransformer(func(us int64) int64 { return floorDiv(us, microsPerHour) }, source), nil
	}
	return nil, fmt.Errorf("the transform %s isn't known", t)
}

const (
	microsPerHour = 3600 * 1e6
	microsPerDay  = 24 * microsPerHour
)

// floorDiv rounds towards minus infinity: an instant before 1970 belongs to the
// unit that it lies in, not to the one after it.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// floorMod is the remainder that goes with floorDiv; it has the sign of b and
// never overflows.
func floorMod(a, b int64) int64 {
	m := a % b
	if m != 0 && (m < 0) != (b < 0) {
		m += b
	}
	return m
}

// civil gives the year and the month (1 to 12) of a day since 1970-01-01 in the
// proleptic Gregorian calendar. It counts in eras of 400 years that start in
// March, so that the leap day is the last of its year.
func civil(day int64) (year, month int64) {
	z := day + 719468
	era := floorDiv(z, 146097)
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	month = mp + 3
	if mp >= 10 {
		month = mp - 9
	}
	year = yoe + era*400
	if month <= 2 {
		year++
	}
	return year, month
}

// dateTransformer transforms days. Rows that follow one another are often of one
// day, for which the calendar is asked once.
func dateTransformer(source iceberg.Type, f func(day int64) int64) transformer {
	if _, date := source.(iceberg.DateType); date {
		return intTransformer(f, source)
	}
	return func(a arrow.Array, nulls nullness) (*keyColumn, error) {
		from, value, known := int64(0), int64(0), false
		return intTransformer(func(us int64) int64 {
			if known && us >= from && uint64(us-from) < microsPerDay {
				return value
			}
			day := floorDiv(us, microsPerDay)
			from, value = day*microsPerDay, f(day)
			known = from <= us // the first day of all begins before the first microsecond
			return value
		}, source)(a, nulls)
	}
}

func intTransformer(f func(int64) int64, source iceberg.Type) transformer {
	return func(a arrow.Array, nulls nullness) (*keyColumn, error) {
		k, err := readColumn(a, source, nulls)
		if err != nil {
			return nil, err
		}
		for i, v := range k.ints {
			if k.null(i) {
				continue
			}
			if k.ints[i] = f(v); k.ints[i] != int64(int32(k.ints[i])) {
				return nil, fmt.Errorf("%s is too far from 1970 for its partition's number", a.ValueStr(i))
			}
		}
		k.width = 4
		return k, nil
	}
}

// bucket is the spec's hash modulo n (Appendix B). Null stays null.
func bucket(a arrow.Array, source iceberg.Type, nulls nullness, n int32) (*keyColumn, error) {
	k, err := readColumn(a, source, nulls)
	if err != nil {
		return nil, err
	}
	out := &keyColumn{length: k.length, nulls: k.nulls, ints: make([]int64, k.length), width: 4}
	_, decimal := source.(iceberg.DecimalType)
	for i := range k.length {
		if k.null(i) {
			continue
		}
		var h uint32
		switch {
		case k.bytes == nil:
			h = murmur3(le64(uint64(k.ints[i])))
		case decimal:
			h = murmur3(decimalBytes(a.(*array.Decimal128).Value(i)))
		default:
			h = murmur3(k.bytes(i))
		}
		out.ints[i] = int64(int32(h&math.MaxInt32) % n)
	}
	return out, nil
}

// truncateColumn rounds numbers down to a multiple of the width and cuts
// strings after width code points and binaries after width bytes.
//
// A number whose multiple lies outside its type is an error. Java wraps around
// there and puts the smallest numbers into the partition of the largest, where
// filters don't find them; any other value would be missed by Java's filters.
func truncateColumn(a arrow.Array, source iceberg.Type, nulls nullness, width int) (*keyColumn, error) {
	k, err := readColumn(a, source, nulls)
	if err != nil {
		return nil, err
	}
	switch t := source.(type) {
	case iceberg.Int32Type, iceberg.Int64Type:
		least := int64(math.MinInt64)
		if k.width == 4 {
			least = math.MinInt32
		}
		for i, v := range k.ints {
			m := floorMod(v, int64(width))
			if v < least+m && !k.null(i) {
				return nil, fmt.Errorf("truncate[%d] of %d is smaller than any %s", width, v, source)
			}
			k.ints[i] = v - m
		}
	case iceberg.DecimalType:
		return truncateDecimals(a.(*array.Decimal128), t, nulls, width)
	case iceberg.StringType:
		get := k.bytes
		k.bytes = func(i int) []byte { return cutCodePoints(get(i), width) }
	default:
		get := k.bytes
		k.bytes = func(i int) []byte { b := get(i); return b[:min(len(b), width)] }
	}
	return k, nil
}

func truncateDecimals(a *array.Decimal128, t iceberg.DecimalType, nulls nullness, width int) (*keyColumn, error) {
	out := make([]decimal128.Num, a.Len())
	w, mod := big.NewInt(int64(width)), new(big.Int)
	for i := range out {
		if nulls.IsNull(i) {
			continue
		}
		v := a.Value(i).BigInt()
		mod.Mod(v, w) // Euclidean: never negative
		d := decimal128.FromBigInt(v.Sub(v, mod))
		if !d.FitsInPrecision(int32(t.Precision())) {
			return nil, fmt.Errorf("truncate[%d] of %s has more digits than %s holds", width, a.Value(i).ToString(int32(t.Scale())), t)
		}
		out[i] = d
	}
	return &keyColumn{length: a.Len(), nulls: nulls, bytes: func(i int) []byte { return decimalBytes(out[i]) }}, nil
}

// cutCodePoints gives the first n code points of a UTF-8 text.
func cutCodePoints(b []byte, n int) []byte {
	at := 0
	for ; n > 0 && at < len(b); n-- {
		_, size := utf8.DecodeRune(b[at:])
		at += size
	}
	return b[:at]
}

// murmur3 is the 32-bit x86 variant of MurmurHash3 with seed 0.
func murmur3(b []byte) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	mix := func(k uint32) uint32 { k *= c1; return (k<<15 | k>>17) * c2 }
	n := uint32(len(b))
	var h uint32
	for ; len(b) >= 4; b = b[4:] {
		h ^= mix(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
		h = (h<<13|h>>19)*5 + 0xe6546b64
	}
	var k uint32
	for i, c := range b { // fewer than four
		k |= uint32(c) << (8 * i)
	}
	h ^= mix(k)
	h ^= n
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// TransformValue applies a transform to one value of the source type. A nil
// value, and every value under the void transform, gives nil.
func TransformValue(t iceberg.Transform, source iceberg.Type, v any) (any, error) {
	if _, void := t.(iceberg.VoidTransform); void || v == nil {
		return nil, nil
	}
	f, err := newTransformer(t, source)
	if err != nil {
		return nil, err
	}
	a, err := arrayOf(source, v)
	if err != nil {
		return nil, err
	}
	defer a.Release()
	k, err := f(a, a)
	if err != nil {
		return nil, err
	}
	return DecodeValue(resultType(t, source), k.encode(0))
}

// arrayOf makes an Arrow array of one value.
func arrayOf(t iceberg.Type, v any) (arrow.Array, error) {
	if _, err := EncodeValue(t, v); err != nil {
		return nil, err
	}
	dt, err := arrowType(t, "")
	if err != nil {
		return nil, err
	}
	b := array.NewBuilder(mem, dt)
	defer b.Release()
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(v.(bool))
	case *array.Int32Builder:
		b.Append(v.(int32))
	case *array.Int64Builder:
		b.Append(v.(int64))
	case *array.Float32Builder:
		b.Append(v.(float32))
	case *array.Float64Builder:
		b.Append(v.(float64))
	case *array.Date32Builder:
		b.Append(arrow.Date32(v.(iceberg.Date)))
	case *array.Time64Builder:
		b.Append(arrow.Time64(v.(iceberg.Time)))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(v.(iceberg.Timestamp)))
	case *array.StringBuilder:
		b.Append(v.(string))
	case *array.Decimal128Builder:
		b.Append(v.(iceberg.Decimal).Val)
	case *array.FixedSizeBinaryBuilder:
		b.Append(v.([]byte))
	case *array.BinaryBuilder:
		b.Append(v.([]byte))
	default:
		eb, ok := b.(interface{ Append(uuid.UUID) })
		if !ok {
			return nil, fmt.Errorf("no array of %s", t)
		}
		eb.Append(v.(uuid.UUID))
	}
	return b.NewArray(), nil
}
