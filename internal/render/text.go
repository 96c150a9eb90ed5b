package render

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
)

// plain is a value as text, without quotes; the value isn't null. Nested values
// are JSON.
func plain(a arrow.Array, i int) string {
	switch a := a.(type) {
	case *array.String:
		return a.Value(i)
	case *array.LargeString:
		return a.Value(i)
	case *array.StringView:
		return a.Value(i)
	case *array.Binary:
		return base64Text(a.Value(i))
	case *array.LargeBinary:
		return base64Text(a.Value(i))
	case *array.BinaryView:
		return base64Text(a.Value(i))
	case *array.FixedSizeBinary:
		return base64Text(a.Value(i))
	case *array.Decimal128:
		return a.Value(i).ToString(a.DataType().(*arrow.Decimal128Type).Scale)
	case *array.Decimal256:
		return a.Value(i).ToString(a.DataType().(*arrow.Decimal256Type).Scale)
	case *array.Date32:
		return dateText(int64(a.Value(i)))
	case *array.Date64:
		return dateText(int64(a.Value(i)) / (24 * 3600 * 1000))
	case *array.Time32:
		return timeText(int64(a.Value(i)), a.DataType().(*arrow.Time32Type).Unit)
	case *array.Time64:
		return timeText(int64(a.Value(i)), a.DataType().(*arrow.Time64Type).Unit)
	case *array.Timestamp:
		return timestampText(int64(a.Value(i)), a.DataType().(*arrow.TimestampType))
	case *extensions.UUIDArray:
		return a.Value(i).String()
	case *array.Dictionary:
		return plain(a.Dictionary(), a.GetValueIndex(i))
	case *array.MonthDayNanoInterval:
		return intervalText(a.Value(i))
	case *array.Struct, *array.Map, array.ListLike:
		return string(appendValue(nil, a, i))
	case array.ExtensionArray:
		return plain(a.Storage(), i)
	case *array.Boolean, *array.Int8, *array.Int16, *array.Int32, *array.Int64,
		*array.Uint8, *array.Uint16, *array.Uint32, *array.Uint64, *array.Float32, *array.Float64:
		return strings.Trim(string(appendValue(nil, a, i)), `"`)
	default:
		return a.ValueStr(i)
	}
}

// dateText writes days since 1970. DuckDB's infinities are the largest days.
func dateText(days int64) string {
	switch days {
	case math.MaxInt32:
		return "infinity"
	case -math.MaxInt32:
		return "-infinity"
	}
	return yearText(time.Unix(days*24*3600, 0).UTC(), "-01-02")
}

func timestampText(v int64, t *arrow.TimestampType) string {
	switch v {
	case math.MaxInt64:
		return "infinity"
	case -math.MaxInt64:
		return "-infinity"
	}
	per := int64(time.Second / t.Unit.Multiplier())
	sec, frac := v/per, v%per
	if frac < 0 {
		sec, frac = sec-1, frac+per
	}
	layout := "-01-02T15:04:05.999999999"
	if t.TimeZone != "" {
		layout += "Z07:00"
	}
	return yearText(time.Unix(sec, frac*int64(t.Unit.Multiplier())).UTC(), layout)
}

// yearText formats a time whose year may have any number of digits.
func yearText(t time.Time, layout string) string {
	if y := t.Year(); y < 0 {
		return fmt.Sprintf("-%04d", -y) + t.Format(layout)
	}
	return fmt.Sprintf("%04d", t.Year()) + t.Format(layout)
}

func timeText(v int64, unit arrow.TimeUnit) string {
	d := time.Duration(v) * unit.Multiplier()
	text := fmt.Sprintf("%02d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
	if frac := d % time.Second; frac != 0 {
		text += strings.TrimRight(fmt.Sprintf(".%09d", frac), "0")
	}
	return text
}

// intervalText writes an interval in ISO 8601, each part with its own sign.
func intervalText(v arrow.MonthDayNanoInterval) string {
	var b strings.Builder
	b.WriteByte('P')
	if v.Months != 0 {
		fmt.Fprintf(&b, "%dM", v.Months)
	}
	if v.Days != 0 {
		fmt.Fprintf(&b, "%dD", v.Days)
	}
	if v.Nanoseconds != 0 || b.Len() == 1 {
		b.WriteString("T" + strconv.FormatFloat(float64(v.Nanoseconds)/1e9, 'f', -1, 64) + "S")
	}
	return b.String()
}
