package flightread_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/internal/flightread"
	"github.com/firn-project/firn/internal/wire"
)

// freezer is a listener whose connections stay open and hear nothing any more from
// some time on, as those of a process that was stopped.
type freezer struct {
	net.Listener
	frozen chan struct{}
	mu     sync.Mutex
	ends   []chan struct{}
}

type frozenConn struct {
	net.Conn
	l   *freezer
	end chan struct{}
}

func (l *freezer) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	end := make(chan struct{})
	l.mu.Lock()
	l.ends = append(l.ends, end)
	l.mu.Unlock()
	return &frozenConn{c, l, end}, nil
}

func (c *frozenConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.l.frozen:
		<-c.end
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

// thaw ends the connections.
func (l *freezer) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range l.ends {
		close(end)
	}
}

// An executor that stands still in the middle of a stream keeps its connection. What
// it holds is lost after a bounded wait.
func TestAFrozenExecutorIsLost(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &freezer{Listener: l, frozen: make(chan struct{})}
	g := grpc.NewServer(wire.ServerOptions()...)
	flight.RegisterFlightServiceServer(g, &server{total: 1, hang: true})
	done := make(chan error, 1)
	go func() { done <- g.Serve(f) }()
	t.Cleanup(func() {
		f.thaw()
		g.Stop()
		<-done
	})
	r := client(t, flightread.Config{Silence: silence}).Open(t.Context(), source(l.Addr().String()))
	defer r.Close()
	b, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	close(f.frozen)
	_, err = r.Next()
	if lost, ok := errors.AsType[*wire.LostInputError](err); !ok || !lost.Unreachable {
		t.Errorf("got %v, want an executor that is lost", err)
	}
}

// silence is short for a test, and long enough for a busy machine to answer within half
// of it.
const silence = 2 * time.Second

// An executor that answers is waited for, however long it has no rows.
func TestASlowExecutorIsNotLost(t *testing.T) {
	t.Parallel()
	s := &server{total: 1, hang: true}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	questions := make(chan struct{}, 100)
	addr := serve(t, s, grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		questions <- struct{}{}
		return status.Error(codes.Unimplemented, "there is no such method")
	}))
	r := client(t, flightread.Config{Silence: silence}).Open(ctx, source(addr))
	defer r.Close()
	b, err := r.Next()
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	ended := make(chan error, 1)
	go func() {
		_, err := r.Next()
		ended <- err
	}()
	for range 3 { // the second and the third are asked after an answer only
		select {
		case err := <-ended:
			t.Fatalf("given up after some silence: %v", err)
		case <-questions:
		}
	}
	stop()
	if _, lost := errors.AsType[*wire.LostInputError](<-ended); lost {
		t.Error("a reader that was stopped says that its input is lost")
	}
}
