package objstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// newFaulty is a store behind a proxy, and the same store without it.
func newFaulty(t *testing.T) (p *storetest.Proxy, faulty, direct objstore.Store) {
	t.Helper()
	return newStalling(t, time.Minute)
}

func newStalling(t *testing.T, stall time.Duration) (p *storetest.Proxy, faulty, direct objstore.Store) {
	t.Helper()
	f, direct := newS3(t)
	p = storetest.NewProxy(t, f.url)
	s, closeIdle := objstore.NewTuned(objstore.Config{Endpoint: p.URL, AccessKeyID: "k", SecretAccessKey: "s"}, stall, 5)
	t.Cleanup(closeIdle)
	return p, s, direct
}

// on gives the first n requests of a kind a fault.
func on(op storetest.Op, n int, f storetest.Fault) func(storetest.Request) storetest.Fault {
	return func(r storetest.Request) storetest.Fault {
		if r.Op == op && r.N <= n {
			return f
		}
		return storetest.None
	}
}

func content(t *testing.T, s objstore.Store, uri string) []byte {
	t.Helper()
	o, err := s.Open(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	b := make([]byte, o.Size())
	if _, err := o.ReadAt(b, 0); err != nil && o.Size() > 0 {
		t.Fatal(err)
	}
	return b
}

const (
	small = 1000
	large = 20 << 20 // three parts
)

func bytesOf(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 >> 3)
	}
	return b
}

// Whatever goes wrong on the way, a data file is there once and whole, or not at
// all and nothing is left of it.
func TestS3DataFilesSurviveFaults(t *testing.T) {
	for _, c := range []struct {
		op    storetest.Op
		size  int
		fault storetest.Fault
	}{
		{storetest.Put, small, storetest.Busy},
		{storetest.Put, small, storetest.Broken},
		{storetest.Put, small, storetest.Reset},
		{storetest.Put, small, storetest.Lost},
		{storetest.Put, small, storetest.LostLate},
		{storetest.Put, small, storetest.Answer500},
		{storetest.Start, large, storetest.Busy},
		{storetest.Start, large, storetest.Reset},
		{storetest.Part, large, storetest.Busy},
		{storetest.Part, large, storetest.Broken},
		{storetest.Part, large, storetest.Reset},
		{storetest.Part, large, storetest.Lost},
		{storetest.Complete, large, storetest.Busy},
		{storetest.Complete, large, storetest.Broken},
		{storetest.Complete, large, storetest.Reset},
		{storetest.Complete, large, storetest.Lost},
		{storetest.Complete, large, storetest.Answer500},
		{storetest.Complete, large, storetest.Error200},
		{storetest.Put, small, storetest.Silent},
		{storetest.Part, large, storetest.Silent},
		{storetest.Complete, large, storetest.Silent},
	} {
		t.Run(fmt.Sprintf("%s %s", c.op, c.fault), func(t *testing.T) {
			stall := time.Minute
			if c.fault == storetest.Silent {
				stall = time.Second
			}
			p, s, direct := newStalling(t, stall)
			p.Begin(on(c.op, 2, c.fault))
			want := bytesOf(c.size)
			w, err := s.Create(t.Context(), "s3://lake/x")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(want); err != nil {
				t.Fatal(err)
			}
			if err := w.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.Release()
			if got := content(t, direct, "s3://lake/x"); !bytes.Equal(got, want) {
				t.Errorf("the object has %d bytes, not those written", len(got))
			}
			if p.Faults()[c.fault] == 0 {
				t.Error("no fault happened")
			}
		})
	}
}

// A store that doesn't recover is an error, and the upload is given up.
func TestS3GivesUp(t *testing.T) {
	p, s, direct := newFaulty(t)
	p.Begin(on(storetest.Part, 1000, storetest.Busy))
	w, err := s.Create(t.Context(), "s3://lake/x")
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(bytesOf(large))
	if err == nil {
		err = w.Commit(t.Context())
	}
	w.Abort()
	if err == nil || commit.CodeOf(err) != commit.CodeStorage {
		t.Errorf("error %v", err)
	}
	if n := p.Requests()[storetest.Part]; n < 5 || n > 15 {
		t.Errorf("%d tries for 3 parts, at most 5 each", n)
	}
	if p.Requests()[storetest.Abort] != 1 {
		t.Errorf("the upload was not aborted: %v", p.Requests())
	}
	if _, err := direct.Stat(t.Context(), "s3://lake/x"); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("Stat: %v", err)
	}
}

