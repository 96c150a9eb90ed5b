package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// maxMessage bounds one message on the wire in bytes. An inline result is
// bounded far below it by the scheduler.
const maxMessage = 64 << 20

// Delivery says how a job's status comes to a waiting client.
type Delivery string

// Deliveries.
const (
	// DeliverStream: the scheduler sends each change as it happens. The
	// default.
	DeliverStream Delivery = "stream"
	// DeliverPoll: the client asks again and again, for networks that cut long
	// streams.
	DeliverPoll Delivery = "poll"
)

type options struct {
	delivery Delivery
	poll     time.Duration
	dial     []grpc.DialOption
}

// Option changes how a Client is made.
type Option func(*options)

// WithDelivery chooses how job status is delivered.
func WithDelivery(d Delivery) Option { return func(o *options) { o.delivery = d } }

// WithPollInterval sets how long a polling client waits between two questions.
// The default is 100 ms.
func WithPollInterval(d time.Duration) Option { return func(o *options) { o.poll = d } }

// WithDialOptions adds gRPC options, for both the scheduler and the executors
// that rows are read from.
func WithDialOptions(opts ...grpc.DialOption) Option {
	return func(o *options) { o.dial = append(o.dial, opts...) }
}

// Client talks to one scheduler. It is safe for concurrent use and closed by
// Close.
type Client struct {
	addr string
	opts options
	conn *grpc.ClientConn
	rpc  firnpb.ClientServiceClient
}

// Dial makes a client of the scheduler at addr (host:port). The connection is
// made when it is first needed, so an unreachable scheduler shows at the first
// call.
func Dial(_ context.Context, addr string, opts ...Option) (*Client, error) {
	o := options{delivery: DeliverStream, poll: 100 * time.Millisecond}
	for _, opt := range opts {
		opt(&o)
	}
	if o.delivery != DeliverStream && o.delivery != DeliverPoll {
		return nil, fmt.Errorf("delivery %q: want %q or %q", o.delivery, DeliverStream, DeliverPoll)
	}
	if o.poll <= 0 {
		return nil, fmt.Errorf("poll interval %s: want more than 0", o.poll)
	}
	conn, err := grpc.NewClient(addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	}, o.dial...)...)
	if err != nil {
		return nil, unreachable(addr, err)
	}
	return &Client{addr: addr, opts: o, conn: conn, rpc: firnpb.NewClientServiceClient(conn)}, nil
}

// Close ends the connection. Jobs go on.
func (c *Client) Close() error { return c.conn.Close() }

// fromRPC turns the error of a call into the one that the scheduler made, if it
// made one. What the caller's own context caused stays recognisable as such.
func (c *Client) fromRPC(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	decoded := wire.FromStatus(err)
	if _, ok := errors.AsType[*commit.Error](decoded); ok {
		return decoded
	}
	if status.Code(err) == codes.Unavailable {
		return unreachable(c.addr, errors.New(status.Convert(err).Message()))
	}
	return &commit.Error{Code: commit.CodeProtocol, Op: "call scheduler", Object: c.addr, Cause: decoded,
		Hint: "Read the scheduler's log; `firn version` shows which version this is."}
}

// unreachable is the error for a scheduler that doesn't answer.
func unreachable(addr string, cause error) error {
	return &commit.Error{
		Code: commit.CodeUnreachable, Op: "reach scheduler", Object: addr, Cause: cause,
		Hint: "Check the address, and that `firn scheduler --listen " + addr + "` runs.",
	}
}
