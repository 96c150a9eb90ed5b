package iceberg

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/iceberg-go"
	"github.com/google/uuid"
)

// ParsePartitionText reads a partition value as people and other programs write it
// (docs/reference/write-protocol.md, manifests of paths). result is the type of the
// transform's values.
func ParsePartitionText(transform iceberg.Transform, result iceberg.Type, text string) (any, error) {
	switch transform.(type) {
	case iceberg.VoidTransform:
		return nil, errors.New("the field is void, and its value is always null")
	case iceberg.YearTransform:
		t, err := parseTime(text, "2006")
		return int32(t.Year() - 1970), err
	case iceberg.MonthTransform:
		t, err := parseTime(text, "2006-01")
		return int32((t.Year()-1970)*12 + int(t.Month()) - 1), err
	case iceberg.HourTransform:
		t, err := parseTime(text, "2006-01-02-15")
		return int32(floorDiv(t.Unix(), 3600)), err
	case iceberg.BucketTransform:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, errors.New("it isn't the number of a bucket")
		}
		return int32(n), nil
	}
	return parseText(result, text)
}

func parseTime(text, layout string) (time.Time, error) {
	t, err := time.ParseInLocation(layout, text, time.UTC)
	// The library also takes a comma, and digits beyond the layout's.
	if err != nil || strings.Contains(text, ",") || t.Nanosecond()%1000 != 0 {
		return t, fmt.Errorf("it isn't of the form of %s", layout)
	}
	return t, nil
}

// parseText reads a value of a primitive type.
func parseText(t iceberg.Type, text string) (any, error) {
	bad := fmt.Errorf("it isn't a %s", t)
	switch t := t.(type) {
	case iceberg.BooleanType:
		if text == "true" || text == "false" {
			return text == "true", nil
		}
	case iceberg.Int32Type:
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			return int32(n), nil
		}
	case iceberg.Int64Type:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
	case iceberg.Float32Type:
		if f, ok := parseFloat(text, 32); ok {
			return float32(f), nil
		}
	case iceberg.Float64Type:
		if f, ok := parseFloat(text, 64); ok {
			return f, nil
		}
	case iceberg.DecimalType:
		if d, ok := parseDecimal(text, t.Precision(), t.Scale()); ok {
			return iceberg.Decimal{Val: d, Scale: t.Scale()}, nil
		}
	case iceberg.DateType:
		d, err := parseTime(text, time.DateOnly)
		return iceberg.Date(floorDiv(d.Unix(), 86400)), err
	case iceberg.TimeType:
		at, err := parseTime(text, "15:04:05.999999")
		midnight := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
		return iceberg.Time(at.Sub(midnight).Microseconds()), err
	case iceberg.TimestampType:
		at, err := parseTime(text, "2006-01-02T15:04:05.999999")
		return iceberg.Timestamp(at.UnixMicro()), err
	case iceberg.TimestampTzType:
		at, err := parseTime(text, "2006-01-02T15:04:05.999999Z07:00")
		return iceberg.Timestamp(at.UnixMicro()), err
	case iceberg.StringType:
		if utf8.ValidString(text) {
			return text, nil
		}
	case iceberg.UUIDType:
		if len(text) == 36 {
			if u, err := uuid.Parse(text); err == nil {
				return u, nil
			}
		}
	case iceberg.FixedType:
		if b, err := base64.StdEncoding.DecodeString(text); err == nil && len(b) == t.Len() {
			return b, nil
		}
	case iceberg.BinaryType:
		if b, err := base64.StdEncoding.DecodeString(text); err == nil {
			return b, nil
		}
	}
	return nil, bad
}

// parseFloat reads a number as JSON has it, and those that JSON doesn't have.
func parseFloat(text string, bits int) (float64, bool) {
	switch text {
	case "NaN":
		return math.Float64frombits(canonicalNaN), true
	case "Infinity":
		return math.Inf(1), true
	case "-Infinity":
		return math.Inf(-1), true
	}
	if strings.Trim(text, "0123456789+-.eE") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, bits)
	return f, err == nil
}

// parseDecimal reads digits with at most scale of them after a point.
func parseDecimal(text string, precision, scale int) (decimal128.Num, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimPrefix(whole, "-") + fraction
	if len(fraction) > scale || len(digits) > 80 || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return decimal128.Num{}, false
	}
	n, ok := new(big.Int).SetString(digits+strings.Repeat("0", scale-len(fraction)), 10)
	if !ok || n.BitLen() > 127 {
		return decimal128.Num{}, false
	}
	if strings.HasPrefix(whole, "-") {
		n.Neg(n)
	}
	d := decimal128.FromBigInt(n)
	return d, d.FitsInPrecision(int32(precision))
}
