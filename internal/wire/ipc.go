package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/firn-project/firn/commit"
)

// EncodeIPC writes batches of one schema as an Arrow IPC stream, with the schema
// also when there is none.
func EncodeIPC(schema *arrow.Schema, batches ...arrow.RecordBatch) ([]byte, error) {
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, ipc.WithSchema(schema))
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			return nil, fmt.Errorf("write Arrow IPC: %w", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write Arrow IPC: %w", err)
	}
	return buf.Bytes(), nil
}

// known is a schema that is ours, with its message encoded once: for a batch of one
// row that takes as long as all the rest.
type known struct {
	schema *arrow.Schema
	head   []byte
}

func newKnown(schema *arrow.Schema) known {
	raw, err := EncodeIPC(schema)
	if err != nil {
		panic(err) // a schema that can't be encoded is a defect
	}
	return known{schema, raw[:len(raw)-len(endOfStream)]}
}

// endOfStream ends an Arrow IPC stream.
const endOfStream = "\xff\xff\xff\xff\x00\x00\x00\x00"

// encode is EncodeIPC for one batch of the schema.
func (k known) encode(b arrow.RecordBatch) ([]byte, error) {
	p, err := ipc.GetRecordBatchPayload(b)
	if err != nil {
		return nil, fmt.Errorf("write Arrow IPC: %w", err)
	}
	defer p.Release()
	buf := bytes.NewBuffer(slices.Clip(k.head))
	if _, err := p.WritePayload(buf); err != nil {
		return nil, fmt.Errorf("write Arrow IPC: %w", err)
	}
	buf.WriteString(endOfStream)
	return buf.Bytes(), nil
}

// EncodeManifestIPC writes a file manifest as an Arrow IPC stream.
func EncodeManifestIPC(manifest arrow.RecordBatch) ([]byte, error) {
	return manifestForm().encode(manifest)
}

var manifestForm = sync.OnceValue(func() known { return newKnown(ManifestSchema()) })

// ManifestRows is how many files a batch of EncodeManifests has at most.
const ManifestRows = 1024

// WriteManifest writes files as an Arrow IPC stream of file manifests, batch by batch.
func WriteManifest(w io.Writer, files commit.Files) error {
	if files.Len() <= ManifestRows {
		// The schema's message needn't be encoded again.
		batch := make([]commit.File, 0, files.Len())
		for _, f := range files.All() {
			batch = append(batch, f)
		}
		b, err := EncodeManifest(batch)
		if err != nil {
			return err
		}
		defer b.Release()
		raw, err := EncodeManifestIPC(b)
		if err == nil {
			_, err = w.Write(raw)
		}
		return err
	}
	iw := ipc.NewWriter(w, ipc.WithSchema(ManifestSchema()))
	batch := make([]commit.File, 0, ManifestRows)
	put := func() error {
		b, err := EncodeManifest(batch)
		if err != nil {
			return err
		}
		defer b.Release()
		batch = batch[:0]
		return iw.Write(b)
	}
	for _, f := range files.All() {
		if batch = append(batch, f); len(batch) == ManifestRows {
			if err := put(); err != nil {
				return err
			}
		}
	}
	if len(batch) > 0 {
		if err := put(); err != nil {
			return err
		}
	}
	return iw.Close()
}

// EachFileIPC reads the file manifests of an Arrow IPC stream, such as the
// copy in a task's status or what was sealed. Its input is untrusted; see EachFile.
func EachFileIPC(in io.Reader, each func(commit.File) error) error {
	r, err := ipc.NewReaderFromMessageReader(&streamed{in: in}, ipc.WithAllocator(NewLimitedAllocator()))
	if err != nil {
		return fmt.Errorf("%w: %w", errManifest, err)
	}
	defer r.Release()
	for {
		b, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errManifest, err)
		}
		if err := EachFile(b, each); err != nil {
			return err
		}
	}
}

// streamed cuts what is read into messages, as messages does with what is there. What
// a length says is taken no further than bytes come.
type streamed struct {
	in    io.Reader
	check Checker
}

func (*streamed) Retain()  {}
func (*streamed) Release() {}

