package commit

import (
	"bytes"
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"unsafe"
)

// Files is a list of files, sorted by path, that doesn't change. It is kept packed: a
// file with ten columns takes about half a kilobyte instead of five, so that a unit of
// several hundred thousand files fits into a scheduler that does other things too. A
// file is unpacked, into memory of its own, each time it is asked for.
//
// The zero Files is empty. It is safe for concurrent use.
type Files struct{ refs []packed }

// packed is one file: see pack.
type packed struct{ data []byte }

// PackFiles makes a list.
func PackFiles(files ...File) Files {
	var p Packer
	for i := range files {
		p.Add(files[i])
	}
	return p.Files()
}

// Len is how many files there are.
func (f Files) Len() int { return len(f.refs) }

// At unpacks file i.
func (f Files) At(i int) File { return unpack(f.refs[i].data) }

// Path is that of file i.
func (f Files) Path(i int) string { return string(f.refs[i].path()) }

// All gives the files with their numbers.
func (f Files) All() iter.Seq2[int, File] {
	return func(yield func(int, File) bool) {
		for i := range f.refs {
			if !yield(i, f.At(i)) {
				return
			}
		}
	}
}

// Packer collects files. It is for one goroutine.
type Packer struct {
	refs []packed
	// chunk is where the next files are put, scratch where one is packed.
	chunk, scratch []byte
	size           int64
}

// packChunk is how much is put into one piece of memory, at most, unless one file is larger.
const packChunk = 1 << 20

// perRef is what a file takes besides its packed form.
const perRef = int64(unsafe.Sizeof(packed{}))

// Add packs a file.
func (p *Packer) Add(f File) {
	p.scratch = pack(p.scratch[:0], &f)
	from := len(p.chunk)
	if cap(p.chunk)-from < len(p.scratch) {
		// Never moved: the files in it would hold on to where it was, too.
		from, p.chunk = 0, make([]byte, 0, max(len(p.scratch), min(packChunk, 2*cap(p.chunk))))
	}
	p.chunk = append(p.chunk, p.scratch...)
	data := p.chunk[from:len(p.chunk):len(p.chunk)]
	p.refs = append(p.refs, packed{data})
	p.size += int64(len(data)) + perRef
}

// Take adds all of a list, which shares its memory.
func (p *Packer) Take(f Files) {
	p.refs = append(p.refs, f.refs...)
	for _, r := range f.refs {
		p.size += int64(len(r.data)) + perRef
	}
}

// Len is how many files were added.
func (p *Packer) Len() int { return len(p.refs) }

// Bytes is the memory that they take, about.
func (p *Packer) Bytes() int64 { return p.size }

// Cut takes all but the first n files out again.
func (p *Packer) Cut(n int) {
	for _, r := range p.refs[n:] {
		p.size -= int64(len(r.data)) + perRef
	}
	clear(p.refs[n:])
	p.refs = p.refs[:n]
}

// Files sorts what was added. The packer is empty afterwards.
func (p *Packer) Files() Files {
	refs := p.refs
	*p = Packer{}
	slices.SortStableFunc(refs, func(a, b packed) int { return bytes.Compare(a.path(), b.path()) })
	return Files{refs}
}

// path is the path of a packed file, without a copy.
func (r packed) path() []byte {
	n, w := binary.Uvarint(r.data)
	return r.data[w : w+int(n)]
}

// pack appends a file. Numbers are varints, texts have their length before them, and
// maps go in by ascending key.
func pack(dst []byte, f *File) []byte {
	text := func(s string) { dst = append(binary.AppendUvarint(dst, uint64(len(s))), s...) }
	num := func(n int64) { dst = binary.AppendVarint(dst, n) }
	text(f.Path)
	text(f.Format)
	text(f.Attempt)
	num(int64(f.SchemaID))
	num(int64(f.SpecID))
	num(int64(f.SortOrderID))
	num(f.Rows)
	num(f.Size)
	num(size(f.Partition, f.Partition == nil))
	for _, v := range f.Partition {
		num(int64(v.FieldID))
		null := int64(0)
		if v.Null {
			null = 1
		}
		num(null)
		num(size(v.Value, v.Value == nil))
		dst = append(dst, v.Value...)
	}
	for _, m := range []map[int]int64{f.ColumnSizes, f.ValueCounts, f.NullCounts, f.NaNCounts} {
		num(sizeOf(m))
		for _, k := range slices.Sorted(maps.Keys(m)) {
			num(int64(k))
			num(m[k])
		}
	}
	for _, m := range []map[int][]byte{f.Lower, f.Upper} {
		num(sizeOf(m))
		for _, k := range slices.Sorted(maps.Keys(m)) {
			num(int64(k))
			num(size(m[k], m[k] == nil))
			dst = append(dst, m[k]...)
		}
	}
	num(size(f.SplitOffsets, f.SplitOffsets == nil))
	last := int64(0)
	for _, o := range f.SplitOffsets {
		num(o - last)
		last = o
	}
	return dst
}

// size is the length of a list, -1 for nil: present and empty isn't absent.
func size[T any](s []T, absent bool) int64 {
	if absent {
		return -1
	}
	return int64(len(s))
}

func sizeOf[V any](m map[int]V) int64 {
	if m == nil {
		return -1
	}
	return int64(len(m))
}

// unpacker reads what pack wrote; it is this process's own.
type unpacker struct{ rest []byte }

func (u *unpacker) num() int64 {
	n, w := binary.Varint(u.rest)
	u.rest = u.rest[w:]
	return n
}

func (u *unpacker) take(n int64) []byte {
	out := u.rest[:n]
	u.rest = u.rest[n:]
	return out
}

func (u *unpacker) text() string {
	n, w := binary.Uvarint(u.rest)
	u.rest = u.rest[w:]
	return string(u.take(int64(n)))
}

// bytes is nil where it was.
func (u *unpacker) bytes() []byte {
	n := u.num()
	if n < 0 {
		return nil
	}
	return append([]byte{}, u.take(n)...)
}

func unpackMap[V any](u *unpacker, item func() V) map[int]V {
	n := u.num()
	if n < 0 {
		return nil
	}
	m := make(map[int]V, n)
	for range n {
		k := int(u.num())
		m[k] = item()
	}
	return m
}

func unpack(data []byte) File {
	u := &unpacker{data}
	f := File{Path: u.text(), Format: u.text(), Attempt: u.text()}
	f.SchemaID, f.SpecID, f.SortOrderID = int(u.num()), int(u.num()), int(u.num())
	f.Rows, f.Size = u.num(), u.num()
	if n := u.num(); n >= 0 {
		f.Partition = make([]PartitionValue, n)
		for i := range f.Partition {
			f.Partition[i] = PartitionValue{FieldID: int(u.num()), Null: u.num() == 1, Value: u.bytes()}
		}
	}
	for _, m := range []*map[int]int64{&f.ColumnSizes, &f.ValueCounts, &f.NullCounts, &f.NaNCounts} {
		*m = unpackMap(u, u.num)
	}
	f.Lower, f.Upper = unpackMap(u, u.bytes), unpackMap(u, u.bytes)
	if n := u.num(); n >= 0 {
		f.SplitOffsets = make([]int64, n)
		last := int64(0)
		for i := range f.SplitOffsets {
			last += u.num()
			f.SplitOffsets[i] = last
		}
	}
	return f
}
