//go:build integration

package openwrite_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/integration/process"
)

// badLink is the way to a scheduler. Each connection is cut after some time, whatever
// is under way: requests and answers are lost.
type badLink struct {
	ln    net.Listener
	to    string
	good  atomic.Bool
	cuts  atomic.Int64
	pumps sync.WaitGroup
}

func newBadLink(t *testing.T, to string) *badLink {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &badLink{ln: ln, to: to}
	k.pumps.Go(func() {
		for {
			from, err := ln.Accept()
			if err != nil {
				return
			}
			k.pumps.Go(func() { k.join(from) })
		}
	})
	t.Cleanup(func() {
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		k.pumps.Wait()
	})
	return k
}

func (k *badLink) join(from net.Conn) {
	defer from.Close()
	there, err := net.Dial("tcp", k.to)
	if err != nil {
		return
	}
	defer there.Close()
	if !k.good.Load() {
		cut := time.AfterFunc(time.Duration(2+rand.IntN(60))*time.Millisecond, func() { //nolint:gosec // chance
			k.cuts.Add(1)
			_ = from.Close()
			_ = there.Close()
		})
		defer cut.Stop()
	}
	var both sync.WaitGroup
	pump := func(to, of net.Conn) {
		_, _ = io.Copy(to, of) // the end of either side is no news
		_ = to.Close()
		_ = of.Close()
	}
	both.Go(func() { pump(there, from) })
	pump(from, there)
	both.Wait()
}

// told is what the drivers of one write heard, and what they asked for.
type told struct {
	key  string
	sets [2][]attempt
	said [2]commit.Report
	errs [2]error
}

// Drivers and workers over a link that loses requests and answers, to a scheduler
// that is killed three times: who was told committed finds its rows, once; who was
// told that nothing was committed finds none; nothing else is there, nor stays.
func TestWritesOverABadLink(t *testing.T) {
	for format, using := range formats {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			config := filepath.Join(dir, "scheduler.yaml")
			if err := os.WriteFile(config, []byte("sweep: {delay: 1s}\nexecutors: {heartbeat: 200ms, timeout: 2s}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			server := process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(dir, "s"), "--config", config)
			process.Start(t, "executor", "--server", server.Address, "--dir", filepath.Join(dir, "x"), "--slots", "2", "--memory", "512MB")
			s := &stand{t: t, dir: filepath.Join(dir, "s"), addr: server.Address}
			s.Client = s.dial(t, server.Address)
			s.must("CREATE NAMESPACE lake.w", "CREATE TABLE lake.w.t (id BIGINT NOT NULL, p VARCHAR)"+using+" PARTITIONED BY (p)")
			link := newBadLink(t, server.Address)

			const writes = 60
			all := make([]*told, writes)
			var wg sync.WaitGroup
			slots := make(chan struct{}, 6)
			var ended atomic.Int64
			for i := range all {
				wg.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots; ended.Add(1) }()
					all[i] = s.stubbornly(t, link)
				})
			}
			for kill := range int64(3) {
				for ended.Load() < (kill+1)*writes/5 {
					wait(t, 20*time.Millisecond)
				}
				server.Kill()
				server = server.Again(t)
			}
			wg.Wait()
			link.good.Store(true)
			e, committed, nothing, others := newExpected(), 0, 0, 0
			for _, x := range all {
				w, err := s.ResumeWrite(t.Context(), x.key)
				if err != nil {
					t.Fatal(err)
				}
				if _, open := w.Context(); open {
					if _, err := w.Abort(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				rep, err := w.Wait(t.Context())
				st, serr := w.Status(t.Context())
				if serr != nil {
					t.Fatal(serr)
				}
				won := -1
				for d, set := range x.sets {
					if rep.State == commit.CommitCommitted && sameHandles(set, st.Sealed) {
						won = d
					}
				}
				if rep.State == commit.CommitCommitted {
					if won < 0 {
						t.Fatalf("sealed with what nobody asked for: %+v", st)
					}
					committed++
					e.add(x.sets[won]...)
				} else {
					nothing++
				}
				for d := range x.sets {
					var other *client.SealedError
					switch {
					case errors.As(x.errs[d], &other):
						others++
						if d == won {
							t.Errorf("%s: driver %d was told that others were committed, and its own were", x.key, d)
						}
					case x.said[d].State == commit.CommitCommitted && d != won && !sameHandles(x.sets[d], st.Sealed):
						t.Errorf("%s: driver %d was told committed, and its files aren't (%v)", x.key, d, err)
					case x.said[d].State == commit.CommitNone && d == won:
						t.Errorf("%s: driver %d was told that nothing was committed, and its files were: %v", x.key, d, x.errs[d])
					case x.said[d].State == commit.CommitRefused && rep.State == commit.CommitCommitted:
						t.Errorf("%s: driver %d was told refused, and something was committed: %v", x.key, d, x.errs[d])
					}
				}
			}
			t.Logf("%d writes: %d committed, %d nothing; %d drivers sealed with others; %d connections cut", writes, committed, nothing, others, link.cuts.Load())
			if link.cuts.Load() < writes || committed < writes/2 {
				t.Error("too little happened")
			}
			s.judge(e)
		})
	}
}

// stubbornly does one write with two drivers, each of which knows nothing but the key
// and goes on until it is told something final, within bounds.
func (s *stand) stubbornly(t *testing.T, link *badLink) *told {
	x := &told{key: client.NewKey()}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	again := func(what string, f func(*client.Client) error) {
		for {
			c, err := client.Dial(ctx, link.ln.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			err = errors.Join(f(c), c.Close())
			if err == nil {
				return
			}
			if code := commit.CodeOf(err); code != commit.CodeUnreachable && code != commit.CodeProtocol && code != "" || ctx.Err() != nil {
				t.Errorf("%s: %v", what, err)
				return
			}
			wait(t, time.Duration(rand.IntN(30))*time.Millisecond) //nolint:gosec // chance
		}
	}
	var wc client.WriteContext
	again("begin", func(c *client.Client) error {
		w, err := c.BeginWrite(ctx, "lake.w.t", client.WriteOptions{Key: x.key})
		if err == nil {
			wc, _ = w.Context()
		}
		return err
	})
	a, b := s.write(wc, 2), s.write(wc, 3)
	for _, at := range []*attempt{&a, &b} {
		again("hand in", func(c *client.Client) error { return s.handIn(ctx, c.JoinWrite(wc), at) })
	}
	x.sets = [2][]attempt{{a}, {a, b}}
	if rand.IntN(2) == 0 { //nolint:gosec // chance
		x.sets[1] = x.sets[0]
	}
	var wg sync.WaitGroup
	for d := range x.sets {
		wg.Go(func() {
			again("commit", func(c *client.Client) error {
				w, err := c.ResumeWrite(ctx, x.key)
				if err != nil {
					return err
				}
				var handles []client.Handle
				for _, at := range x.sets[d] {
					handles = append(handles, at.handle)
				}
				soon, done := context.WithTimeout(ctx, 5*time.Second)
				defer done()
				x.said[d], x.errs[d] = w.Commit(soon, handles)
				if x.said[d].State == commit.CommitUnknown {
					return x.errs[d] // nobody answered
				}
				return nil
			})
		})
	}
	wg.Wait()
	return x
}
