package delta

import (
	"bytes"
	"cmp"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// Compare orders two values of one type as Delta orders bounds: numbers by value
// with NaN after all others, text and binary by their bytes. ok is false when the
// values are of different types or of one without an order.
func Compare(a, b any) (c int, ok bool) {
	switch a := a.(type) {
	case bool:
		b, ok := b.(bool)
		return cmp.Compare(zeroOne(a), zeroOne(b)), ok
	case int8:
		return compareAs(a, b, cmp.Compare[int8])
	case int16:
		return compareAs(a, b, cmp.Compare[int16])
	case int32:
		return compareAs(a, b, cmp.Compare[int32])
	case int64:
		return compareAs(a, b, cmp.Compare[int64])
	case float32:
		return compareAs(a, b, func(x, y float32) int { return compareFloats(float64(x), float64(y)) })
	case float64:
		return compareAs(a, b, compareFloats)
	case string:
		return compareAs(a, b, strings.Compare)
	case []byte:
		return compareAs(a, b, bytes.Compare)
	case arrow.Date32:
		return compareAs(a, b, cmp.Compare[arrow.Date32])
	case arrow.Timestamp:
		return compareAs(a, b, cmp.Compare[arrow.Timestamp])
	case Decimal:
		d, ok := b.(Decimal)
		return a.Num.Cmp(d.Num), ok && a.Scale == d.Scale
	}
	return 0, false
}

func compareAs[T any](a T, b any, f func(x, y T) int) (int, bool) {
	v, ok := b.(T)
	if !ok {
		return 0, false
	}
	return f(a, v), true
}

func compareFloats(x, y float64) int {
	if math.IsNaN(x) || math.IsNaN(y) {
		return cmp.Compare(zeroOne(math.IsNaN(x)), zeroOne(math.IsNaN(y)))
	}
	return cmp.Compare(x, y)
}

func zeroOne(b bool) int {
	if b {
		return 1
	}
	return 0
}
