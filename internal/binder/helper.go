package binder

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/executor/engine"
	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/plan"
)

// Argument is the first argument of a helper's command line, by which the process
// knows what it is before anything else runs in it.
const Argument = "binding-helper"

// Main is the helper's process. It answers on out what is asked on in until that
// ends, and gives the exit code.
func Main(in io.Reader, out, errs io.Writer) int {
	h, err := newHelper()
	if err != nil {
		_, _ = fmt.Fprintln(errs, err)
		return 1
	}
	defer h.close()
	if err := h.serve(in, out); err != nil {
		_, _ = fmt.Fprintln(errs, err)
		return 1
	}
	return 0
}

// helper answers one request at a time.
type helper struct {
	parser *duckdb.Parser
	engine *engine.Engine
}

// memory bounds DuckDB's in bytes, for parsing and for binding each.
const memory = 1 << 30

func newHelper() (*helper, error) {
	p, err := duckdb.NewParser()
	if err != nil {
		return nil, err
	}
	e, err := engine.New(engine.Config{Memory: memory})
	if err != nil {
		p.Close()
		return nil, err
	}
	return &helper{parser: p, engine: e}, nil
}

func (h *helper) close() {
	h.parser.Close()
	_ = h.engine.Close() // nothing of it is on a disk
}

// request is one frame that came in.
type request struct {
	kind    byte
	content []byte
	err     error
}

// serve answers until in ends. It reads ahead, so that a process whose scheduler
// has gone ends in the middle of a query.
func (h *helper) serve(in io.Reader, out io.Writer) error {
	requests := make(chan request)
	stop := make(chan struct{})
	defer close(stop)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		r := bufio.NewReaderSize(in, 64<<10)
		for {
			kind, content, err := readFrame(r)
			select {
			case requests <- request{kind, content, err}:
			case <-stop:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	w := bufio.NewWriterSize(out, 64<<10)
	for req := range requests {
		if errors.Is(req.err, io.EOF) {
			return nil
		}
		if req.err != nil {
			return req.err
		}
		kind, answer := h.answer(ctx, req.kind, req.content)
		if err := errors.Join(writeFrame(w, kind, answer), w.Flush()); err != nil {
			return err
		}
	}
	return nil
}

func (h *helper) answer(ctx context.Context, kind byte, content []byte) (byte, []byte) {
	answer, err := h.do(ctx, kind, content)
	if err == nil {
		return answered, answer
	}
	if e, ok := errors.AsType[*duckdb.ParseError](err); ok {
		return complained, append(binary.BigEndian.AppendUint64(nil, uint64(int64(e.Offset()))), e.Message...)
	}
	raw, merr := proto.Marshal(wire.TaskErrorToProto(err))
	if merr != nil { // it holds valid text only
		raw = nil
	}
	return failed, raw
}

func (h *helper) do(ctx context.Context, kind byte, content []byte) ([]byte, error) {
	switch kind {
	case opParse:
		return h.parser.ParseSelect(ctx, string(content))
	case opFormat:
		text, err := h.parser.FormatSelect(ctx, content)
		return []byte(text), err
	case opHello:
		return []byte(confinement()), nil
	case opBind:
		var req plan.ProbeRequest
		if err := json.Unmarshal(content, &req); err != nil {
			return nil, err
		}
		if LooksAtFiles(req) {
			return nil, errors.New("a query that looks at files isn't bound here")
		}
		res, err := h.engine.Probe(ctx, req)
		if err != nil {
			return nil, err
		}
		return json.Marshal(res)
	}
	return nil, fmt.Errorf("unknown request %q", kind)
}

// LooksAtFiles says whether binding a query takes a look at its sources, which
// only an executor can have.
func LooksAtFiles(req plan.ProbeRequest) bool {
	for _, s := range req.Sources {
		if !s.Kind.Known() {
			return true
		}
	}
	return false
}
