package footer

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// Bound is a bound of a column's values.
type Bound struct {
	// Value is a bool, an int64, a uint64 (of unsigned integers), a float32, a
	// float64, a decimal128.Num or bytes, by the column's type.
	Value any
	// Exact: the value occurs. A bound that isn't exact was cut to a length.
	Exact bool
}

// decode reads a value as statistics have it; nil when it is none of the type, is
// NaN, or when the type has no order that could be relied on.
func decode(t Type, b []byte) any {
	if t.Logical == Other {
		return nil
	}
	if t.Logical == Decimal {
		d, ok := decodeDecimal(t, b)
		if !ok {
			return nil
		}
		return d
	}
	switch t.Physical {
	case Boolean:
		if len(b) == 1 && b[0] <= 1 {
			return b[0] == 1
		}
	case Int32:
		if len(b) == 4 {
			if n := binary.LittleEndian.Uint32(b); t.Unsigned {
				return uint64(n)
			} else {
				return int64(int32(n))
			}
		}
	case Int64:
		if len(b) == 8 {
			if n := binary.LittleEndian.Uint64(b); t.Unsigned {
				return n
			} else {
				return int64(n)
			}
		}
	case Float:
		if len(b) == 4 {
			if f := math.Float32frombits(binary.LittleEndian.Uint32(b)); f == f {
				return f
			}
		}
	case Double:
		if len(b) == 8 {
			if f := math.Float64frombits(binary.LittleEndian.Uint64(b)); f == f {
				return f
			}
		}
	case ByteArray:
		return b
	case FixedLenByteArray:
		if len(b) == t.Length {
			return b
		}
	}
	return nil
}

func decodeDecimal(t Type, b []byte) (decimal128.Num, bool) {
	var d decimal128.Num
	switch {
	case t.Physical == Int32 && len(b) == 4:
		d = decimal128.FromI64(int64(int32(binary.LittleEndian.Uint32(b))))
	case t.Physical == Int64 && len(b) == 8:
		d = decimal128.FromI64(int64(binary.LittleEndian.Uint64(b)))
	case (t.Physical == ByteArray || t.Physical == FixedLenByteArray && len(b) == t.Length) && len(b) > 0 && len(b) <= 16:
		var full [16]byte
		if b[0]&0x80 != 0 {
			for i := range full {
				full[i] = 0xff
			}
		}
		copy(full[16-len(b):], b)
		d = decimal128.New(int64(binary.BigEndian.Uint64(full[:8])), binary.BigEndian.Uint64(full[8:]))
	default:
		return d, false
	}
	// The smallest number has no absolute value, which FitsInPrecision takes.
	return d, t.Precision <= 38 && d != decimal128.New(math.MinInt64, 0) && d.FitsInPrecision(int32(t.Precision))
}

// Compare orders two values of one column. The two zeros of a float are equal.
func Compare(a, b any) int {
	switch a := a.(type) {
	case bool:
		return cmp.Compare(truth(a), truth(b.(bool)))
	case int64:
		return cmp.Compare(a, b.(int64))
	case uint64:
		return cmp.Compare(a, b.(uint64))
	case float32:
		return cmp.Compare(a, b.(float32))
	case float64:
		return cmp.Compare(a, b.(float64))
	case decimal128.Num:
		return a.Cmp(b.(decimal128.Num))
	case []byte:
		return bytes.Compare(a, b.([]byte))
	}
	return 0
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Letters is the text of a lower bound, without the letter that was cut through if
// it was cut: what comes before it is a lower bound as well.
func (b *Bound) Letters() []byte {
	raw, _ := b.Value.([]byte)
	if b.Exact || utf8.Valid(raw) {
		return raw
	}
	for n := len(raw) - 1; n >= max(0, len(raw)-utf8.UTFMax+1); n-- {
		if utf8.Valid(raw[:n]) {
			return raw[:n]
		}
	}
	return raw
}
