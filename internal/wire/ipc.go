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

// DecodeManifestIPC reads the file manifests of an Arrow IPC stream, such as the
// copy in a task's status. Its input is untrusted; see DecodeManifest.
func DecodeManifestIPC(raw []byte) ([]commit.File, error) {
	r, err := NewIPCReader(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errManifest, err)
	}
	defer r.Release()
	files := []commit.File{}
	for {
		b, err := r.Read()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errManifest, err)
		}
		more, err := DecodeManifest(b)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
}

// NewIPCReader reads an untrusted Arrow IPC stream that is whole in memory. The
// caller releases the reader; batches share raw's memory and are to be checked
// (CheckBatch, DecodeManifest) before use.
func NewIPCReader(raw []byte) (*ipc.Reader, error) {
	return ipc.NewReaderFromMessageReader(&messages{rest: raw}, ipc.WithAllocator(NewLimitedAllocator()))
}

// messages cuts a stream into messages and checks each, in place of the
// library's reader, which allocates whatever a length says.
type messages struct{ rest []byte }

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
	body, err := CheckMessage(header)
	if err != nil {
		return nil, err
	}
	if body < 0 || body > int64(len(m.rest)) {
		return nil, io.ErrUnexpectedEOF
	}
	msg := ipc.NewMessage(memory.NewBufferBytes(header), memory.NewBufferBytes(m.rest[:body]))
	m.rest = m.rest[body:]
	return msg, nil
}

// NewFlightReader reads an untrusted Flight stream like flight.NewRecordReader.
// Batches are to be checked before use if they are used as raw memory.
func NewFlightReader(s flight.DataStreamReader) (*flight.Reader, error) {
	return flight.NewRecordReader(checkedStream{s}, ipc.WithAllocator(NewLimitedAllocator()))
}

type checkedStream struct{ flight.DataStreamReader }

// Recv checks the message's header on its way.
func (s checkedStream) Recv() (*flight.FlightData, error) {
	d, err := s.DataStreamReader.Recv()
	if err == nil && len(d.GetDataHeader()) > 0 {
		_, err = CheckMessage(d.GetDataHeader())
	}
	if err != nil {
		return nil, err
	}
	return d, nil
}
