package flightsqlserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/flight/flightsql"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobresult"
)

// pollWait is how long a poll waits for the end of a job before it says how far it is.
const pollWait = 2 * time.Second

// service is what the library asks.
type service struct {
	flightsql.BaseServer
	cfg     Config
	flight  *flightread.Client
	answers answers
	readers chan struct{}
	// life ends when the server closes.
	life context.Context //nolint:containedctx // see above
	end  context.CancelCauseFunc
	// infos are the numbers of what is known of the server.
	infos []uint32
}

// GetFlightInfoStatement implements flightsql.Server: it runs the statement.
func (s *service) GetFlightInfoStatement(ctx context.Context, q flightsql.StatementQuery, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	return s.info(ctx, q.GetQuery(), q.GetTransactionId(), d)
}

func (s *service) info(ctx context.Context, text string, transaction []byte, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	r, err := s.finish(ctx, text, transaction)
	if err != nil {
		return nil, err
	}
	return r.info(d)
}

// info says where the rows are: here, all of them in their order.
func (r *result) info(d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	ticket, err := flightsql.CreateStatementQueryTicket([]byte(r.handle))
	if err != nil {
		return nil, err
	}
	end := &flight.FlightEndpoint{Ticket: &flight.Ticket{Ticket: ticket}, ExpirationTime: timestamppb.New(r.expires)}
	return &flight.FlightInfo{
		FlightDescriptor: d, Schema: flight.SerializeSchema(r.schema, memory.DefaultAllocator), Endpoint: []*flight.FlightEndpoint{end},
		TotalRecords: r.records, TotalBytes: -1, Ordered: true, AppMetadata: []byte(r.job),
	}, nil
}

// DoGetStatement implements flightsql.Server: it reads and runs nothing.
func (s *service) DoGetStatement(ctx context.Context, t flightsql.StatementQueryTicket) (*arrow.Schema, <-chan flight.StreamChunk, error) {
	rows, err := s.rowsOf(ctx, string(t.GetStatementHandle()))
	if err != nil {
		return nil, nil, err
	}
	ch, err := s.stream(ctx, rows)
	return rows.Schema, ch, err
}

func (s *service) rowsOf(ctx context.Context, handle string) (*jobresult.Rows, error) {
	if strings.HasPrefix(handle, answerHandle) {
		raw, err := s.answers.get(handle)
		if err != nil {
			return nil, err
		}
		return jobresult.Inline(raw)
	}
	id, ok := strings.CutPrefix(handle, jobHandle)
	if !ok {
		return nil, notAHandle(handle)
	}
	st, err := s.cfg.Scheduler.GetJob(ctx, &firnpb.JobRequest{JobId: id})
	if err != nil {
		return nil, err
	}
	return jobresult.Of(s.flight, st)
}

func notAHandle(handle string) error {
	return &commit.Error{
		Code: commit.CodeFlightSQLHandle, Op: "read handle", Object: fmt.Sprintf("%.40q", handle), Cause: errors.New("it isn't one of this scheduler's"),
		Hint: "Send back what the scheduler gave, byte for byte.",
	}
}

// stream gives rows a batch at a time, when it is its turn. One who doesn't take them
// for as long as rows are kept has to run the statement again: others wait.
func (s *service) stream(ctx context.Context, rows *jobresult.Rows) (<-chan flight.StreamChunk, error) {
	turn, stop := context.WithTimeoutCause(ctx, s.cfg.ReaderWait, &commit.Error{
		Code: commit.CodeTooManyReaders, Op: "read rows", Cause: fmt.Errorf("%d clients read rows, and none has come to an end in %s", s.cfg.Readers, s.cfg.ReaderWait),
		Hint: "Read again in a while; close results that aren't read to their end.",
	})
	defer stop()
	select {
	case s.readers <- struct{}{}:
	case <-turn.Done():
		return nil, context.Cause(turn)
	}
	ch := make(chan flight.StreamChunk)
	go func() {
		defer close(ch)
		idle := time.NewTimer(s.cfg.Keep)
		defer idle.Stop()
		err := rows.Each(ctx, 0, func(b arrow.RecordBatch) (bool, error) {
			idle.Reset(s.cfg.Keep)
			b.Retain()
			select {
			case ch <- flight.StreamChunk{Data: b}:
				return true, nil
			case <-ctx.Done():
				b.Release()
				return false, context.Cause(ctx)
			case <-idle.C:
				b.Release()
				return false, &commit.Error{
					Code: commit.CodeResultLost, Op: "read rows", Cause: fmt.Errorf("the client took none for %s", s.cfg.Keep), Hint: "Run the statement again, and read to the end.",
				}
			}
		})
		<-s.readers
		if err == nil {
			return
		}
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "rows broken off", slog.Any("error", err))
		select {
		case ch <- flight.StreamChunk{Err: err}:
		case <-ctx.Done():
		}
	}()
	return ch, nil
}

// DoPutCommandStatementUpdate implements flightsql.Server: it runs the statement.
func (s *service) DoPutCommandStatementUpdate(ctx context.Context, u flightsql.StatementUpdate) (int64, error) {
	return s.update(ctx, u.GetQuery(), u.GetTransactionId())
}

