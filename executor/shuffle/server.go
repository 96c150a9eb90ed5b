package shuffle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Server serves a store's files over Arrow Flight: DoGet with a read ticket
// streams one output, and one that is still written as it grows; DoPut with an upload ticket, as the command of its
// descriptor, spools a client's stream. Nothing else is answered.
//
// Each call needs a ticket that the scheduler signed for this executor. Until
// the executor has the scheduler's key (SetVerifier), all are refused.
type Server struct {
	flight.BaseFlightServer
	store    *Store
	executor string
	logger   *slog.Logger
	compress bool
	verifier atomic.Pointer[wire.Verifier]
	// reads counts the DoGet calls that were served.
	reads atomic.Int64
	// reading and uploading are the calls that are being served.
	reading, uploading atomic.Int64
}

// Open says how many outputs are being read and how many streams uploaded.
func (s *Server) Open() (reading, uploading int64) { return s.reading.Load(), s.uploading.Load() }

// streams counts a call from its begin to the returned function.
func (s *Server) streams(open *atomic.Int64, direction string, err *error) func() {
	open.Add(1)
	return func() {
		open.Add(-1)
		if s.store.meter != nil {
			s.store.meter.Stream(direction, *err)
		}
	}
}

// NewServer makes the Flight service of an executor. compress sends batches as
// lz4.
func NewServer(store *Store, executor string, compress bool, logger *slog.Logger) *Server {
	return &Server{store: store, executor: executor, compress: compress, logger: logger}
}

// SetVerifier fixes, or replaces, the scheduler's key.
func (s *Server) SetVerifier(v *wire.Verifier) { s.verifier.Store(v) }

// Reads is how many outputs were asked for with a valid ticket.
func (s *Server) Reads() int64 { return s.reads.Load() }

// PutResult is the metadata of the one answer to an upload, as JSON.
type PutResult struct {
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
}

// ticket checks a ticket for a purpose. All that is wrong with one has the same
// answer, but a good ticket for another executor says that its data isn't here:
// an address may have passed from one executor to the next.
func (s *Server) ticket(raw []byte, purpose string) (*firnpb.Ticket, error) {
	v := s.verifier.Load()
	if v == nil {
		return nil, status.Error(codes.Unavailable, "the executor isn't registered yet")
	}
	t, err := v.Verify(raw, time.Now())
	if err != nil || t.GetPurpose() != purpose || !attemptOf(t).valid() {
		return nil, status.Error(codes.PermissionDenied, wire.ErrTicket.Error())
	}
	if t.GetExecutorId() != s.executor {
		return nil, status.Error(codes.NotFound, "no such shuffle output on this executor")
	}
	return t, nil
}

func attemptOf(t *firnpb.Ticket) Attempt {
	return Attempt{Job: t.GetJobId(), Stage: int(t.GetStage()), Task: int(t.GetTask()), ID: t.GetAttemptId()}
}

// DoGet implements flight.FlightServer.
func (s *Server) DoGet(raw *flight.Ticket, stream flight.FlightService_DoGetServer) (err error) {
	defer s.streams(&s.reading, "read", &err)()
	defer s.recovered("DoGet", &err)
	t, err := s.ticket(raw.GetTicket(), wire.PurposeRead)
	if err != nil {
		return err
	}
	s.reads.Add(1)
	in, err := s.store.read(stream.Context(), attemptOf(t), int(t.GetOutput()), part{follow: t.GetFollow(), first: t.GetFirstRow(), end: t.GetEndRow()})
	if err != nil {
		return unread(stream.Context(), err)
	}
	defer in.Close()
	opts := []ipc.Option{ipc.WithSchema(in.Schema())}
	if s.compress {
		opts = append(opts, ipc.WithLZ4())
	}
	w := flight.NewRecordWriter(stream, opts...)
	for {
		b, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return unread(stream.Context(), err)
		}
		err = w.Write(b)
		b.Release()
		if err != nil {
			return err
		}
	}
	return w.Close()
}

// unread is the answer where an output can't be read, or not to its end.
func unread(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, errGone):
		return status.Error(codes.NotFound, errGone.Error())
	case errors.Is(err, fs.ErrNotExist):
		return status.Error(codes.NotFound, "no such shuffle output on this executor")
	default:
		return wire.ToStatus(err)
	}
}

// DoPut implements flight.FlightServer. The stream counts only when the client
// ended it: one that breaks off leaves nothing.
func (s *Server) DoPut(stream flight.FlightService_DoPutServer) (err error) {
	defer s.streams(&s.uploading, "upload", &err)()
	defer s.recovered("DoPut", &err)
	r, err := wire.NewFlightReader(stream)
	if err != nil {
		return badStream(stream.Context(), err)
	}
	defer r.Release()
	t, err := s.ticket(r.LatestFlightDescriptor().GetCmd(), wire.PurposeUpload)
	if err != nil {
		return err
	}
	a := attemptOf(t)
	if s.store.get(a) != nil {
		return wire.ToStatus(&commit.Error{
			Code: commit.CodeUploadExists, Op: "upload rows to", Object: a.Job,
			Cause: errors.New("its rows are here already"),
		})
	}
	w, err := s.store.NewWriter(a, r.Schema(), WriterOptions{Compress: s.compress})
	if err != nil {
		return wire.ToStatus(err)
	}
	defer w.Abort()
	ctx := stream.Context()
	for {
		b, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return badStream(ctx, err)
		}
		if err := wire.CheckBatch(b); err != nil {
			return status.Error(codes.InvalidArgument, "uploaded stream: "+err.Error())
		}
		if err := w.Write(ctx, b); err != nil {
			return wire.ToStatus(err)
		}
	}
	out, err := w.Commit(ctx)
	if err != nil {
		return wire.ToStatus(err)
	}
	meta, err := json.Marshal(PutResult{Rows: out[0].Rows, Bytes: out[0].Bytes})
	if err != nil {
		return wire.ToStatus(err)
	}
	s.logger.LogAttrs(ctx, slog.LevelInfo, "upload spooled",
		slog.String("upload_id", a.Job), slog.Int64("rows", out[0].Rows), slog.Int64("bytes", out[0].Bytes))
	return stream.Send(&flight.PutResult{AppMetadata: meta})
}

// badStream tells a broken connection from a stream that isn't Arrow.
func badStream(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.InvalidArgument, "uploaded stream: "+err.Error())
}

// recovered makes a panic of a call its error. A stream from outside must not
// end the executor.
func (s *Server) recovered(call string, err *error) {
	if p := recover(); p != nil {
		s.logger.Error("flight call panicked", slog.String("call", call), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
		*err = status.Error(codes.Internal, fmt.Sprintf("%s: internal fault: %v", call, p))
	}
}
