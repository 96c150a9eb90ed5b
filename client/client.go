package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/security"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

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
	tls      *tls.Config
	token    string
	// plaintext allows connections without TLS to other machines.
	plaintext bool
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

// WithTLS encrypts the connections, to the scheduler and to the executors that
// rows are read from, and checks their certificates as c says. A certificate in c
// names the client. Nil is plaintext.
func WithTLS(c *tls.Config) Option { return func(o *options) { o.tls = c } }

// WithToken names the client to the scheduler by a token of `firn token create`.
// It isn't sent to executors. Empty: no token.
func WithToken(token string) Option { return func(o *options) { o.token = token } }

// WithPlaintext allows connections without TLS to other machines. Without it,
// only a scheduler on this machine is connected to in plaintext.
func WithPlaintext() Option { return func(o *options) { o.plaintext = true } }

// Client talks to one scheduler. It is safe for concurrent use and closed by
// Close.
type Client struct {
	addr   string
	opts   options
	conn   *grpc.ClientConn
	rpc    firnpb.ClientServiceClient
	flight *flightread.Client
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
	if err := security.CheckDial(addr, o.tls != nil, o.plaintext); err != nil {
		return nil, err
	}
	o.dial = slices.Concat(security.DialTLS(o.tls), o.dial)
	c := &Client{addr: addr, opts: o, flight: flightread.New(flightread.Config{Dial: o.dial})}
	var err error
	if c.conn, err = c.connect(addr, security.DialToken(o.token)...); err != nil {
		return nil, unreachable(addr, err)
	}
	c.rpc = firnpb.NewClientServiceClient(c.conn)
	return c, nil
}

// connect makes a connection to a scheduler or an executor.
func (c *Client) connect(addr string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, slices.Concat(wire.DialOptions(), c.opts.dial, more)...)
}

// Close ends the connections. Jobs go on.
func (c *Client) Close() error { return errors.Join(c.conn.Close(), c.flight.Close()) }

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
	if until, ok := ctx.Deadline(); ok && status.Code(err) == codes.DeadlineExceeded && time.Until(until) < time.Second {
		// The transport's clock was a moment ahead of the context's.
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if e := security.Unreachable(c.addr, err); e != nil {
		return e
	}
	if status.Code(err) == codes.Unavailable {
		return unreachable(c.addr, errors.New(status.Convert(err).Message()))
	}
	return &commit.Error{
		Code: commit.CodeProtocol, Op: "call scheduler", Object: c.addr, Cause: decoded,
		Hint: "Read the scheduler's log; `firn version` shows which version this is.",
	}
}

// unreachable is the error for a scheduler that doesn't answer.
func unreachable(addr string, cause error) error {
	return &commit.Error{
		Code: commit.CodeUnreachable, Op: "reach scheduler", Object: addr, Cause: cause,
		Hint: "Check the address, and that `firn scheduler --listen " + addr + "` runs.",
	}
}
