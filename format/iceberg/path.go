package iceberg

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/iceberg-go"
	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
)

// maxPathPart is the longest name of a partition directory, in bytes. File
// systems take 255.
const maxPathPart = 200

// PartitionPath gives the directories of a partition as Java names them:
// name=value for each field, joined with slashes, without a trailing one, both
// parts escaped as java.net.URLEncoder does. An unpartitioned tuple gives "".
//
// A path is for people: readers take partition values from the metadata, and
// two partitions may share a directory (null and the string "null" do). A name
// longer than 200 bytes is cut, and a hash of the whole takes the rest's place.
func PartitionPath(spec iceberg.PartitionSpec, schema *iceberg.Schema, values []commit.PartitionValue) string {
	var parts []string
	for i := range min(spec.NumFields(), len(values)) {
		b, err := bindField(schema, spec.Field(i))
		text := "null"
		if err == nil && !values[i].Null {
			text = humanValue(b, values[i].Value)
		}
		parts = append(parts, shortened(escape(spec.Field(i).Name)+"="+escape(text)))
	}
	return strings.Join(parts, "/")
}

func shortened(part string) string {
	if len(part) <= maxPathPart {
		return part
	}
	sum := sha256.Sum256([]byte(part))
	cut := part[:maxPathPart-17]
	// Not in the middle of an escape.
	if i := strings.LastIndexByte(cut, '%'); i > len(cut)-3 {
		cut = cut[:i]
	}
	return cut + "-" + hex.EncodeToString(sum[:8])
}

// escape does what java.net.URLEncoder does with UTF-8: letters, digits and
// .-*_ stay, a space becomes +, every other byte %XX.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '.', c == '-', c == '*', c == '_':
			b.WriteByte(c)
		case c == ' ':
			b.WriteByte('+')
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// humanValue is Java's toHumanString of a transform's value.
func humanValue(f boundField, b []byte) string {
	v, err := DecodeValue(f.Result, b)
	if err != nil {
		// Only a hostile or broken writer gets here; the path stays harmless.
		return base64.StdEncoding.EncodeToString(b)
	}
	n, _ := v.(int32)
	switch f.Transform.(type) {
	case iceberg.YearTransform:
		return year(1970 + int64(n))
	case iceberg.MonthTransform:
		return fmt.Sprintf("%s-%02d", year(1970+floorDiv(int64(n), 12)), floorMod(int64(n), 12)+1)
	case iceberg.HourTransform:
		return fmt.Sprintf("%s-%02d", day(floorDiv(int64(n), 24)), floorMod(int64(n), 24))
	}
	switch v := v.(type) {
	case []byte:
		return base64.StdEncoding.EncodeToString(v)
	case iceberg.Date:
		return day(int64(v))
	case iceberg.Time:
		return clock(int64(v))
	case iceberg.Timestamp:
		if _, zoned := f.Result.(iceberg.TimestampTzType); zoned {
			return instant(int64(v)) + "+00:00"
		}
		return instant(int64(v))
	case float32:
		return javaFloat(float64(v), 32)
	case float64:
		return javaFloat(v, 64)
	case uuid.UUID:
		return v.String()
	case string:
		return v
	}
	return fmt.Sprint(v)
}

func year(y int64) string { return fmt.Sprintf("%04d", y) }

func day(n int64) string {
	y, _ := civil(n)
	return year(y) + monthAndDay(n)
}

func monthAndDay(n int64) string { return time.Unix(n*86400, 0).UTC().Format("-01-02") }

// clock is a time of day as LocalTime.toString prints it: no seconds when they
// are zero, and a fraction in groups of three digits.
func clock(us int64) string {
	t := time.UnixMicro(us).UTC()
	switch {
	case us%60e6 == 0:
		return t.Format("15:04")
	case us%1e6 == 0:
		return t.Format("15:04:05")
	case us%1e3 == 0:
		return t.Format("15:04:05.000")
	}
	return t.Format("15:04:05.000000")
}

// instant is a timestamp as DateTimeFormatter.ISO_LOCAL_DATE_TIME prints it:
// seconds always, and a fraction without trailing zeros.
func instant(us int64) string {
	n := floorDiv(us, microsPerDay)
	y, _ := civil(n)
	text := year(y)
	switch {
	case y > 9999:
		text = "+" + text
	case y < 0:
		text = fmt.Sprintf("-%04d", -y)
	}
	return text + monthAndDay(n) + time.UnixMicro(us).UTC().Format("T15:04:05.999999")
}

// javaFloat prints a number as Java's Float.toString and Double.toString do.
func javaFloat(v float64, bits int) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 0):
		return strings.TrimPrefix(strconv.FormatFloat(v, 'f', -1, bits)+"inity", "+")
	case v == 0 || math.Abs(v) >= 1e-3 && math.Abs(v) < 1e7:
		s := strconv.FormatFloat(v, 'f', -1, bits)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exp, _ := strings.Cut(strconv.FormatFloat(v, 'e', -1, bits), "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exp) // FormatFloat wrote it
	return mantissa + "E" + strconv.Itoa(n)
}
