package flightsqltest

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Schema are the columns of every query: the execution, the endpoint, the number of
// the row among those of all endpoints, and a text.
var Schema = arrow.NewSchema([]arrow.Field{
	{Name: "execution", Type: arrow.PrimitiveTypes.Int64},
	{Name: "endpoint", Type: arrow.PrimitiveTypes.Int64},
	{Name: "n", Type: arrow.PrimitiveTypes.Int64},
	{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

// Server is the engine. Its fields are set before it is served.
type Server struct {
	flight.BaseFlightServer

	// Endpoints is how many parts an execution gives, as many rows as Rows in each, in
	// batches of BatchRows (1,000). EndpointsOf, if it isn't nil, says how many for
	// each execution.
	Endpoints, Rows, BatchRows int
	EndpointsOf                func(execution int) int
	// Width is how many bytes the text of a row has; 0 for a few.
	Width int
	// SingleUse: a ticket is gone once its stream was begun.
	SingleUse bool
	// Expire is how long a ticket holds, of the first execution only with ExpireFirst;
	// Renews says that it can be renewed.
	Expire      time.Duration
	ExpireFirst bool
	Renews      bool
	// Polls is how often PollFlightInfo says that there is more to come; below 0 the
	// server hasn't got it.
	Polls int
	// Block, if it isn't nil, holds GetFlightInfo until it is closed or the caller
	// goes; see Left.
	Block chan struct{}
	// NoSchema leaves the schema out of the FlightInfo, NoGetSchema hasn't got
	// GetSchema.
	NoSchema, NoGetSchema bool
	// Locations are those of an endpoint; nil for none. Of is the engine whose tickets
	// this server serves, as one of those; nil for its own.
	Locations func(endpoint int) []string
	Of        *Server
	// Ordered says that the endpoints come in the order of the rows.
	Ordered bool
	// Token, or User and Password, let callers in; all are let in without them. NoLogin
	// hasn't got Handshake, so that user and password are shown with each call.
	Token, User, Password string
	NoLogin               bool
	// Records and Bytes are what the FlightInfo says; NoTotals for -1 each.
	Records, Bytes int64
	NoTotals       bool
	// NoCancel hasn't got CancelFlightInfo.
	NoCancel bool
	// Refuse is what a query gets instead of an answer.
	Refuse error
	// Info changes what is answered.
	Info func(*flight.FlightInfo)
	// Get, if it isn't nil, decides about a stream: how many batches it gives before
	// it fails with the error; with none it goes on.
	Get func(r Reading) (after int, err error)
	// Batch, if it isn't nil, makes the batches.
	Batch func(r Reading, from, to int) arrow.RecordBatch
	// Pace is called before each batch.
	Pace func(ctx context.Context, r Reading, batch int)

	executions atomic.Int64
	logins     atomic.Int64

	mu        sync.Mutex
	used      map[string]int
	expires   map[string]time.Time
	cancelled []string
	renewed   int
	left      int
	shows     string
	polled    map[string]int
	queries   []string
	// changed is closed, and replaced, with each change of what is above.
	changed chan struct{}
}

// note changes what the server remembers.
func (s *Server) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	if s.changed != nil {
		close(s.changed)
	}
	s.changed = make(chan struct{})
}

// Await waits until what the server remembers is as wanted, or ctx ends.
func (s *Server) Await(ctx context.Context, wanted func() bool) error {
	for {
		s.mu.Lock()
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		if wanted() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Reading is one stream.
type Reading struct {
	Execution, Endpoint int
	// Read counts the streams of this ticket, from 1.
	Read int
}

// Start serves on the loopback interface and gives the address. stop ends it at once.
func (s *Server) Start(opts ...grpc.ServerOption) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), s.Serve(l, opts...), nil
}

// Serve serves on a listener; stop ends it at once.
func (s *Server) Serve(l net.Listener, opts ...grpc.ServerOption) (stop func()) {
	const most = 1 << 30
	g := grpc.NewServer(append([]grpc.ServerOption{grpc.MaxSendMsgSize(most), grpc.MaxRecvMsgSize(most)}, opts...)...)
	flight.RegisterFlightServiceServer(g, s)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.Serve(l)
	}()
	return func() {
		g.Stop()
		<-ended
	}
}

// Forget has the server know no ticket any more, as one that has started again.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for t := range s.expires {
		s.expires[t] = time.Unix(1, 0)
	}
}

// Executions is how many queries ran.
func (s *Server) Executions() int { return int(s.executions.Load()) }

// Logins is how often a user and a password were taken.
func (s *Server) Logins() int { return int(s.logins.Load()) }

// Cancelled are the executions that were cancelled, and how.
func (s *Server) Cancelled() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.cancelled...)
}

// Renewed is how many tickets were renewed.
func (s *Server) Renewed() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewed
}

// Queries are the texts that came.
func (s *Server) Queries() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.queries...)
}

