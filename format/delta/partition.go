package delta

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// maxPartitionText is the longest text of a partition value that is read.
const maxPartitionText = 1 << 20

// EncodePartitionValue is the text that partitionValues keeps for a value; nil
// stands for null. The empty string is null too: Delta can't tell them apart.
func EncodePartitionValue(t Type, v any) (*string, error) {
	if v == nil {
		return nil, nil
	}
	s, err := partitionText(t, v)
	if err != nil {
		return nil, err
	}
	if s == "" {
		return nil, nil
	}
	return &s, nil
}

func partitionText(t Type, v any) (string, error) {
	bad := func() (string, error) { return "", fmt.Errorf("%T isn't a value of %v", v, t) }
	if d, ok := t.(DecimalType); ok {
		n, ok := v.(Decimal)
		if !ok || n.Scale != d.Scale || !n.Num.FitsInPrecision(int32(d.Precision)) {
			return "", fmt.Errorf("%v isn't a value of %v", v, t)
		}
		return n.String(), nil
	}
	p, ok := t.(Primitive)
	if !ok {
		return "", fmt.Errorf("a table can't be partitioned by a %v", t)
	}
	switch v := v.(type) {
	case bool:
		if p == Boolean {
			return strconv.FormatBool(v), nil
		}
	case int8:
		if p == Byte {
			return strconv.Itoa(int(v)), nil
		}
	case int16:
		if p == Short {
			return strconv.Itoa(int(v)), nil
		}
	case int32:
		if p == Integer {
			return strconv.Itoa(int(v)), nil
		}
	case int64:
		if p == Long {
			return strconv.FormatInt(v, 10), nil
		}
	case float32:
		if p == Float {
			return javaFloat(float64(v), 32), nil
		}
	case float64:
		if p == Double {
			return javaFloat(v, 64), nil
		}
	case string:
		if p != String {
			return bad()
		}
		if !utf8.ValidString(v) {
			return "", errors.New("a partition value isn't UTF-8")
		}
		return v, nil
	case arrow.Date32:
		if p == Date {
			return dateText(int64(v)), nil
		}
	case arrow.Timestamp:
		switch p {
		case Timestamp:
			return dateText(floorDiv(int64(v), microsPerDay)) + time.UnixMicro(int64(v)).UTC().Format("T15:04:05.000000Z"), nil
		case TimestampNTZ:
			layout := " 15:04:05.000000"
			if v%1e6 == 0 {
				layout = " 15:04:05"
			}
			return dateText(floorDiv(int64(v), microsPerDay)) + time.UnixMicro(int64(v)).UTC().Format(layout), nil
		}
	case []byte:
		return "", errors.New("a table can't be partitioned by a binary column: its values have no text that can be read back")
	}
	return bad()
}

const microsPerDay = 24 * 60 * 60 * 1_000_000

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// dateText is a date with at least four digits of year, and a sign on years that
// have more or that are negative, as java.time prints it.
func dateText(days int64) string {
	t := time.Unix(days*86400, 0).UTC()
	y := t.Year()
	switch {
	case y > 9999:
		return fmt.Sprintf("+%d", y) + t.Format("-01-02")
	case y < 0:
		return fmt.Sprintf("-%04d", -y) + t.Format("-01-02")
	}
	return fmt.Sprintf("%04d", y) + t.Format("-01-02")
}

// javaFloat prints a number as Java does, which has an exponent below 1e-3 and
// from 1e7 on. Negative zero is written as zero: the two are one partition.
func javaFloat(v float64, bits int) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	case v == 0:
		return "0.0"
	}
	if a := math.Abs(v); a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(v, 'f', -1, bits)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'e', -1, bits), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	sign := ""
	if exponent[0] == '-' {
		sign = "-"
	}
	return mantissa + "E" + sign + strings.TrimLeft(exponent[1:], "0")
}

// DecodePartitionValue reads a value of partitionValues; nil and "" are null. A
// timestamp without a zone was written in the zone of a writer that nobody knows
// any more; it is taken as UTC.
func DecodePartitionValue(t Type, text *string) (any, error) {
	if text == nil || *text == "" {
		return nil, nil
	}
	s := *text
	if len(s) > maxPartitionText {
		return nil, fmt.Errorf("a partition value has %d bytes, more than %d", len(s), maxPartitionText)
	}
	v, err := decodeText(t, s)
	if err != nil {
		return nil, fmt.Errorf("partition value %.80q: %w", s, err)
	}
	return v, nil
}

func decodeText(t Type, s string) (any, error) {
	if d, ok := t.(DecimalType); ok {
		return ParseDecimal(d, s)
	}
	notOne := fmt.Errorf("it isn't a %v", t)
	integer := func(bits int) (int64, error) {
		n, err := strconv.ParseInt(s, 10, bits)
		if err != nil {
			return 0, notOne
		}
		return n, nil
	}
	switch t {
	case Boolean:
		switch strings.ToLower(s) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	case Byte:
		n, err := integer(8)
		return int8(n), err
	case Short:
		n, err := integer(16)
		return int16(n), err
	case Integer:
		n, err := integer(32)
		return int32(n), err
	case Long:
		return integer(64)
	case Float:
		f, err := parseFloat(s, 32)
		return float32(f), err
	case Double:
		return parseFloat(s, 64)
	case String:
		return s, nil
	case Binary:
		return []byte(s), nil
	case Date:
		days, rest, ok := parseDate(s)
		if ok && rest == "" && days == int64(int32(days)) {
			return arrow.Date32(days), nil
		}
	case Timestamp, TimestampNTZ:
		if us, ok := parseInstant(s, t == Timestamp); ok {
			return arrow.Timestamp(us), nil
		}
	}
	return nil, notOne
}

