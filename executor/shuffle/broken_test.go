package shuffle_test

import (
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"

	"github.com/firn-project/firn/executor/shuffle"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// breaking cuts each of its first connections off after some bytes, more from one to the next.
type breaking struct {
	net.Listener
	broken atomic.Int64
}

func (l *breaking) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &brittle{Conn: c, l: l, left: 40_000 * (1 + l.broken.Load())}, nil
}

type brittle struct {
	net.Conn
	l    *breaking
	left int64
}

func (c *brittle) Write(p []byte) (int, error) {
	if c.left -= int64(len(p)); c.left < 0 {
		c.l.broken.Add(1)
		_ = c.Close()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

// A connection that breaks in the middle of a stream costs no row and doubles
// none, in a whole output and in slices of it, plain and compressed.
func TestBrokenConnectionsDoubleNothing(t *testing.T) {
	for name, compress := range map[string]bool{"plain": false, "lz4": true} {
		t.Run(name, func(t *testing.T) {
			e := newExecutor(t, "e-1")
			e.source.AlwaysRemote = true
			e.write(t, shuffle.WriterOptions{Memory: 1, Compress: compress}, batch(t, 0, 1500), batch(t, 1500, 3000), batch(t, 3000, 4500), batch(t, 4500, 6000))
			want, _, err := read(t, e.source, e.location(0))
			if err != nil || len(want) != 6000 {
				t.Fatalf("%d rows, %v", len(want), err)
			}
			l := e.serveBreaking(t, compress)
			slice := func(first, end int64) plan.ShuffleLocation {
				at := e.location(0)
				at.Address, at.First, at.End = l.Addr().String(), first, end
				at.Ticket = e.ticket(func(tk *firnpb.Ticket) { tk.FirstRow, tk.EndRow = first, end })
				return at
			}
			for _, pieces := range [][]plan.ShuffleLocation{{slice(0, 0)}, {slice(0, 4000), slice(4000, 6000)}} {
				l.broken.Store(0)
				got, batches, err := read(t, e.source, pieces...)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%d pieces: %d rows of %d, %v", len(pieces), len(got), len(want), err)
				}
				if l.broken.Load() == 0 || batches < 4 {
					t.Errorf("%d pieces: %d connections broke in %d batches: nothing was shown", len(pieces), l.broken.Load(), batches)
				}
			}
		})
	}
}

// serveBreaking serves the executor's output over connections that break.
func (e *executor) serveBreaking(t *testing.T, compress bool) *breaking {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &breaking{Listener: lis}
	server := shuffle.NewServer(e.store, e.id, compress, slog.New(slog.DiscardHandler))
	server.SetVerifier(e.verifier)
	g := grpc.NewServer(wire.ServerOptions()...)
	flight.RegisterFlightServiceServer(g, server)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}
