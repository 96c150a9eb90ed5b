package executor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/internal/wire/firnpb"
)

// mint is a scheduler that gives keys for a time, the nth with the id kN.
type mint struct {
	ttl   time.Duration
	calls atomic.Int32
	down  atomic.Bool
	last  atomic.Pointer[firnpb.StoreKeysRequest]
	// slow is how long an answer takes.
	slow time.Duration
}

func (m *mint) fetch(_ context.Context, r *firnpb.StoreKeysRequest) (*firnpb.StoreKeysResponse, error) {
	n := m.calls.Add(1)
	m.last.Store(r)
	time.Sleep(m.slow) // the bubble's clock
	if m.down.Load() {
		return nil, errors.New("the scheduler isn't there")
	}
	return &firnpb.StoreKeysResponse{Known: true, AccessKeyId: fmt.Sprintf("k%d", n), SecretAccessKey: "s", TtlMs: m.ttl.Milliseconds()}, nil
}

// TestKeysOutliveTheirTime is a task of two hours with keys of 15 minutes: each
// request is signed with keys that hold, which are asked for before the old ones end.
func TestKeysOutliveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mint{ttl: 15 * time.Minute}
		held := newKeyring(m.fetch).held("j-1", "w0")
		for range 2 * 60 * 2 {
			k, err := held.Keys(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(k.Expires); left < 2*time.Minute {
				t.Fatalf("keys that hold for %v more are given", left)
			}
			time.Sleep(30 * time.Second)
		}
		// 120 minutes in steps of 9 to 12 and a half.
		if n := m.calls.Load(); n < 9 || n > 14 {
			t.Errorf("the scheduler was asked %d times", n)
		}
	})
}

// TestKeysAskedOnce: all tasks of a job share one question, at the start and when
// the time for new ones has come; another job's is its own.
func TestKeysAskedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mint{ttl: 15 * time.Minute, slow: time.Second}
		ring := newKeyring(m.fetch)
		all := func() {
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if _, err := ring.held("j-1", "w0").Keys(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		all()
		if n := m.calls.Load(); n != 1 {
			t.Errorf("asked %d times at the start", n)
		}
		time.Sleep(14 * time.Minute)
		all()
		if n := m.calls.Load(); n != 2 {
			t.Errorf("asked %d times when it was time to renew", n)
		}
		if k, err := ring.held("j-2", "w0").Keys(t.Context()); err != nil || k.AccessKeyID != "k3" {
			t.Errorf("another job: %v %v", k.AccessKeyID, err)
		}
		ring.drop("j-1")
		if k, err := ring.held("j-1", "w0").Keys(t.Context()); err != nil || k.AccessKeyID != "k4" {
			t.Errorf("after the job was dropped: %v %v", k.AccessKeyID, err)
		}
	})
}

// TestKeysThatEndEarly: the store's word counts more than the time that was told.
func TestKeysThatEndEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mint{ttl: time.Hour}
		held := newKeyring(m.fetch).held("j-1", "w0")
		want := func(id string) {
			t.Helper()
			if k, err := held.Keys(t.Context()); err != nil || k.AccessKeyID != id {
				t.Errorf("keys %s, %v; want %s", k.AccessKeyID, err, id)
			}
		}
		want("k1")
		held.Expired("k1")
		want("k2")
		if got := m.last.Load().GetExpiredKey(); got != "k1" {
			t.Errorf("the scheduler was told that %q ended", got)
		}
		held.Expired("k1") // a request that was under way with the older keys
		want("k2")
	})
}

// TestKeysWithoutScheduler: the keys are used as long as they hold, and no longer.
func TestKeysWithoutScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mint{ttl: 15 * time.Minute}
		held := newKeyring(m.fetch).held("j-1", "w0")
		if _, err := held.Keys(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.down.Store(true)
		time.Sleep(14*time.Minute + 59*time.Second)
		if k, err := held.Keys(t.Context()); err != nil || k.AccessKeyID != "k1" {
			t.Errorf("shortly before the end: %v %v", k.AccessKeyID, err)
		}
		time.Sleep(2 * time.Second)
		if k, err := held.Keys(t.Context()); err == nil {
			t.Errorf("after the end %v are given", k.AccessKeyID)
		}
		m.down.Store(false)
		if _, err := held.Keys(t.Context()); err != nil {
			t.Errorf("the scheduler is there again: %v", err)
		}
	})
}

// FuzzStoreKeys: whatever the scheduler answers to a question for keys, it's an error,
// or keys that are used no longer than a day without asking again.
func FuzzStoreKeys(f *testing.F) {
	for _, ttl := range []int64{0, -1, 1, 900_000, 1 << 62} {
		raw, err := proto.Marshal(&firnpb.StoreKeysResponse{Known: true, AccessKeyId: "k", SecretAccessKey: "s", SessionToken: "t", TtlMs: ttl})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var answer firnpb.StoreKeysResponse
		if proto.Unmarshal(raw, &answer) != nil {
			return
		}
		held := newKeyring(func(context.Context, *firnpb.StoreKeysRequest) (*firnpb.StoreKeysResponse, error) {
			return &answer, nil
		}).held("j-1", "w0")
		k, err := held.Keys(t.Context())
		if err == nil && (!answer.GetKnown() || time.Until(k.Expires) > 25*time.Hour || !k.Expires.IsZero() && k.Expires.Before(time.Now().Add(-time.Minute))) {
			t.Errorf("%v: keys that end %v", &answer, k.Expires)
		}
	})
}