func parseFloat(s string, bits int) (float64, error) {
	switch s {
	case "NaN":
		return math.NaN(), nil
	case "Infinity":
		return math.Inf(1), nil
	case "-Infinity":
		return math.Inf(-1), nil
	}
	if strings.Trim(s, "0123456789+-.eE") != "" {
		return 0, errors.New("it isn't a number")
	}
	f, err := strconv.ParseFloat(s, bits)
	if err != nil {
		return 0, errors.New("it isn't a number that fits the column")
	}
	return f, nil
}

// ParseDecimal reads a decimal in plain or in exponent notation. Digits that the
// type has no place for are an error unless they are zeros.
func ParseDecimal(t DecimalType, s string) (Decimal, error) {
	bad := fmt.Errorf("it isn't a %v", t)
	mantissa, exponent := s, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		n, err := strconv.Atoi(s[i+1:])
		if err != nil || n > 100 || n < -100 {
			return Decimal{}, bad
		}
		mantissa, exponent = s[:i], n
	}
	sign := ""
	switch {
	case strings.HasPrefix(mantissa, "-"):
		sign, mantissa = "-", mantissa[1:]
	case strings.HasPrefix(mantissa, "+"):
		mantissa = mantissa[1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	if digits == "" || len(digits) > 200 || strings.Trim(digits, "0123456789") != "" {
		return Decimal{}, bad
	}
	n, _ := new(big.Int).SetString(sign+digits, 10) // only digits are left
	// The value is n · 10^(exponent - len(fraction)).
	shift := exponent - len(fraction) + t.Scale
	pow := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(shift, -shift))), nil)
	if shift >= 0 {
		n.Mul(n, pow)
	} else {
		rest := new(big.Int)
		if n.QuoRem(n, pow, rest); rest.Sign() != 0 {
			return Decimal{}, bad
		}
	}
	if n.BitLen() > 127 {
		return Decimal{}, bad
	}
	d := Decimal{Num: decimal128.FromBigInt(n), Scale: t.Scale}
	if !d.Num.FitsInPrecision(int32(t.Precision)) {
		return Decimal{}, bad
	}
	return d, nil
}

// maxYear keeps microseconds since 1970 within 64 bits.
const maxYear = 290_000

// parseDate reads a date at the start of s: days since 1970 and what follows.
func parseDate(s string) (days int64, rest string, ok bool) {
	body, negative := s, false
	switch {
	case strings.HasPrefix(s, "-"):
		body, negative = s[1:], true
	case strings.HasPrefix(s, "+"):
		body = s[1:]
	}
	i := strings.IndexByte(body, '-')
	if i < 4 || i > 7 || len(body) < i+6 || body[i+3] != '-' {
		return 0, "", false
	}
	y, ok1 := number(body[:i])
	m, ok2 := number(body[i+1 : i+3])
	d, ok3 := number(body[i+4 : i+6])
	if !ok1 || !ok2 || !ok3 || y > maxYear {
		return 0, "", false
	}
	if negative {
		y = -y
	}
	t := time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC)
	if t.Year() != y || int(t.Month()) != m || t.Day() != d {
		return 0, "", false
	}
	return floorDiv(t.Unix(), 86400), body[i+6:], true
}

// number reads decimal digits and nothing else.
func number(s string) (int, bool) {
	if s == "" || len(s) > 9 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// parseInstant reads a date, or a date and a time of day with up to nine decimals
// of which six count. With zoned, a Z or an offset may follow; without one it is
// UTC.
func parseInstant(s string, zoned bool) (us int64, ok bool) {
	days, rest, ok := parseDate(s)
	if !ok {
		return 0, false
	}
	us = days * microsPerDay
	if rest == "" {
		return us, true
	}
	if rest[0] != ' ' && rest[0] != 'T' || len(rest) < 9 || rest[3] != ':' || rest[6] != ':' {
		return 0, false
	}
	h, ok1 := number(rest[1:3])
	m, ok2 := number(rest[4:6])
	sec, ok3 := number(rest[7:9])
	if !ok1 || !ok2 || !ok3 || h > 23 || m > 59 || sec > 59 {
		return 0, false
	}
	us += int64(h*3600+m*60+sec) * 1e6
	rest = rest[9:]
	if strings.HasPrefix(rest, ".") {
		n := len(rest[1:]) - len(strings.TrimLeft(rest[1:], "0123456789"))
		digits := rest[1 : 1+n]
		rest = rest[1+n:]
		if n < 1 || n > 9 {
			return 0, false
		}
		f, ok := number((digits + "00000")[:6])
		if !ok {
			return 0, false
		}
		us += int64(f)
	}
	if rest == "" || zoned && rest == "Z" {
		return us, true
	}
	offset, ok := parseOffset(rest)
	if !zoned || !ok {
		return 0, false
	}
	return us - offset, true
}

// parseOffset reads ±hh:mm and ±hhmm.
func parseOffset(s string) (us int64, ok bool) {
	body := strings.Replace(s[1:], ":", "", 1)
	if len(body) != 4 || s[0] != '+' && s[0] != '-' {
		return 0, false
	}
	h, ok1 := number(body[:2])
	m, ok2 := number(body[2:])
	if !ok1 || !ok2 || h > 18 || m > 59 {
		return 0, false
	}
	us = int64(h*60+m) * 60 * 1e6
	if s[0] == '-' {
		us = -us
	}
	return us, true
}