// EndSessions has the server take none of the tokens any more that it handed out.
func (s *Server) EndSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shows = ""
}

// Handshake implements flight.FlightServer.
func (s *Server) Handshake(stream flight.FlightService_HandshakeServer) error {
	if s.NoLogin || s.User == "" {
		return status.Error(codes.Unimplemented, "there is no handshake")
	}
	if !s.basic(stream.Context()) {
		return status.Error(codes.Unauthenticated, "wrong user or password")
	}
	s.mu.Lock()
	s.shows = fmt.Sprintf("Bearer session-%d-of-%s", s.logins.Add(1), s.User)
	shows := s.shows
	s.mu.Unlock()
	return stream.SendHeader(metadata.Pairs("authorization", shows))
}

func authorization(ctx context.Context) string {
	md, _ := metadata.FromIncomingContext(ctx)
	return strings.Join(md.Get("authorization"), "|")
}

func (s *Server) basic(ctx context.Context) bool {
	return authorization(ctx) == "Basic "+base64.StdEncoding.EncodeToString([]byte(s.User+":"+s.Password))
}

func (s *Server) letIn(ctx context.Context) error {
	s.mu.Lock()
	shows := s.shows
	s.mu.Unlock()
	switch {
	case s.Token != "" && authorization(ctx) != "Bearer "+s.Token,
		s.User != "" && s.NoLogin && !s.basic(ctx),
		s.User != "" && !s.NoLogin && (shows == "" || authorization(ctx) != shows):
		return status.Error(codes.Unauthenticated, "who are you?")
	}
	return nil
}

func (s *Server) query(d *flight.FlightDescriptor) error {
	var a anypb.Any
	var q pb.CommandStatementQuery
	if proto.Unmarshal(d.GetCmd(), &a) != nil || a.UnmarshalTo(&q) != nil {
		return status.Error(codes.InvalidArgument, "not a query")
	}
	s.note(func() { s.queries = append(s.queries, q.GetQuery()) })
	return nil
}

// GetSchema implements flight.FlightServer.
func (s *Server) GetSchema(ctx context.Context, _ *flight.FlightDescriptor) (*flight.SchemaResult, error) {
	if s.NoGetSchema {
		return nil, status.Error(codes.Unimplemented, "there is no GetSchema")
	}
	return &flight.SchemaResult{Schema: flight.SerializeSchema(Schema, memory.DefaultAllocator)}, s.letIn(ctx)
}

// GetFlightInfo implements flight.FlightServer.
func (s *Server) GetFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.FlightInfo, error) {
	if err := s.letIn(ctx); err != nil {
		return nil, err
	}
	if err := s.query(d); err != nil {
		return nil, err
	}
	if s.Refuse != nil {
		return nil, s.Refuse
	}
	if s.Block != nil {
		select {
		case <-s.Block:
		case <-ctx.Done():
			s.note(func() { s.left++ })
			return nil, ctx.Err()
		}
	}
	return s.info(int(s.executions.Add(1)), d), nil
}