// GetSchemaStatement implements flightsql.Server. It runs nothing that changes
// anything.
func (s *service) GetSchemaStatement(ctx context.Context, q flightsql.StatementQuery, _ *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	return s.schemaResult(ctx, q.GetQuery(), q.GetTransactionId())
}

// PollFlightInfoStatement implements flightsql.Server: it runs the statement and tells
// how far it is.
func (s *service) PollFlightInfoStatement(ctx context.Context, q flightsql.StatementQuery, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	return s.poll(ctx, q.GetQuery(), q.GetTransactionId(), d)
}

func (s *service) poll(ctx context.Context, text string, transaction []byte, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	st, err := read(text, transaction)
	if err != nil {
		return nil, err
	}
	t, err := s.run(ctx, st)
	if err != nil {
		return nil, err
	}
	if job := t.resp.GetJob(); job != nil {
		return s.pollInfo(job, d)
	}
	r, err := s.answerOf(t.resp.GetRowsIpc())
	if err != nil {
		return nil, err
	}
	info, err := r.info(d)
	return &flight.PollInfo{Info: info}, err
}

// PollFlightInfo implements flightsql.Server. Its descriptor is one that an earlier
// poll gave.
func (s *service) PollFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	handle, err := handleOf(d.GetCmd())
	if err != nil {
		return nil, err
	}
	id, ok := strings.CutPrefix(handle, jobHandle)
	if !ok {
		return nil, notAHandle(handle)
	}
	st, err := s.cfg.Scheduler.GetJob(ctx, &firnpb.JobRequest{JobId: id})
	if err != nil {
		return nil, err
	}
	limited, stop := context.WithTimeout(ctx, pollWait)
	defer stop()
	if st, err = s.await(limited, st); err != nil && limited.Err() == nil {
		return nil, err
	}
	return s.pollInfo(st, d)
}

// handleOf is the handle in a ticket.
func handleOf(raw []byte) (string, error) {
	t, err := flightsql.GetStatementQueryTicket(&flight.Ticket{Ticket: raw})
	if err != nil {
		return "", notAHandle(string(raw))
	}
	return string(t.GetStatementHandle()), nil
}

// pollInfo tells how far a job is. The info of one that runs has no endpoint yet; its
// metadata names the job, for who wants to cancel it.
func (s *service) pollInfo(st *firnpb.JobStatus, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	if !jobresult.Settled(st) {
		again, err := flightsql.CreateStatementQueryTicket([]byte(jobHandle + st.GetJobId()))
		if err != nil {
			return nil, err
		}
		progress := min(st.GetPercentComplete(), 99) / 100
		return &flight.PollInfo{
			Info:             &flight.FlightInfo{FlightDescriptor: d, TotalRecords: -1, TotalBytes: -1, Ordered: true, AppMetadata: []byte(st.GetJobId())},
			FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: again}, Progress: &progress,
		}, nil
	}
	if err := jobresult.Outcome(st); err != nil {
		return nil, err
	}
	r, err := s.resultOf(st)
	if err != nil {
		return nil, err
	}
	info, err := r.info(d)
	done := 1.0
	return &flight.PollInfo{Info: info, Progress: &done}, err
}

// CancelFlightInfo implements flightsql.Server. A job whose commit is on its way can't
// be cancelled, and one that has ended neither.
func (s *service) CancelFlightInfo(ctx context.Context, r *flight.CancelFlightInfoRequest) (flight.CancelFlightInfoResult, error) {
	id := string(r.GetInfo().GetAppMetadata())
	if ends := r.GetInfo().GetEndpoint(); id == "" && len(ends) > 0 {
		handle, err := handleOf(ends[0].GetTicket().GetTicket())
		if err != nil {
			return flight.CancelFlightInfoResult{}, err
		}
		if strings.HasPrefix(handle, answerHandle) {
			return flight.CancelFlightInfoResult{Status: flight.CancelStatusNotCancellable}, nil
		}
		id, _ = strings.CutPrefix(handle, jobHandle)
	}
	if id == "" {
		return flight.CancelFlightInfoResult{}, notAHandle("")
	}
	resp, err := s.cfg.Scheduler.CancelJob(ctx, &firnpb.JobRequest{JobId: id})
	if err != nil {
		return flight.CancelFlightInfoResult{}, err
	}
	if st := resp.GetJob(); resp.GetAnswer() == "cancelled" || st.GetState() == "cancelled" && st.GetCommit() == string(commit.CommitNone) {
		return flight.CancelFlightInfoResult{Status: flight.CancelStatusCancelled}, nil
	}
	return flight.CancelFlightInfoResult{Status: flight.CancelStatusNotCancellable}, nil
}

// BeginTransaction implements flightsql.Server.
func (*service) BeginTransaction(context.Context, flightsql.ActionBeginTransactionRequest) ([]byte, error) {
	return nil, refused("begin transaction", "Firn has no transactions", "Each statement commits by itself; turn the client's autocommit on.")
}

// SetSessionOptions implements flightsql.Server.
func (*service) SetSessionOptions(context.Context, *flight.SetSessionOptionsRequest) (*flight.SetSessionOptionsResult, error) {
	return nil, refused("set session options", "calls have no session", "Send the headers "+HeaderCatalog+", "+HeaderNamespace+" and "+HeaderTimeZone+" with each call.")
}
