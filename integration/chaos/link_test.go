//go:build chaos

package chaos_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// link is the way from an executor to its scheduler. While it is cut nothing
// arrives, and nobody is told; what was sent meanwhile arrives late.
type link struct {
	address string
	ln      net.Listener
	pumps   sync.WaitGroup

	mu    sync.Mutex
	whole *sync.Cond
	cut   bool
	conns map[net.Conn]bool // nil at the end
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{address: ln.Addr().String(), ln: ln, conns: map[net.Conn]bool{}}
	k.whole = sync.NewCond(&k.mu)
	k.pumps.Go(func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			k.pumps.Go(func() { k.join(from, to) })
		}
	})
	t.Cleanup(k.close)
	return k
}

// join carries bytes both ways until one side ends.
func (k *link) join(from net.Conn, to string) {
	defer k.end(from)
	if !k.keep(from) {
		return
	}
	there, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer k.end(there)
	if !k.keep(there) {
		return
	}
	k.pumps.Go(func() { k.pump(from, there) })
	k.pump(there, from)
}

func (k *link) pump(dst, src net.Conn) {
	_, _ = io.Copy(writer{k, dst}, src) // an end of either side is no news
	k.end(dst)
	k.end(src)
}

// writer writes when the link isn't cut.
type writer struct {
	k  *link
	to net.Conn
}

func (w writer) Write(p []byte) (int, error) {
	w.k.mu.Lock()
	for w.k.cut {
		w.k.whole.Wait()
	}
	w.k.mu.Unlock()
	return w.to.Write(p)
}

// keep waits until the link isn't cut and remembers a connection, unless it's the end.
func (k *link) keep(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.cut {
		k.whole.Wait()
	}
	if k.conns == nil {
		return false
	}
	k.conns[c] = true
	return true
}

func (k *link) end(c net.Conn) {
	_ = c.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
}

// set cuts the link, or makes it whole.
func (k *link) set(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = cut
	k.whole.Broadcast()
}

func (k *link) close() {
	k.set(false)
	_ = k.ln.Close()
	k.mu.Lock()
	for c := range k.conns {
		_ = c.Close()
	}
	k.conns = nil
	k.mu.Unlock()
	k.pumps.Wait()
}