func (s *Server) info(execution int, d *flight.FlightDescriptor) *flight.FlightInfo {
	n := s.Endpoints
	if s.EndpointsOf != nil {
		n = s.EndpointsOf(execution)
	}
	info := &flight.FlightInfo{
		FlightDescriptor: d, TotalRecords: s.Records, TotalBytes: s.Bytes, AppMetadata: []byte(strconv.Itoa(execution)),
		Ordered: s.Ordered, Schema: flight.SerializeSchema(Schema, memory.DefaultAllocator),
	}
	if s.NoTotals {
		info.TotalRecords, info.TotalBytes = -1, -1
	}
	if s.NoSchema {
		info.Schema = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.expires == nil {
		s.expires, s.used = map[string]time.Time{}, map[string]int{}
	}
	for i := range n {
		ticket := fmt.Sprintf("%d/%d", execution, i)
		ep := &flight.FlightEndpoint{Ticket: &flight.Ticket{Ticket: []byte(ticket)}}
		s.expires[ticket] = time.Time{}
		if s.Expire > 0 && (execution == 1 || !s.ExpireFirst) {
			s.expires[ticket] = time.Now().Add(s.Expire)
			ep.ExpirationTime = timestamppb.New(s.expires[ticket])
		}
		if s.Locations != nil {
			for _, l := range s.Locations(i) {
				ep.Location = append(ep.Location, &flight.Location{Uri: l})
			}
		}
		info.Endpoint = append(info.Endpoint, ep)
	}
	if s.Info != nil {
		s.Info(info)
	}
	return info
}

// PollFlightInfo implements flight.FlightServer.
func (s *Server) PollFlightInfo(ctx context.Context, d *flight.FlightDescriptor) (*flight.PollInfo, error) {
	if s.Polls < 0 {
		return nil, status.Error(codes.Unimplemented, "there is no PollFlightInfo")
	}
	if err := s.letIn(ctx); err != nil {
		return nil, err
	}
	id := string(d.GetCmd())
	s.mu.Lock()
	left, again := s.polled[id]
	s.mu.Unlock()
	var execution int
	if again {
		execution, _ = strconv.Atoi(strings.TrimPrefix(id, "poll "))
	} else {
		if err := s.query(d); err != nil {
			return nil, err
		}
		if s.Refuse != nil {
			return nil, s.Refuse
		}
		execution, left = int(s.executions.Add(1)), s.Polls
		id = fmt.Sprintf("poll %d", execution)
	}
	p := &flight.PollInfo{Info: s.info(execution, d)}
	if left > 0 {
		p.Info.Endpoint = p.Info.Endpoint[:0]
		p.FlightDescriptor = &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte(id)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polled == nil {
		s.polled = map[string]int{}
	}
	s.polled[id] = left - 1
	return p, nil
}

// DoAction implements flight.FlightServer.
func (s *Server) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) error {
	if err := s.letIn(stream.Context()); err != nil {
		return err
	}
	var answer proto.Message
	switch a.GetType() {
	case flight.CancelFlightInfoActionType:
		var r flight.CancelFlightInfoRequest
		if s.NoCancel || proto.Unmarshal(a.GetBody(), &r) != nil {
			return status.Error(codes.Unimplemented, "there is no such action")
		}
		s.noteCancelled("CancelFlightInfo", r.GetInfo())
		answer = &flight.CancelFlightInfoResult{Status: flight.CancelStatusCancelled}
	case "CancelQuery":
		var cmd anypb.Any
		var r pb.ActionCancelQueryRequest //nolint:staticcheck // what engines had before
		info := &flight.FlightInfo{}
		if proto.Unmarshal(a.GetBody(), &cmd) != nil || cmd.UnmarshalTo(&r) != nil || proto.Unmarshal(r.GetInfo(), info) != nil {
			return status.Error(codes.InvalidArgument, "not a query to cancel")
		}
		s.noteCancelled("CancelQuery", info)
		answer = &pb.ActionCancelQueryResult{} //nolint:staticcheck // as above
	case flight.RenewFlightEndpointActionType:
		var r flight.RenewFlightEndpointRequest
		if !s.Renews || proto.Unmarshal(a.GetBody(), &r) != nil {
			return status.Error(codes.Unimplemented, "there is no such action")
		}
		ep := r.GetEndpoint()
		s.note(func() {
			ticket := string(ep.GetTicket().GetTicket())
			s.expires[ticket] = time.Now().Add(s.Expire)
			ep.ExpirationTime = timestamppb.New(s.expires[ticket])
			s.renewed++
		})
		answer = ep
	default:
		return status.Error(codes.Unimplemented, "there is no such action")
	}
	body, err := proto.Marshal(answer)
	if err != nil {
		return err
	}
	return stream.Send(&flight.Result{Body: body})
}

func (s *Server) noteCancelled(how string, info *flight.FlightInfo) {
	s.note(func() {
		s.cancelled = append(s.cancelled, fmt.Sprintf("%s %s with %d endpoints", how, info.GetAppMetadata(), len(info.GetEndpoint())))
	})
}

// DoGet implements flight.FlightServer.
func (s *Server) DoGet(t *flight.Ticket, stream flight.FlightService_DoGetServer) error {
	if err := s.letIn(stream.Context()); err != nil {
		return err
	}
	r, err := s.take(string(t.GetTicket()))
	if err != nil {
		return err
	}
	after := -1
	if s.Get != nil {
		if after, err = s.Get(r); err == nil {
			after = -1
		}
	}
	if after == 0 {
		return err
	}
	step := s.BatchRows
	if step == 0 {
		step = 1000
	}
	rows := s.Batch
	if rows == nil {
		rows = s.rows
	}
	var w *flight.Writer
	for batch, from := 0, 0; from < s.Rows || batch == 0; batch, from = batch+1, from+step {
		if batch == after {
			return err
		}
		if s.Pace != nil {
			s.Pace(stream.Context(), r, batch)
		}
		b := rows(r, from, min(from+step, s.Rows))
		if w == nil {
			w = flight.NewRecordWriter(stream, ipc.WithSchema(b.Schema()))
		}
		werr := w.Write(b)
		b.Release()
		if werr != nil {
			return werr
		}
	}
	if after > 0 {
		return err
	}
	return w.Close()
}

// rows are the rows from ≤ i < to of an endpoint.
func (s *Server) rows(r Reading, from, to int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, Schema)
	defer b.Release()
	for i := from; i < to; i++ {
		b.Field(0).(*array.Int64Builder).Append(int64(r.Execution))
		b.Field(1).(*array.Int64Builder).Append(int64(r.Endpoint))
		b.Field(2).(*array.Int64Builder).Append(int64(r.Endpoint*s.Rows + i))
		b.Field(3).(*array.StringBuilder).Append("row " + strconv.Itoa(i) + strings.Repeat(".", s.Width))
	}
	return b.NewRecordBatch()
}
