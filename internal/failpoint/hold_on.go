//go:build failpoint

package failpoint

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// holds is where the files are looked for; empty for nowhere.
var holds = os.Getenv("FIRN_FAILPOINT_HOLDS")

// look is how often a file that holds something is looked for again.
const look = 20 * time.Millisecond

func held(name string) bool {
	if holds == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(holds, name))
	return err == nil
}

// Slow takes a while while the disk is held.
func Slow() {
	if held(HoldDisk) {
		time.Sleep(10 * look)
	}
}

// PeerDialer makes connections that stand still while peers are held.
func PeerDialer() func(context.Context, string) (net.Conn, error) {
	if holds == "" {
		return nil
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		for held(HoldPeers) {
			select {
			case <-time.After(look):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		return &peerConn{Conn: c, closed: make(chan struct{})}, nil
	}
}

type peerConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// pass waits until peers aren't held any more, or the connection is closed.
func (c *peerConn) pass() {
	for held(HoldPeers) {
		select {
		case <-time.After(look):
		case <-c.closed:
			return
		}
	}
}

func (c *peerConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.pass()
	return n, err
}

func (c *peerConn) Write(p []byte) (int, error) {
	c.pass()
	return c.Conn.Write(p)
}

func (c *peerConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
