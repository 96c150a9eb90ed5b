package iceberg

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go"
	"github.com/google/uuid"
	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"
)

// entrySchema is the Avro schema of a manifest's entries: the library's, with a
// partition record of our own. The library gives every decimal's type the same
// name, so that a spec with two decimals has no schema at all, it leaves out a
// scale of 0, which PyIceberg can't read, and it takes a partition field's name
// for one that Avro takes.
type entrySchema struct {
	// text stands in the file.
	text string
	// codec encodes. It lacks logical types: values are given as they are stored.
	codec  *avro.Schema
	fields []partitionColumn
}

// partitionColumn is one field of the partition record.
type partitionColumn struct {
	iceberg.NestedField
	// name is the field's in Avro.
	name string
	// size is the length of a decimal's bytes.
	size int
}

func newEntrySchema(version int, schema *iceberg.Schema, fields []iceberg.NestedField) (*entrySchema, error) {
	var header bytes.Buffer
	if _, err := iceberg.NewManifestWriter(version, &header, *iceberg.UnpartitionedSpec, schema, 0); err != nil {
		return nil, err
	}
	r, err := ocf.NewReader(&header)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // over bytes in memory
	s := &entrySchema{}
	names := map[string]bool{}
	for _, f := range fields {
		c := partitionColumn{NestedField: f, name: avroName(f.Name)}
		if names[c.name] {
			c.name += "_" + strconv.Itoa(f.ID)
		}
		names[c.name] = true
		if d, ok := f.Type.(iceberg.DecimalType); ok {
			c.size = decimalSize(d.Precision())
		}
		s.fields = append(s.fields, c)
	}
	written, err := s.withPartition(r.Metadata()["avro.schema"], true)
	if err != nil {
		return nil, err
	}
	encoded, err := s.withPartition(r.Metadata()["avro.schema"], false)
	if err != nil {
		return nil, err
	}
	s.text = written
	if s.codec, err = avro.Parse(encoded); err != nil {
		return nil, err
	}
	return s, nil
}

// withPartition puts the partition record into an entry's schema.
func (s *entrySchema) withPartition(text []byte, logical bool) (string, error) {
	var entry map[string]any
	if err := json.Unmarshal(text, &entry); err != nil {
		return "", err
	}
	file, _ := child(entry, "data_file")["type"].(map[string]any)
	partition := child(file, "partition")
	if partition == nil {
		return "", errors.New("the library's schema of manifest entries has no partition")
	}
	columns := []any{}
	for _, c := range s.fields {
		typ, err := c.avroType(logical)
		if err != nil {
			return "", err
		}
		f := map[string]any{"name": c.name, "type": []any{"null", typ}, "default": nil, "field-id": c.ID}
		if c.name != c.Name {
			f["iceberg-field-name"] = c.Name
		}
		columns = append(columns, f)
	}
	partition["type"] = map[string]any{"type": "record", "name": "r102", "fields": columns}
	out, err := json.Marshal(entry)
	return string(out), err
}

// child finds a field of a record.
func child(record map[string]any, name string) map[string]any {
	fields, _ := record["fields"].([]any)
	for _, f := range fields {
		if m, _ := f.(map[string]any); m["name"] == name {
			return m
		}
	}
	return nil
}

// avroType is the type of a value as the spec maps it (Appendix A, Avro). Names
// of fixed types are the field's own: Avro takes each name once.
func (c partitionColumn) avroType(logical bool) (any, error) {
	as := func(t any, logicalType string, props ...any) any {
		m := map[string]any{"type": t}
		if !logical {
			return m
		}
		m["logicalType"] = logicalType
		for i := 0; i+1 < len(props); i += 2 {
			m[props[i].(string)] = props[i+1]
		}
		return m
	}
	fixed := func(size int, logicalType string, props ...any) any {
		m := as("fixed", logicalType, props...).(map[string]any)
		if logicalType == "" {
			delete(m, "logicalType")
		}
		m["name"], m["size"] = fmt.Sprintf("fixed_%d_%d", size, c.ID), size
		return m
	}
	switch t := c.Type.(type) {
	case iceberg.BooleanType:
		return "boolean", nil
	case iceberg.Int32Type:
		return "int", nil
	case iceberg.Int64Type:
		return "long", nil
	case iceberg.Float32Type:
		return "float", nil
	case iceberg.Float64Type:
		return "double", nil
	case iceberg.StringType:
		return "string", nil
	case iceberg.BinaryType:
		return "bytes", nil
	case iceberg.DateType:
		return as("int", "date"), nil
	case iceberg.TimeType:
		return as("long", "time-micros"), nil
	case iceberg.TimestampType:
		return as("long", "timestamp-micros", "adjust-to-utc", false), nil
	case iceberg.TimestampTzType:
		return as("long", "timestamp-micros", "adjust-to-utc", true), nil
	case iceberg.UUIDType:
		return fixed(16, "uuid"), nil
	case iceberg.FixedType:
		return fixed(t.Len(), ""), nil
	case iceberg.DecimalType:
		return fixed(c.size, "decimal", "precision", t.Precision(), "scale", t.Scale()), nil
	}
	return nil, fmt.Errorf("partition values of the type %s can't be written", c.Type)
}

// avroValue gives a partition value in the form that Avro stores.
func (c partitionColumn) avroValue(v any) any {
	switch v := v.(type) {
	case iceberg.Date:
		return int32(v)
	case iceberg.Time:
		return int64(v)
	case iceberg.Timestamp:
		return int64(v)
	case uuid.UUID:
		return v[:]
	case iceberg.Decimal:
		n := v.Val.BigInt()
		if n.Sign() < 0 {
			n.Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*c.size)))
		}
		return n.FillBytes(make([]byte, c.size))
	}
	return v
}

// decimalSize is the least number of bytes that hold every decimal of the
// precision.
func decimalSize(precision int) int {
	limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil)
	return limit.BitLen()/8 + 1
}

// avroName makes a name that Avro takes, as Java does: what isn't a letter, a
// digit or an underscore becomes _x and its number in hexadecimal.
func avroName(name string) string {
	var b strings.Builder
	for i, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', r == '_', i > 0 && '0' <= r && r <= '9':
			b.WriteRune(r)
		case '0' <= r && r <= '9':
			b.WriteString("_" + string(r))
		default:
			fmt.Fprintf(&b, "_x%X", r)
		}
	}
	return b.String()
}
