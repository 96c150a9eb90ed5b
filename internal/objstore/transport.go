package objstore

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// tuning are the times and counts of a store; tests have shorter ones.
type tuning struct {
	// stall is how long a connection may give and take nothing.
	stall time.Duration
	// attempts bounds the tries of one request, and the tries in a row of a
	// read that doesn't get on.
	attempts int
	// pause and longest are the first and the longest wait between tries.
	pause, longest time.Duration
	transport      *http.Transport
}

var defaultTuning = &tuning{
	stall: time.Minute, attempts: 8, pause: 100 * time.Millisecond, longest: 10 * time.Second,
	transport: newTransport(time.Minute),
}

// newTransport makes the transport that stores share, so that connections
// outlive the one file or task that a store is made for.
func newTransport(stall time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &watchedConn{Conn: c, stall: stall}, nil
		},
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          256,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       stall,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        64 << 10,
		// Ranges of Parquet files don't get smaller.
		DisableCompression: true,
	}
}

// CloseIdleConnections closes the idle connections of all stores, as a process or
// a test does at its end.
func CloseIdleConnections() { defaultTuning.transport.CloseIdleConnections() }

// watchedConn breaks when nothing has moved in either direction for a while. A
// timeout for the whole request would end long transfers that get on well.
type watchedConn struct {
	net.Conn
	stall time.Duration

	mu  sync.Mutex
	set time.Time
}

// alive moves the deadline on; not at each call, since it costs one to the
// kernel's timers.
func (c *watchedConn) alive() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.set) < c.stall/16 {
		return nil
	}
	c.set = now
	return c.SetDeadline(now.Add(c.stall))
}

func (c *watchedConn) Read(p []byte) (int, error) {
	if err := c.alive(); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *watchedConn) Write(p []byte) (int, error) {
	if err := c.alive(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
