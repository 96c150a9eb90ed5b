package flightsql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql/location"
	"github.com/firn-project/firn/internal/wire"
)

// Engine talks to one engine. It is safe for concurrent use; Close ends its
// connections.
type Engine struct {
	access Access
	// pause is the first wait between two tries, maxMessage bounds a message in bytes.
	pause      time.Duration
	maxMessage int

	mu    sync.Mutex
	conns map[location.Location]*grpc.ClientConn
}

// New gives an engine that hasn't been dialled yet.
func New(a Access) *Engine {
	return &Engine{access: a, pause: firstPause, maxMessage: wire.MaxMessage, conns: map[location.Location]*grpc.ClientConn{}}
}

// Close ends the connections.
func (e *Engine) Close() error {
	e.mu.Lock()
	conns := e.conns
	e.conns = nil
	e.mu.Unlock()
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// at gives the service at a location that Access.places has let through.
func (e *Engine) at(l location.Location) (flight.FlightServiceClient, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conns == nil {
		return nil, errors.New("the connection to the engine is closed")
	}
	conn := e.conns[l]
	if conn == nil {
		secure, err := e.credentials(l)
		if err != nil {
			return nil, err
		}
		// Later options win: those of Firn's own connections are for plaintext.
		opts := append(wire.DialOptions(), grpc.WithTransportCredentials(secure), grpc.WithDisableServiceConfig(), grpc.WithKeepaliveParams(alive),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(e.maxMessage)))
		conn, err = grpc.NewClient("dns:///"+l.Address(), opts...)
		if err != nil {
			return nil, err
		}
		e.conns[l] = conn
	}
	return flight.NewFlightServiceClient(conn), nil
}

func (e *Engine) credentials(l location.Location) (credentials.TransportCredentials, error) {
	if !l.TLS {
		return insecure.NewCredentials(), nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: l.Host}
	if len(e.access.CA) > 0 {
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(e.access.CA) {
			return nil, &commit.Error{Code: commit.CodeConfig, Op: "connect to", Object: e.access.String(), Cause: errors.New("its ca holds no certificate in PEM")}
		}
	}
	return credentials.NewTLS(cfg), nil
}

// home is the service at the source's own address.
func (e *Engine) home() (flight.FlightServiceClient, error) {
	l, err := location.Parse(e.access.URI)
	if err != nil {
		return nil, e.access.notAllowed(e.access.URI, err)
	}
	return e.at(l)
}

// show adds what is shown to the engine.
func (e *Engine) show(ctx context.Context) context.Context {
	var pairs []string
	if e.access.Authorization != "" {
		pairs = append(pairs, "authorization", e.access.Authorization)
	}
	for k, v := range e.access.Headers {
		pairs = append(pairs, strings.ToLower(k), v)
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// Login gives the header to show to an engine that takes a user and a password: the
// token that it hands out for them or, where it hands none out, the two themselves.
// The Access needs no Authorization for it.
func Login(ctx context.Context, a Access, user, password string) (string, error) {
	a.Authorization = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
	e := New(a)
	defer func() { _ = e.Close() }()
	var token string
	err := e.retry(ctx, func() error {
		svc, err := e.home()
		if err != nil {
			return err
		}
		token, err = handshake(e.show(ctx), svc)
		return err
	})
	if status.Code(err) == codes.Unimplemented {
		return a.Authorization, nil
	}
	if err != nil {
		return "", e.asking(ctx, "log in at", err)
	}
	if token == "" {
		return a.Authorization, nil
	}
	return token, nil
}

// handshake gives the authorization that the server answers with; empty for none.
func handshake(ctx context.Context, svc flight.FlightServiceClient) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	stream, err := svc.Handshake(ctx)
	if err != nil {
		return "", err
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	header, err := stream.Header()
	if err != nil {
		return "", err
	}
	for {
		if _, err = stream.Recv(); err != nil {
			break
		}
	}
	if !errors.Is(err, io.EOF) {
		return "", err
	}
	for _, token := range metadata.Join(header, stream.Trailer()).Get("authorization") {
		if token != "" {
			return token, nil
		}
	}
	return "", nil
}

// alive is how often a silent peer is asked whether it is there. Servers of others
// hang up on clients that ask more often than every five minutes, and a query may run
// for longer.
var alive = keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 20 * time.Second}

const (
	handshakeTimeout = 30 * time.Second
	firstPause       = 100 * time.Millisecond
	// askTries is how often a call that an engine is too busy for, or can't be reached
	// by, is made: the waits come to about ten seconds.
	askTries = 7
)

// retry makes a call again while the engine can't be reached or is too busy.
func (e *Engine) retry(ctx context.Context, call func() error) error {
	wait := e.pause
	for try := 1; ; try++ {
		err := call()
		switch status.Code(err) {
		case codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		default:
			return err
		}
		if try == askTries || tooLarge(err) || brokenTLS(err) || !sleep(ctx, wait) {
			return err
		}
		wait *= 2
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// tooLarge says whether a message was refused here for its size.
func tooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "larger than max")
}

// brokenTLS says whether waiting doesn't help a connection: the certificate isn't
// the one, or one side speaks TLS and the other doesn't.
func brokenTLS(err error) bool {
	if status.Code(err) != codes.Unavailable {
		return false
	}
	for _, s := range []string{"x509:", "tls: ", "authentication handshake failed", "error reading server preface"} {
		if strings.Contains(err.Error(), s) {
			return true
		}
	}
	return false
}

// asking tells what went wrong when the engine was asked for something.
func (e *Engine) asking(ctx context.Context, op string, err error) error {
	if cause := wire.Ended(ctx); cause != nil {
		return cause
	}
	if commit.CodeOf(err) != "" {
		return err
	}
	out := &commit.Error{Op: op, Object: "source " + e.access.Name, Cause: said(err)}
	switch status.Code(err) {
	case codes.Unauthenticated, codes.PermissionDenied:
		out.Code, out.Hint = commit.CodeFlightAuth, "Correct what sources.flight_sql of the scheduler's configuration has for this engine."
	case codes.Unavailable, codes.Aborted, codes.DeadlineExceeded, codes.Canceled:
		out.Code, out.Hint = commit.CodeFlightUnavailable, "Check that the engine runs, and that the scheduler reaches its address."
		if brokenTLS(err) {
			out.Hint = "Check the scheme of its uri (grpc+tls:// or grpc://) and its ca_file."
		}
	case codes.ResourceExhausted:
		if out.Code = commit.CodeFlightUnavailable; tooLarge(err) {
			out.Code = commit.CodeFlightTooLarge
		}
	default:
		out.Code, out.Hint = commit.CodeFlightQuery, "The words are the engine's own; the query is in its dialect."
	}
	return out
}

// said is what the engine said, without gRPC's words around it.
func said(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return errors.New(shorten(err.Error()))
	}
	return fmt.Errorf("%s: %s", s.Code(), shorten(s.Message()))
}
