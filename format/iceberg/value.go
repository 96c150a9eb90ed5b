package iceberg

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/iceberg-go"
	"github.com/google/uuid"
)

// EncodeValue serialises one value of a primitive type (Iceberg spec, Appendix
// D, binary single-value serialisation). The result is never nil: the empty
// string is a present, empty slice, because a nil bound would read as "no
// bound" and prune rows away. v has the Go type that the package comment lists
// for t.
func EncodeValue(t iceberg.Type, v any) ([]byte, error) {
	switch v := v.(type) {
	case bool:
		if v {
			return []byte{1}, matches[iceberg.BooleanType](t, v)
		}
		return []byte{0}, matches[iceberg.BooleanType](t, v)
	case int32:
		return le32(uint32(v)), matches[iceberg.Int32Type](t, v)
	case int64:
		return le64(uint64(v)), matches[iceberg.Int64Type](t, v)
	case float32:
		return le32(math.Float32bits(v)), matches[iceberg.Float32Type](t, v)
	case float64:
		return le64(math.Float64bits(v)), matches[iceberg.Float64Type](t, v)
	case iceberg.Date:
		return le32(uint32(v)), matches[iceberg.DateType](t, v)
	case iceberg.Time:
		return le64(uint64(v)), matches[iceberg.TimeType](t, v)
	case iceberg.Timestamp:
		if _, ok := t.(iceberg.TimestampTzType); ok {
			return le64(uint64(v)), nil
		}
		return le64(uint64(v)), matches[iceberg.TimestampType](t, v)
	case string:
		return append([]byte{}, v...), matches[iceberg.StringType](t, v)
	case uuid.UUID:
		return append([]byte{}, v[:]...), matches[iceberg.UUIDType](t, v)
	case iceberg.Decimal:
		return decimalBytes(v.Val), matches[iceberg.DecimalType](t, v)
	case []byte:
		if f, ok := t.(iceberg.FixedType); ok {
			if len(v) != f.Len() {
				return nil, fmt.Errorf("a value of %s has %d bytes", t, len(v))
			}
			return append([]byte{}, v...), nil
		}
		return append([]byte{}, v...), matches[iceberg.BinaryType](t, v)
	}
	return nil, fmt.Errorf("%T isn't a value of %s", v, t)
}

func matches[T iceberg.Type](t iceberg.Type, v any) error {
	if _, ok := t.(T); !ok {
		return fmt.Errorf("%T isn't a value of %s", v, t)
	}
	return nil
}

// DecodeValue reads what EncodeValue wrote. A long, double or decimal also
// reads the shorter form that was written before its column was promoted from
// int, float or a smaller precision. Input of the wrong length, and a string
// that isn't UTF-8, is an error.
func DecodeValue(t iceberg.Type, b []byte) (any, error) {
	bad := func() (any, error) { return nil, fmt.Errorf("%d bytes aren't a value of %s", len(b), t) }
	switch t := t.(type) {
	case iceberg.BooleanType:
		if len(b) != 1 {
			return bad()
		}
		return b[0] != 0, nil
	case iceberg.Int32Type, iceberg.DateType:
		if len(b) != 4 {
			return bad()
		}
		n := int32(binary.LittleEndian.Uint32(b))
		if _, date := t.(iceberg.DateType); date {
			return iceberg.Date(n), nil
		}
		return n, nil
	case iceberg.Int64Type, iceberg.TimeType, iceberg.TimestampType, iceberg.TimestampTzType:
		return decodeLong(t, b)
	case iceberg.Float32Type:
		if len(b) != 4 {
			return bad()
		}
		return math.Float32frombits(binary.LittleEndian.Uint32(b)), nil
	case iceberg.Float64Type:
		switch len(b) {
		case 4:
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), nil
		case 8:
			return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
		}
		return bad()
	case iceberg.DecimalType:
		d, ok := decimalFromBytes(b)
		if !ok || !d.FitsInPrecision(int32(t.Precision())) {
			return bad()
		}
		return iceberg.Decimal{Val: d, Scale: t.Scale()}, nil
	case iceberg.StringType:
		if !utf8.Valid(b) {
			return nil, fmt.Errorf("a string bound of %d bytes isn't UTF-8", len(b))
		}
		return string(b), nil
	case iceberg.UUIDType:
		if len(b) != 16 {
			return bad()
		}
		return uuid.UUID(b), nil
	case iceberg.FixedType:
		if len(b) != t.Len() {
			return bad()
		}
		return append([]byte{}, b...), nil
	case iceberg.BinaryType:
		return append([]byte{}, b...), nil
	}
	return nil, fmt.Errorf("%v has no single-value serialisation", t)
}

