package flightread

import (
	"testing"
	"time"
)

// A connection that nobody has read over for a while goes when another one is made;
// one with an open reader stays.
func TestUnusedConnectionsGo(t *testing.T) {
	c := New(Config{})
	open, err := c.take("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"127.0.0.1:2", "127.0.0.1:3"} {
		p, err := c.take(address)
		if err != nil {
			t.Fatal(err)
		}
		c.giveBack(p)
	}
	c.peers["127.0.0.1:2"].since = time.Now().Add(-2 * unused)
	open.since = time.Now().Add(-2 * unused)
	p, err := c.take("127.0.0.1:4")
	if err != nil {
		t.Fatal(err)
	}
	c.giveBack(p)
	if len(c.peers) != 3 || c.peers["127.0.0.1:2"] != nil || c.peers["127.0.0.1:1"] != open {
		t.Errorf("%v are left, want all but 127.0.0.1:2", c.peers)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}
