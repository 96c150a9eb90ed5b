package flightsql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	pb "github.com/apache/arrow-go/v18/arrow/flight/gen/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/plan"
)

const (
	// maxEndpoints bounds what an engine may announce.
	maxEndpoints = 100_000
	// pollFast is what a poll takes at least before the next one may follow at once.
	pollFast = time.Second
	// cancelTimeout bounds what is done for a query that nobody waits for.
	cancelTimeout = 5 * time.Second
)

// Execution is one run of a query.
type Execution struct {
	// Columns are what it gives.
	Columns []plan.Column
	// Endpoints are its parts, in the engine's order.
	Endpoints []plan.SourceFile
	// Info and Bytes are plan.FlightSource's.
	Info  []byte
	Bytes int64
}

// Execute runs a query and waits until all of its endpoints are known. One that isn't
// waited for any more is cancelled.
func (e *Engine) Execute(ctx context.Context, query string) (*Execution, error) {
	desc, err := descriptor(query)
	if err != nil {
		return nil, err
	}
	info, err := e.run(ctx, desc)
	if err != nil {
		return nil, e.asking(ctx, "run the query at", err)
	}
	x, err := e.executed(ctx, info, desc)
	if err != nil {
		e.Cancel(ctx, encodeInfo(info), endpointsOf(info, 0))
		return nil, err
	}
	return x, nil
}

func descriptor(query string) (*flight.FlightDescriptor, error) {
	cmd, err := anypb.New(&pb.CommandStatementQuery{Query: query})
	if err != nil {
		return nil, err
	}
	raw, err := proto.Marshal(cmd)
	return &flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: raw}, err
}

// run asks by PollFlightInfo, where the engine has it, so that no call has to stay
// open for as long as the query runs.
func (e *Engine) run(ctx context.Context, desc *flight.FlightDescriptor) (info *flight.FlightInfo, err error) {
	svc, err := e.home()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && info != nil {
			e.Cancel(ctx, encodeInfo(info), endpointsOf(info, 0))
			info = nil
		}
	}()
	next := desc
	for next != nil {
		began := time.Now()
		var p *flight.PollInfo
		err = e.retry(ctx, func() (err error) {
			p, err = svc.PollFlightInfo(e.show(ctx), next)
			return err
		})
		if status.Code(err) == codes.Unimplemented && info == nil {
			err = e.retry(ctx, func() (err error) {
				info, err = svc.GetFlightInfo(e.show(ctx), desc)
				return err
			})
			return info, err
		}
		if err != nil {
			return info, err
		}
		if p.GetInfo() != nil {
			info = p.GetInfo()
		}
		if next = p.GetFlightDescriptor(); next == nil {
			break
		}
		// A server holds the call until there is news; one that doesn't isn't asked
		// without a pause.
		if left := pollFast - time.Since(began); left > 0 && !sleep(ctx, min(left, 5*e.pause)) {
			return info, context.Cause(ctx)
		}
	}
	if info == nil {
		return nil, errors.New("the engine ended the query without saying what it gives")
	}
	return info, nil
}

// executed reads what the engine answered, and refuses endpoints that can't be read.
func (e *Engine) executed(ctx context.Context, info *flight.FlightInfo, desc *flight.FlightDescriptor) (*Execution, error) {
	if n := len(info.GetEndpoint()); n > maxEndpoints {
		return nil, &commit.Error{
			Code: commit.CodeFlightTooLarge, Op: "take the answer of", Object: "source " + e.access.Name,
			Cause: fmt.Errorf("it announces %d endpoints; at most %d are taken", n, maxEndpoints),
		}
	}
	x := &Execution{Info: encodeInfo(info), Bytes: -1}
	if n := info.GetTotalBytes(); n >= 0 && n < 1<<50 && (n > 0 || info.GetTotalRecords() == 0) {
		x.Bytes = n
	}
	x.Endpoints = endpointsOf(info, x.Bytes)
	for _, f := range x.Endpoints {
		if _, _, err := e.access.places(f.Endpoint.Locations); err != nil {
			return x, err
		}
	}
	schema, err := e.schema(ctx, info, desc, x.Endpoints)
	if err != nil {
		return x, err
	}
	x.Columns, err = e.access.columns(schema)
	return x, err
}

// endpointsOf are an answer's parts, among which its bytes are spread.
func endpointsOf(info *flight.FlightInfo, bytes int64) []plan.SourceFile {
	out := make([]plan.SourceFile, 0, len(info.GetEndpoint()))
	each := max(bytes, 0) / int64(len(info.GetEndpoint())+1)
	for i, ep := range info.GetEndpoint() {
		f := plan.SourceFile{Path: fmt.Sprintf("endpoint %d", i), Rows: -1, Size: each, Endpoint: endpointOf(ep)}
		out = append(out, f)
	}
	return out
}

func endpointOf(ep *flight.FlightEndpoint) *plan.FlightEndpoint {
	out := &plan.FlightEndpoint{Ticket: ep.GetTicket().GetTicket(), Metadata: ep.GetAppMetadata()}
	for _, l := range ep.GetLocation() {
		out.Locations = append(out.Locations, l.GetUri())
	}
	if t := ep.GetExpirationTime(); t.IsValid() && t.GetSeconds() > 0 {
		out.ExpiresMS = t.AsTime().UnixMilli()
	}
	return out
}

