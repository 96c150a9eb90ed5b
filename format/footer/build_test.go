package footer_test

import (
	"encoding/binary"
	"slices"
)

// Footers are built by hand here, so that they can say what no writer says.

// st is a struct in Thrift's compact protocol: fields by id.
type st map[int]any

// enc encodes a value; i32 and i64 have one form.
func enc(v any) (typ byte, raw []byte) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, nil
		}
		return 2, nil
	case int:
		return 6, binary.AppendVarint(nil, int64(v))
	case i32:
		return 5, binary.AppendVarint(nil, int64(v))
	case i8:
		return 3, []byte{byte(v)}
	case string:
		return 8, append(binary.AppendUvarint(nil, uint64(len(v))), v...)
	case list:
		typ := byte(12)
		if len(v) > 0 {
			typ, _ = enc(v[0])
		}
		raw := []byte{0xf0 | typ}
		raw = binary.AppendUvarint(raw, uint64(len(v)))
		for _, e := range v {
			_, b := enc(e)
			raw = append(raw, b...)
		}
		return 9, raw
	case st:
		var ids []int
		for id := range v {
			ids = append(ids, id)
		}
		slices.Sort(ids)
		var raw []byte
		for _, id := range ids {
			typ, b := enc(v[id])
			raw = append(raw, typ) // the long form of a header
			raw = binary.AppendVarint(raw, int64(id))
			raw = append(raw, b...)
		}
		return 12, append(raw, 0)
	}
	panic(v)
}

type (
	i32  int32
	i8   int8
	list []any
)

// column is a leaf of a footer built by hand.
type column struct {
	name             string
	id               int
	physical, length int
	repetition       int
	logical          st
	converted        any
	precision, scale int
	stats            st
	values           int
	noOrder          bool
}

// built is a footer of one row group with 10 rows, and changes to it.
func built(cols []column, change func(file, group, chunk, meta st)) []byte {
	elements, chunks, orders := list{st{4: "root", 5: i32(len(cols))}}, list{}, list{}
	for _, c := range cols {
		e := st{1: i32(c.physical), 3: i32(c.repetition), 4: c.name}
		for id, v := range map[int]int{2: c.length, 9: c.id, 7: c.scale, 8: c.precision} {
			if v != 0 {
				e[id] = i32(v)
			}
		}
		if c.logical != nil {
			e[10] = c.logical
		}
		if c.converted != nil {
			e[6] = i32(c.converted.(int))
		}
		elements = append(elements, e)
		if c.values == 0 {
			c.values = 10
		}
		meta := st{1: i32(c.physical), 2: list{i32(0)}, 3: list{c.name}, 4: i32(0), 5: c.values, 6: 50, 7: 40, 9: 4}
		if c.stats != nil {
			meta[12] = c.stats
		}
		chunks = append(chunks, st{2: 4, 3: meta})
		order := st{1: st{}}
		if c.noOrder {
			order = st{2: st{}}
		}
		orders = append(orders, order)
	}
	group := st{1: chunks, 2: 50, 3: 10}
	file := st{1: i32(2), 2: elements, 3: 10, 4: list{group}, 6: "a test", 7: orders}
	if change != nil {
		chunk := chunks[0].(st)
		change(file, group, chunk, chunk[3].(st))
	}
	_, raw := enc(file)
	return raw
}

// fileOf puts a footer into a file.
func fileOf(footer []byte) []byte {
	raw := append([]byte("PAR1"), make([]byte, 60)...)
	raw = append(raw, footer...)
	raw = binary.LittleEndian.AppendUint32(raw, uint32(len(footer)))
	return append(raw, "PAR1"...)
}

func le64(n int64) string { return string(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