// A write that decides who wins is sent once whatever comes of it, and what became
// of it is read: it stands there, or nobody knows.
func TestS3PutIfAbsentIsSentOnce(t *testing.T) {
	const uri = "s3://lake/log/1.json"
	for _, c := range []struct {
		fault  storetest.Fault
		want   error
		landed bool
	}{
		{storetest.Lost, nil, true},
		{storetest.Answer500, nil, true},
		{storetest.AnswerBusy, nil, true},
		{storetest.Busy, objstore.ErrUncertain, false},
		{storetest.Clash, objstore.ErrUncertain, false},
		{storetest.Broken, objstore.ErrUncertain, false},
		{storetest.Reset, objstore.ErrUncertain, false},
		{storetest.Silent, objstore.ErrUncertain, false},
		{storetest.LostLate, objstore.ErrUncertain, true},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			stall := time.Minute
			if c.fault == storetest.Silent {
				stall = 200 * time.Millisecond
			}
			p, s, direct := newStalling(t, stall)
			p.Begin(on(storetest.Put, 1000, c.fault))
			err := s.PutIfAbsent(t.Context(), uri, []byte("ours"))
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
				t.Errorf("error %v, want %v", err, c.want)
			}
			if n := p.Requests()[storetest.Put]; n != 1 {
				t.Errorf("%d PUTs", n)
			}
			p.Release()
			// Now there's an answer to who holds the name.
			if _, err := direct.Stat(t.Context(), uri); (err == nil) != c.landed {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// A redirect isn't followed: the write would be sent twice, or end as a read that
// succeeds.
func TestS3FollowsNoRedirect(t *testing.T) {
	p, s, _ := newFaulty(t)
	for _, op := range []storetest.Op{storetest.Put, storetest.Get, storetest.Delete} {
		p.Begin(on(op, 1000, storetest.Redirect))
		var err error
		switch op {
		case storetest.Put:
			err = s.PutIfAbsent(t.Context(), "s3://lake/1.json", []byte("ours"))
		case storetest.Get:
			if err := objstore.WriteFile(t.Context(), s, "s3://lake/x", []byte("x")); err != nil {
				t.Fatal(err)
			}
			var o objstore.Object
			if o, err = s.Open(t.Context(), "s3://lake/x"); err == nil {
				_, err = o.ReadAt(make([]byte, 1), 0)
			}
		default:
			err = s.Delete(t.Context(), "s3://lake/x")
		}
		if err == nil || errors.Is(err, objstore.ErrUncertain) {
			t.Errorf("%s: error %v", op, err)
		}
		if n := p.Requests(); n[op] != 1 || n[storetest.List] != 0 {
			t.Errorf("%s: requests %v", op, n)
		}
	}
}

// Where there's nobody to send it to, the write is an error without doubt.
func TestS3PutIfAbsentNeverSent(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	s, closeIdle := objstore.NewTuned(objstore.Config{Endpoint: gone.URL}, time.Minute, 5)
	t.Cleanup(closeIdle)
	err := s.PutIfAbsent(t.Context(), "s3://lake/1.json", []byte("ours"))
	if err == nil || errors.Is(err, objstore.ErrUncertain) || commit.CodeOf(err) != commit.CodeStorage {
		t.Errorf("error %v", err)
	}
}

// A lost reply doesn't hide that somebody else holds the name.
func TestS3PutIfAbsentLostReplyOfAnother(t *testing.T) {
	for _, fault := range []storetest.Fault{storetest.Lost, storetest.Reset, storetest.Answer500} {
		p, s, direct := newFaulty(t)
		if err := direct.PutIfAbsent(t.Context(), "s3://lake/1.json", []byte("theirs")); err != nil {
			t.Fatal(err)
		}
		p.Begin(on(storetest.Put, 1, fault))
		if err := s.PutIfAbsent(t.Context(), "s3://lake/1.json", []byte("ours")); !errors.Is(err, objstore.ErrExists) {
			t.Errorf("%s: error %v, want ErrExists", fault, err)
		}
		if got := content(t, direct, "s3://lake/1.json"); string(got) != "theirs" {
			t.Errorf("%s: now it has %q", fault, got)
		}
	}
}

// Reads get over everything that a store or a network does for a while, and ask
// only for what they don't have yet.
func TestS3ReadsSurviveFaults(t *testing.T) {
	for _, fault := range []storetest.Fault{storetest.Busy, storetest.Broken, storetest.Reset, storetest.Cut, storetest.ResetBody, storetest.Stall} {
		for _, op := range []storetest.Op{storetest.Get, storetest.Head, storetest.List} {
			if op != storetest.Get && (fault == storetest.Cut || fault == storetest.ResetBody || fault == storetest.Stall) {
				continue // there's no body, or one too short to break
			}
			t.Run(fmt.Sprintf("%s %s", op, fault), func(t *testing.T) {
				stall := time.Minute
				if fault == storetest.Stall {
					stall = time.Second
				}
				p, s, direct := newStalling(t, stall)
				want := bytesOf(4 << 20)
				if err := direct.PutIfAbsent(t.Context(), "s3://lake/x", want); err != nil {
					t.Fatal(err)
				}
				p.Begin(on(op, 2, fault))
				if got := content(t, s, "s3://lake/x"); !bytes.Equal(got, want) {
					t.Error("other bytes were read")
				}
				n := 0
				for _, err := range s.List(t.Context(), "s3://lake/") {
					if err != nil {
						t.Fatal(err)
					}
					n++
				}
				if n != 1 || p.Faults()[fault] != 2 {
					t.Errorf("%d objects, %d faults", n, p.Faults()[fault])
				}
				if op == storetest.Get && fault != storetest.ResetBody && p.Sent() > 5<<20 {
					t.Errorf("%d bytes were sent for 4 MiB: the read began anew", p.Sent())
				}
			})
		}
	}
}

// An object that is replaced while it's read is an error, never a mixture.
func TestS3ReplacedWhileRead(t *testing.T) {
	_, s, direct := newFaulty(t)
	put := func(b []byte) {
		if err := direct.PutIfAbsent(t.Context(), "s3://lake/x", b); err != nil {
			t.Fatal(err)
		}
	}
	put(bytesOf(small))
	o, err := s.Open(t.Context(), "s3://lake/x")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := direct.Delete(t.Context(), "s3://lake/x"); err != nil {
		t.Fatal(err)
	}
	put(make([]byte, small))
	if _, err := o.ReadAt(make([]byte, 10), 0); err == nil || errors.Is(err, objstore.ErrExists) {
		t.Errorf("error %v", err)
	}
}

// A writer whose context ends gives up, and leaves no upload behind.
func TestS3CancelAborts(t *testing.T) {
	p, s, _ := newFaulty(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p.Begin(func(r storetest.Request) storetest.Fault {
		if r.Op == storetest.Part {
			cancel()
		}
		return storetest.None
	})
	w, err := s.Create(ctx, "s3://lake/x")
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Write(bytesOf(large))
	if err == nil {
		err = w.Commit(ctx)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	w.Abort()
	if p.Requests()[storetest.Abort] != 1 || p.Requests()[storetest.Complete] != 0 {
		t.Errorf("requests %v", p.Requests())
	}
}

// Parts go out while more is written, and no more than a few at a time are held.
func TestS3PartsGoOutEarly(t *testing.T) {
	p, s, _ := newFaulty(t)
	w, err := s.Create(t.Context(), "s3://lake/x")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	const parts = 12
	if _, err := w.Write(bytesOf(parts * 8 << 20)); err != nil {
		t.Fatal(err)
	}
	// The last one waits for more or for Commit; four may be on their way.
	if n := p.Requests()[storetest.Part]; n < parts-1-4 {
		t.Errorf("%d of %d parts were sent before Commit", n, parts)
	}
	if err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(p.Requests())); !slices.Equal(got, []storetest.Op{storetest.Complete, storetest.Part, storetest.Start}) {
		t.Errorf("requests %v", got)
	}
}