func protoOf(ep *plan.FlightEndpoint) *flight.FlightEndpoint {
	out := &flight.FlightEndpoint{Ticket: &flight.Ticket{Ticket: ep.Ticket}, AppMetadata: ep.Metadata}
	for _, l := range ep.Locations {
		out.Location = append(out.Location, &flight.Location{Uri: l})
	}
	if ep.ExpiresMS > 0 {
		out.ExpirationTime = timestamppb.New(time.UnixMilli(ep.ExpiresMS))
	}
	return out
}

// encodeInfo encodes what cancels a query, without what is kept elsewhere.
func encodeInfo(info *flight.FlightInfo) []byte {
	bare, _ := proto.Clone(info).(*flight.FlightInfo)
	bare.Endpoint, bare.Schema = nil, nil
	raw, err := proto.Marshal(bare)
	if err != nil {
		return nil // then the query can't be cancelled, and ends by itself
	}
	return raw
}

// schema is the one of the answer or, where that has none, the one that the engine
// gives for the query, or else that of the first endpoint's stream.
func (e *Engine) schema(ctx context.Context, info *flight.FlightInfo, desc *flight.FlightDescriptor, endpoints []plan.SourceFile) (*arrow.Schema, error) {
	raw := info.GetSchema()
	if len(raw) == 0 {
		svc, err := e.home()
		if err != nil {
			return nil, err
		}
		var res *flight.SchemaResult
		err = e.retry(ctx, func() (err error) {
			res, err = svc.GetSchema(e.show(ctx), desc)
			return err
		})
		if err == nil {
			raw = res.GetSchema()
		} else if cause := wire.Ended(ctx); cause != nil {
			return nil, cause
		}
	}
	if len(raw) == 0 && len(endpoints) > 0 {
		return e.streamSchema(ctx, endpoints[0])
	}
	return e.access.decodeSchema(raw)
}

func (a Access) decodeSchema(raw []byte) (schema *arrow.Schema, err error) {
	defer func() {
		if p := recover(); p != nil { // the bytes come from a server
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			err = &commit.Error{
				Code: commit.CodeFlightSchema, Op: "take the answer of", Object: "source " + a.Name,
				Cause: fmt.Errorf("it doesn't say which columns the query gives: %w", err),
				Hint:  "The engine has to give an Arrow schema in its FlightInfo, by GetSchema, or in the stream of an endpoint.",
			}
		}
	}()
	rd, err := wire.NewIPCReader(raw)
	if err != nil {
		return nil, err
	}
	defer rd.Release()
	return rd.Schema(), nil
}

// Cancel has the engine end a query that nobody waits for, if it can. It takes some
// seconds at most, and goes on when ctx has ended.
func (e *Engine) Cancel(ctx context.Context, info []byte, endpoints []plan.SourceFile) {
	full := &flight.FlightInfo{}
	if len(info) == 0 || proto.Unmarshal(info, full) != nil {
		return
	}
	for _, f := range endpoints {
		if f.Endpoint != nil {
			full.Endpoint = append(full.Endpoint, protoOf(f.Endpoint))
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	body, err := proto.Marshal(&flight.CancelFlightInfoRequest{Info: full})
	if err != nil {
		return
	}
	if _, err = e.act(ctx, flight.CancelFlightInfoActionType, body); err == nil {
		return
	}
	// What engines had before.
	raw, err := proto.Marshal(full)
	if err != nil {
		return
	}
	if cmd, err := anypb.New(&pb.ActionCancelQueryRequest{Info: raw}); err == nil { //nolint:staticcheck // deprecated, and all that some engines have
		if body, err = proto.Marshal(cmd); err == nil {
			_, _ = e.act(ctx, "CancelQuery", body)
		}
	}
}

// Renew has the engine keep a part of a result for longer, and gives the part as it
// is read from then on. ok is false when the engine doesn't do that.
func (e *Engine) Renew(ctx context.Context, f plan.SourceFile) (_ plan.SourceFile, ok bool, err error) {
	body, err := proto.Marshal(&flight.RenewFlightEndpointRequest{Endpoint: protoOf(f.Endpoint)})
	if err != nil {
		return f, false, err
	}
	var raw []byte
	err = e.retry(ctx, func() (err error) {
		raw, err = e.act(ctx, flight.RenewFlightEndpointActionType, body)
		return err
	})
	switch status.Code(err) {
	case codes.OK:
	case codes.Unimplemented, codes.InvalidArgument:
		return f, false, nil
	default:
		return f, true, e.asking(ctx, "renew a part of the result at", err)
	}
	renewed := &flight.FlightEndpoint{}
	if err := proto.Unmarshal(raw, renewed); err != nil {
		return f, false, fmt.Errorf("the renewed endpoint can't be read: %w", err)
	}
	own := endpointOf(renewed)
	if len(own.Ticket) == 0 {
		own.Ticket = slices.Clone(f.Endpoint.Ticket)
	}
	if _, _, err := e.access.places(own.Locations); err != nil {
		return f, false, err
	}
	f.Endpoint = own
	return f, true, nil
}

// act gives the first result of an action.
func (e *Engine) act(ctx context.Context, kind string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	svc, err := e.home()
	if err != nil {
		return nil, err
	}
	stream, err := svc.DoAction(e.show(ctx), &flight.Action{Type: kind, Body: body})
	if err != nil {
		return nil, err
	}
	res, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	return res.GetBody(), err
}
