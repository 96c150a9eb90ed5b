package flightsqlserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Headers of a call, beside authorization. Clients set them for one call or for all of
// a connection.
const (
	// HeaderKey is the statement's idempotency key.
	HeaderKey = "firn-idempotency-key"
	// HeaderCatalog and HeaderNamespace are where names that aren't full are looked up;
	// a namespace's parts are separated by dots.
	HeaderCatalog   = "firn-catalog"
	HeaderNamespace = "firn-namespace"
	// HeaderTimeZone is the session's, such as Europe/Vienna.
	HeaderTimeZone = "firn-time-zone"
)

const (
	// maxStatement bounds a statement's text, in bytes, and maxKey an idempotency key.
	maxStatement = 1 << 20
	maxKey       = 512
)

// header is the value of a header that a call may carry once.
func header(ctx context.Context, name string, most int) (string, error) {
	switch values := metadata.ValueFromIncomingContext(ctx, name); {
	case len(values) > 1:
		return "", badRequest("read header "+name, fmt.Errorf("it is there %d times", len(values)))
	case len(values) == 1 && len(values[0]) > most:
		return "", badRequest("read header "+name, fmt.Errorf("it has %d bytes; at most %d are taken", len(values[0]), most))
	case len(values) == 1 && !utf8.ValidString(values[0]):
		return "", badRequest("read header "+name, errors.New("it isn't UTF-8"))
	case len(values) == 1:
		return values[0], nil
	}
	return "", nil
}

// request is a statement as the scheduler takes it, with what the call's headers say.
func request(ctx context.Context, text string) (*firnpb.ExecuteRequest, error) {
	r := &firnpb.ExecuteRequest{ProtocolVersion: wire.ProtocolVersion, Sql: text, Session: &firnpb.Session{}}
	var namespace string
	for _, h := range []struct {
		name  string
		most  int
		value *string
	}{{HeaderKey, maxKey, &r.IdempotencyKey}, {HeaderCatalog, 1000, &r.Session.Catalog}, {HeaderNamespace, 1000, &namespace}, {HeaderTimeZone, 100, &r.TimeZone}} {
		var err error
		if *h.value, err = header(ctx, h.name, h.most); err != nil {
			return nil, err
		}
	}
	if namespace != "" {
		r.Session.Namespace = strings.Split(namespace, ".")
	}
	return r, nil
}

func badRequest(op string, cause error) error {
	return &commit.Error{Code: commit.CodeBadRequest, Op: op, Cause: cause, Hint: "See the cause."}
}

// refused is the answer to what Flight SQL has and Firn hasn't. Nothing was run.
func refused(op, cause, hint string) error {
	return &commit.Error{Code: commit.CodeFlightSQLRefused, Op: op, Cause: errors.New(cause), Hint: hint}
}

// told is an error as a status. Clients that know nothing of Firn show its message
// alone, so that has all that the error says; its details are those of Firn's own
// clients.
func told(err error) error {
	err = wire.ToStatus(err)
	s := status.Convert(err).Proto()
	e, ok := errors.AsType[*commit.Error](wire.FromStatus(err))
	if !ok {
		return err
	}
	switch e.Code {
	case commit.CodeUnauthenticated:
		s.Code = int32(codes.Unauthenticated)
	case commit.CodeResultLost:
		s.Code = int32(codes.NotFound)
	case commit.CodeTooManyReaders, commit.CodeQueueFull:
		s.Code = int32(codes.ResourceExhausted)
	case commit.CodeFlightSQLRefused:
		s.Code = int32(codes.Unimplemented)
	case commit.CodeNoExecutors, commit.CodeJournalFull:
		s.Code = int32(codes.Unavailable)
	}
	for _, more := range []string{e.Tried, e.Hint} {
		if more != "" {
			s.Message += ". " + strings.TrimSuffix(strings.ToValidUTF8(more, "\uFFFD"), ".")
		}
	}
	if s.Message = shortened(s.GetMessage()); proto.Size(s) > maxDetails {
		s.Details = nil
	}
	return status.FromProto(s).Err()
}

// A status goes out as headers, of which gRPC for Java takes 8 KiB in all: more would
// reach its callers as a fault of the connection, whatever the error says.
const (
	maxMessage = 1500
	maxDetails = 3500
)

