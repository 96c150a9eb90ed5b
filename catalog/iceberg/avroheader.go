package iceberg

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	avroMagic  = "Obj\x01"
	avroSchema = "avro.schema"
	// maxAvroHeader bounds what is read to find the schema of a manifest: the
	// table's schema stands in the header too.
	maxAvroHeader = 64 << 20
)

// renamedHeader gives a new beginning for a manifest whose partition fields have
// names that Avro doesn't take, and the length of what it stands for. PyIceberg and
// Java write letters of any alphabet as they are, and the library then can't read
// the manifest. nil when nothing has to change or it isn't an Avro file.
func renamedHeader(r io.Reader) (head []byte, length int64) {
	in := &headerReader{r: io.LimitReader(r, maxAvroHeader)}
	if string(in.take(uint64(len(avroMagic)))) != avroMagic {
		return nil, 0
	}
	type entry struct{ key, value []byte }
	var entries []entry
	changed := false
	for n := in.long(); n != 0 && in.err == nil; n = in.long() {
		if n < 0 {
			in.long() // the block's size
			n = -n
		}
		for ; n > 0 && in.err == nil; n-- {
			e := entry{in.bytes(), in.bytes()}
			if string(e.key) == avroSchema {
				if renamed := renamedSchema(e.value); renamed != nil {
					e.value, changed = renamed, true
				}
			}
			entries = append(entries, e)
		}
	}
	if in.err != nil || !changed {
		return nil, 0 // the library says what is wrong
	}
	out := bytes.NewBufferString(avroMagic)
	put := func(b []byte) {
		out.Write(binary.AppendVarint(nil, int64(len(b))))
		out.Write(b)
	}
	out.Write(binary.AppendVarint(nil, int64(len(entries))))
	for _, e := range entries {
		put(e.key)
		put(e.value)
	}
	out.WriteByte(0)
	return out.Bytes(), in.n
}

// renamedSchema renames the fields of the partition record; nil when all names
// are fine or it isn't a manifest's schema.
func renamedSchema(raw []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var schema any
	if d.Decode(&schema) != nil {
		return nil
	}
	partition := avroField(avroField(schema, "data_file"), "partition")
	fields, _ := member(partition, "fields").([]any)
	changed := false
	taken := map[string]bool{}
	for _, f := range fields {
		field, _ := f.(map[string]any)
		name, _ := field["name"].(string)
		renamed := avroName(name)
		if taken[renamed] {
			renamed = fmt.Sprintf("%s_%v", renamed, field["field-id"])
		}
		taken[renamed] = true
		if field != nil && renamed != name {
			field["name"], changed = renamed, true
		}
	}
	if !changed {
		return nil
	}
	out, err := json.Marshal(schema)
	if err != nil {
		return nil
	}
	return out
}

// avroField is the type of a record's field, without the null of a union.
func avroField(record any, name string) any {
	fields, _ := member(record, "fields").([]any)
	for _, f := range fields {
		if member(f, "name") != name {
			continue
		}
		t := member(f, "type")
		if union, ok := t.([]any); ok && len(union) > 0 {
			t = union[len(union)-1]
		}
		return t
	}
	return nil
}

func member(object any, key string) any {
	m, _ := object.(map[string]any)
	return m[key]
}

// headerReader reads Avro's primitives and counts what it read.
type headerReader struct {
	r   io.Reader
	n   int64
	err error
}

// ReadByte implements io.ByteReader.
func (h *headerReader) ReadByte() (byte, error) {
	b := h.take(1)
	if h.err != nil {
		return 0, h.err
	}
	return b[0], nil
}

func (h *headerReader) take(n uint64) []byte {
	if h.err == nil && n > maxAvroHeader {
		h.err = errors.New("the header is too large")
	}
	if h.err != nil {
		return nil
	}
	var b bytes.Buffer // grows with what is there, not with what is said
	read, err := io.CopyN(&b, h.r, int64(n))
	h.n += read
	if h.err = err; err != nil {
		return nil
	}
	return b.Bytes()
}

func (h *headerReader) long() int64 {
	if h.err != nil {
		return 0
	}
	v, err := binary.ReadVarint(h)
	if err != nil {
		h.err = err
	}
	return v
}

func (h *headerReader) bytes() []byte {
	n := h.long()
	if n < 0 {
		h.err = errors.New("a length is negative")
	}
	return h.take(uint64(max(n, 0)))
}

// spliced is an object that begins otherwise.
type spliced struct {
	head []byte
	// skip is how much of the object the head stands for.
	skip int64
	rest io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (s *spliced) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	if off < int64(len(s.head)) {
		n = copy(p, s.head[off:])
		if n == len(p) {
			return n, nil
		}
		off += int64(n)
	}
	m, err := s.rest.ReadAt(p[n:], off-int64(len(s.head))+s.skip)
	return n + m, err
}
