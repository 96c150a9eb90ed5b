package flightread

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/firn-project/firn/internal/wire"
)

// unused is how long a connection is kept that nobody reads over. Executors that
// start again do so at another address.
const unused = time.Minute

// peer is the connection to one address.
type peer struct {
	conn *grpc.ClientConn
	// readers are those that are open, since is when the last one was closed.
	readers int
	since   time.Time
}

// Close ends all connections; open readers fail.
func (c *Client) Close() error {
	c.mu.Lock()
	peers := c.peers
	c.peers = nil
	c.mu.Unlock()
	var errs []error
	for _, p := range peers {
		errs = append(errs, p.conn.Close())
	}
	return errors.Join(errs...)
}

// take gives the connection to an address to a reader, which gives it back.
func (c *Client) take(address string) (*peer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers == nil {
		return nil, errors.New("flight client is closed")
	}
	p := c.peers[address]
	if p == nil {
		c.dropUnused(time.Now())
		conn, err := grpc.NewClient("passthrough:///"+address, append(wire.DialOptions(), c.cfg.Dial...)...)
		if err != nil {
			return nil, fmt.Errorf("connect to %s: %w", address, err)
		}
		p = &peer{conn: conn}
		c.peers[address] = p
	}
	p.readers++
	return p, nil
}

// dropUnused ends the connections that nobody has read over for a while. The caller
// holds the lock.
func (c *Client) dropUnused(now time.Time) {
	for address, p := range c.peers {
		if p.readers == 0 && now.Sub(p.since) > unused {
			_ = p.conn.Close() // it was only read
			delete(c.peers, address)
		}
	}
}

func (c *Client) giveBack(p *peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.readers--
	p.since = time.Now()
}