func decodeLong(t iceberg.Type, b []byte) (any, error) {
	var n int64
	_, long := t.(iceberg.Int64Type)
	switch {
	case len(b) == 8:
		n = int64(binary.LittleEndian.Uint64(b))
	case len(b) == 4 && long:
		n = int64(int32(binary.LittleEndian.Uint32(b)))
	default:
		return nil, fmt.Errorf("%d bytes aren't a value of %s", len(b), t)
	}
	switch t.(type) {
	case iceberg.TimeType:
		return iceberg.Time(n), nil
	case iceberg.TimestampType, iceberg.TimestampTzType:
		return iceberg.Timestamp(n), nil
	}
	return n, nil
}

// CompareValues orders two values of one primitive type as Iceberg orders
// bounds: numbers by value, with -0.0 before 0.0 and NaN after everything,
// strings by their UTF-8 bytes, uuids, fixed and binary as unsigned bytes. It
// is an error when the values are of different types or have no order.
func CompareValues(a, b any) (int, error) {
	switch a := a.(type) {
	case bool:
		return compareAs(a, b, func(x, y bool) int { return cmp.Compare(boolInt(x), boolInt(y)) })
	case int32:
		return compareAs(a, b, cmp.Compare[int32])
	case int64:
		return compareAs(a, b, cmp.Compare[int64])
	case float32:
		return compareAs(a, b, func(x, y float32) int { return compareFloat(float64(x), float64(y)) })
	case float64:
		return compareAs(a, b, compareFloat)
	case iceberg.Date:
		return compareAs(a, b, cmp.Compare[iceberg.Date])
	case iceberg.Time:
		return compareAs(a, b, cmp.Compare[iceberg.Time])
	case iceberg.Timestamp:
		return compareAs(a, b, cmp.Compare[iceberg.Timestamp])
	case string:
		return compareAs(a, b, strings.Compare)
	case uuid.UUID:
		return compareAs(a, b, func(x, y uuid.UUID) int { return bytes.Compare(x[:], y[:]) })
	case []byte:
		return compareAs(a, b, bytes.Compare)
	case iceberg.Decimal:
		return compareAs(a, b, func(x, y iceberg.Decimal) int { return x.Val.Cmp(y.Val) })
	}
	return 0, fmt.Errorf("%T has no order", a)
}

func compareAs[T any](a T, b any, f func(x, y T) int) (int, error) {
	v, ok := b.(T)
	if !ok {
		return 0, fmt.Errorf("can't compare %T with %T", a, b)
	}
	return f(a, v), nil
}

func compareFloat(x, y float64) int {
	xn, yn := math.IsNaN(x), math.IsNaN(y)
	switch {
	case xn || yn:
		return cmp.Compare(boolInt(xn), boolInt(yn))
	case x == 0 && y == 0:
		return cmp.Compare(boolInt(math.Signbit(y)), boolInt(math.Signbit(x)))
	}
	return cmp.Compare(x, y)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func le32(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, n) }
func le64(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

// decimalBytes is the unscaled value in two's complement, big-endian, in as few
// bytes as hold it.
func decimalBytes(d decimal128.Num) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(d.HighBits()))
	b = binary.BigEndian.AppendUint64(b, d.LowBits())
	sign := byte(0)
	if d.Sign() < 0 {
		sign = 0xff
	}
	for len(b) > 1 && b[0] == sign && (b[1]^sign)&0x80 == 0 {
		b = b[1:]
	}
	return b
}

func decimalFromBytes(b []byte) (decimal128.Num, bool) {
	if len(b) == 0 || len(b) > 16 {
		return decimal128.Num{}, false
	}
	var full [16]byte
	if b[0]&0x80 != 0 {
		for i := range full {
			full[i] = 0xff
		}
	}
	copy(full[16-len(b):], b)
	d := decimal128.New(int64(binary.BigEndian.Uint64(full[:8])), binary.BigEndian.Uint64(full[8:]))
	// The smallest number has no absolute value, which FitsInPrecision takes.
	return d, d != decimal128.New(math.MinInt64, 0)
}
