package render

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
)

const (
	// maxSafe is the largest integer up to which a double holds every one.
	maxSafe = 1 << 53
	// maxDigits is how many decimal digits a double always holds.
	maxDigits = 15
)

// appendRow writes row i of a batch as a JSON object with the given names.
func appendRow(dst []byte, names [][]byte, b arrow.RecordBatch, i int) []byte {
	dst = append(dst, '{')
	for c, name := range names {
		if c > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(dst, name...), ':')
		dst = appendValue(dst, b.Column(c), i)
	}
	return append(dst, '}')
}

// appendValue writes one value as JSON.
func appendValue(dst []byte, a arrow.Array, i int) []byte {
	if a.IsNull(i) {
		return append(dst, "null"...)
	}
	switch a := a.(type) {
	case *array.Boolean:
		return strconv.AppendBool(dst, a.Value(i))
	case *array.Int8:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10)
	case *array.Int16:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10)
	case *array.Int32:
		return strconv.AppendInt(dst, int64(a.Value(i)), 10)
	case *array.Int64:
		return appendInt(dst, a.Value(i))
	case *array.Uint8:
		return strconv.AppendUint(dst, uint64(a.Value(i)), 10)
	case *array.Uint16:
		return strconv.AppendUint(dst, uint64(a.Value(i)), 10)
	case *array.Uint32:
		return strconv.AppendUint(dst, uint64(a.Value(i)), 10)
	case *array.Uint64:
		return quoteIf(a.Value(i) > maxSafe, dst, strconv.FormatUint(a.Value(i), 10))
	case *array.Float32:
		return appendFloat(dst, float64(a.Value(i)), 32)
	case *array.Float64:
		return appendFloat(dst, a.Value(i), 64)
	case *array.Decimal128, *array.Decimal256:
		text := plain(a, i)
		return quoteIf(digits(text) > maxDigits, dst, text)
	case *array.Struct:
		return appendStruct(dst, a, i)
	case *array.Map:
		return appendMap(dst, a, i)
	case array.ListLike:
		return appendList(dst, a, i)
	case *array.Dictionary:
		return appendValue(dst, a.Dictionary(), a.GetValueIndex(i))
	case *extensions.UUIDArray:
		return appendString(dst, plain(a, i))
	case array.ExtensionArray:
		return appendValue(dst, a.Storage(), i)
	default:
		return appendString(dst, plain(a, i))
	}
}

func appendInt(dst []byte, v int64) []byte {
	return quoteIf(v > maxSafe || v < -maxSafe, dst, strconv.FormatInt(v, 10))
}

func quoteIf(quote bool, dst []byte, text string) []byte {
	if quote {
		return append(append(append(dst, '"'), text...), '"')
	}
	return append(dst, text...)
}

// digits counts the significant digits of a decimal's text.
func digits(text string) int {
	text = strings.TrimLeft(strings.TrimPrefix(text, "-"), "0.")
	return len(text) - strings.Count(text, ".")
}

func appendFloat(dst []byte, v float64, bits int) []byte {
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	}
	return strconv.AppendFloat(dst, v, floatFormat(v), -1, bits)
}

// floatFormat keeps numbers of everyday size free of exponents.
func floatFormat(v float64) byte {
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return 'e'
	}
	return 'f'
}

func appendStruct(dst []byte, a *array.Struct, i int) []byte {
	dst = append(dst, '{')
	for f, field := range a.DataType().(*arrow.StructType).Fields() {
		if f > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, field.Name), ':')
		dst = appendValue(dst, a.Field(f), i)
	}
	return append(dst, '}')
}

func appendList(dst []byte, a array.ListLike, i int) []byte {
	start, end := a.ValueOffsets(i)
	dst = append(dst, '[')
	for j := start; j < end; j++ {
		if j > start {
			dst = append(dst, ',')
		}
		dst = appendValue(dst, a.ListValues(), int(j))
	}
	return append(dst, ']')
}

func appendMap(dst []byte, a *array.Map, i int) []byte {
	start, end := a.ValueOffsets(i)
	keys, items := a.Keys(), a.Items()
	text := isText(keys.DataType())
	open, closing := byte('['), byte(']')
	if text {
		open, closing = '{', '}'
	}
	dst = append(dst, open)
	for j := int(start); j < int(end); j++ {
		if j > int(start) {
			dst = append(dst, ',')
		}
		if text {
			dst = append(appendValue(dst, keys, j), ':')
			dst = appendValue(dst, items, j)
			continue
		}
		dst = appendValue(append(dst, `{"key":`...), keys, j)
		dst = appendValue(append(dst, `,"value":`...), items, j)
		dst = append(dst, '}')
	}
	return append(dst, closing)
}

func isText(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		return true
	default:
		return false
	}
}

// appendString writes a JSON string as encoding/json does, without its escapes
// for HTML.
func appendString(dst []byte, s string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string can't fail
	return append(dst, bytes.TrimRight(buf.Bytes(), "\n")...)
}

func base64Text(b []byte) string { return base64.StdEncoding.EncodeToString(b) }