// Message implements ipc.MessageReader.
func (s *streamed) Message() (*ipc.Message, error) {
	var head [4]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return nil, err // io.EOF at the end
	}
	if binary.LittleEndian.Uint32(head[:]) == 0xffffffff { // the marker of a message
		if _, err := io.ReadFull(s.in, head[:]); err != nil {
			return nil, io.ErrUnexpectedEOF
		}
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 {
		return nil, io.EOF
	}
	header, err := s.take(int64(n))
	if err != nil {
		return nil, err
	}
	length, err := s.check.CheckMessage(header)
	if err != nil {
		return nil, err
	}
	body, err := s.take(length)
	if err == nil {
		err = s.check.CheckBody(body)
	}
	if err != nil {
		return nil, err
	}
	return ipc.NewMessage(memory.NewBufferBytes(header), memory.NewBufferBytes(body)), nil
}

func (s *streamed) take(n int64) ([]byte, error) {
	if n < 0 || n > MaxMessage {
		return nil, fmt.Errorf("%w: a part of %d bytes, at most %d are allowed", errMessage, n, MaxMessage)
	}
	var buf bytes.Buffer
	got, err := buf.ReadFrom(io.LimitReader(s.in, n))
	if err == nil && got < n {
		err = io.ErrUnexpectedEOF
	}
	return buf.Bytes(), err
}

// NewIPCReader reads an untrusted Arrow IPC stream that is whole in memory. The
// caller releases the reader; batches share raw's memory and are to be checked
// (CheckBatch, DecodeManifest) before use.
func NewIPCReader(raw []byte) (*ipc.Reader, error) {
	return ipc.NewReaderFromMessageReader(&messages{rest: raw}, ipc.WithAllocator(NewLimitedAllocator()))
}

// messages cuts a stream into messages and checks each, in place of the
// library's reader, which allocates whatever a length says.
type messages struct {
	rest  []byte
	check Checker
}

func (*messages) Retain()  {}
func (*messages) Release() {}

// Message implements ipc.MessageReader.
func (m *messages) Message() (*ipc.Message, error) {
	if len(m.rest) >= 4 && binary.LittleEndian.Uint32(m.rest) == 0xffffffff {
		m.rest = m.rest[4:] // the marker of a message
	}
	if len(m.rest) < 4 {
		if len(m.rest) == 0 {
			return nil, io.EOF
		}
		return nil, io.ErrUnexpectedEOF
	}
	n := binary.LittleEndian.Uint32(m.rest)
	m.rest = m.rest[4:]
	if n == 0 {
		m.rest = nil
		return nil, io.EOF
	}
	if uint64(n) > uint64(len(m.rest)) {
		return nil, io.ErrUnexpectedEOF
	}
	header := m.rest[:n]
	m.rest = m.rest[n:]
	body, err := m.check.CheckMessage(header)
	if err != nil {
		return nil, err
	}
	if body < 0 || body > int64(len(m.rest)) {
		return nil, io.ErrUnexpectedEOF
	}
	if err := m.check.CheckBody(m.rest[:body]); err != nil {
		return nil, err
	}
	msg := ipc.NewMessage(memory.NewBufferBytes(header), memory.NewBufferBytes(m.rest[:body]))
	m.rest = m.rest[body:]
	return msg, nil
}

// NewFlightReader reads an untrusted Flight stream like flight.NewRecordReader.
// Batches are to be checked before use if they are used as raw memory.
func NewFlightReader(s flight.DataStreamReader) (*flight.Reader, error) {
	return flight.NewRecordReader(&checkedStream{DataStreamReader: s}, ipc.WithAllocator(NewLimitedAllocator()))
}

type checkedStream struct {
	flight.DataStreamReader
	check Checker
}

// Recv checks the message on its way.
func (s *checkedStream) Recv() (*flight.FlightData, error) {
	d, err := s.DataStreamReader.Recv()
	if err == nil && len(d.GetDataHeader()) > 0 {
		if _, err = s.check.CheckMessage(d.GetDataHeader()); err == nil {
			err = s.check.CheckBody(d.GetDataBody())
		}
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}