// shortened leaves out of the middle of a text what is too much: what it is about
// stands at its begin, code and hint at its end.
func shortened(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	const head = 500
	return strings.ToValidUTF8(text[:head]+" … "+text[len(text)-(maxMessage-head-5):], "")
}

// passwordAsToken takes a token that comes as the password of a user of any name, as
// clients send it that know only those, for a token.
func passwordAsToken(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get("authorization")
	if len(values) != 1 {
		return ctx
	}
	scheme, encoded, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "basic") {
		return ctx
	}
	// What can't be read stays: it isn't good.
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	_, token, ok := strings.Cut(string(raw), ":")
	if err != nil || !ok {
		return ctx
	}
	md = md.Copy()
	md.Set("authorization", "Bearer "+token)
	return metadata.NewIncomingContext(ctx, md)
}

// guarded is the library's server behind a check of what is put, which it takes on
// trust.
type guarded struct {
	flight.FlightServer
	// life ends when the server leaves.
	life context.Context //nolint:containedctx // it is the server's
}

// Handshake answers clients that ask for a token in exchange for a password: the
// password is one, and was looked at on the way here.
func (guarded) Handshake(stream flight.FlightService_HandshakeServer) error {
	values := metadata.ValueFromIncomingContext(stream.Context(), "authorization")
	if len(values) != 1 {
		return nil
	}
	return stream.SendHeader(metadata.Pairs("authorization", values[0]))
}

// DoAction implements flight.FlightServer.
func (g guarded) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) error {
	if strings.HasPrefix(a.GetType(), "firn.v1.") {
		return &commit.Error{
			Code: commit.CodeBadRequest, Op: "carry out action", Object: a.GetType(), Cause: errors.New("this address takes statements, over Flight SQL"),
			Hint: "The open write protocol is spoken at the scheduler's own address, which `firn scheduler --listen` sets.",
		}
	}
	return g.FlightServer.DoAction(a, stream)
}

// DoPut implements flight.FlightServer. Its first message is looked at here, as the
// library makes another error of what is wrong with it.
func (g guarded) DoPut(stream flight.FlightService_DoPutServer) error {
	p := &putStream{FlightService_DoPutServer: stream, life: g.life}
	first, err := p.Recv()
	switch {
	case errors.Is(err, io.EOF):
		return &commit.Error{
			Code: commit.CodeBadRequest, Op: "put", Cause: errors.New("it ended before it had a message, so nothing says what to put where; nothing was written"),
			Hint: "Clients send this for rows without a batch: if there are none to add, leave the call out.",
		}
	case err != nil:
		return err
	case first.GetFlightDescriptor() == nil:
		return badRequest("put", errors.New("the first message has no descriptor"))
	}
	p.first = first
	return g.FlightServer.DoPut(p)
}

// putStream looks at messages on their way to the library.
type putStream struct {
	flight.FlightService_DoPutServer
	life context.Context //nolint:containedctx // it is the server's
	// first was received already; nil when it has been given on.
	first *flight.FlightData
	check wire.Checker
}

// Recv implements flight.FlightService_DoPutServer.
func (p *putStream) Recv() (*flight.FlightData, error) {
	if d := p.first; d != nil {
		p.first = nil
		return d, nil
	}
	d, err := p.next()
	if err != nil {
		return nil, err
	}
	if len(d.GetDataHeader()) > 0 {
		_, err := p.check.CheckMessage(d.GetDataHeader())
		if err == nil {
			err = p.check.CheckBody(d.GetDataBody())
		}
		if err != nil {
			return nil, badRequest("put", err)
		}
	}
	return d, nil
}

// errPutLeft is told to those who put rows when the server leaves: nothing runs before
// all have come.
var errPutLeft = &commit.Error{
	Code: commit.CodeSchedulerClosing, Op: "put rows", Cause: errors.New("the scheduler is shutting down"),
	Tried: "Nothing was written.", Hint: "Send them again when the scheduler is back.",
}

// next receives a message, unless the server leaves meanwhile.
func (p *putStream) next() (*flight.FlightData, error) {
	type message struct {
		data *flight.FlightData
		err  error
	}
	// What waits there ends with the stream, and so with the call.
	got := make(chan message, 1)
	go func() {
		d, err := p.FlightService_DoPutServer.Recv()
		got <- message{d, err}
	}()
	select {
	case m := <-got:
		return m.data, m.err
	case <-p.life.Done():
		return nil, errPutLeft
	}
}

var _ grpc.ServerStream = (*putStream)(nil)
