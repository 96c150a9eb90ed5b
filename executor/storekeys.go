package executor

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Keys are renewed when a part of their time has gone, which differs from executor
// to executor, so that not all ask at once; and later again if that fails.
const (
	renewFrom, renewTo = 0.6, 0.8
	renewAgain         = 5 * time.Second
	// longestKeys is how long keys are used at most, whatever was said.
	longestKeys = 24 * time.Hour
	// renewFailing bounds one request for keys.
	renewFailing = 30 * time.Second
)

// keyring has the keys to object stores of the jobs that run here. It asks the
// scheduler for them, once for all tasks of a job, and never has those of a catalog.
type keyring struct {
	fetch func(context.Context, *firnpb.StoreKeysRequest) (*firnpb.StoreKeysResponse, error)

	mu   sync.Mutex
	jobs map[string]map[string]*heldKeys
}

func newKeyring(fetch func(context.Context, *firnpb.StoreKeysRequest) (*firnpb.StoreKeysResponse, error)) *keyring {
	return &keyring{fetch: fetch, jobs: map[string]map[string]*heldKeys{}}
}

// store reaches objects by the settings of a plan of the job.
func (k *keyring) store(job string, storage map[string]string) objstore.Store {
	c := objstore.FromStorage(storage)
	if name := storage[objstore.KeyCredential]; name != "" {
		c.Renewer = k.held(job, name)
	}
	return objstore.New(c)
}

func (k *keyring) held(job, name string) *heldKeys {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.jobs[job] == nil {
		k.jobs[job] = map[string]*heldKeys{}
	}
	h := k.jobs[job][name]
	if h == nil {
		h = &heldKeys{fetch: k.fetch, job: job, name: name, turn: make(chan struct{}, 1)}
		h.turn <- struct{}{}
		k.jobs[job][name] = h
	}
	return h
}

// drop forgets the keys of a job of which nothing runs any more.
func (k *keyring) drop(job string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.jobs, job)
}

// heldKeys are the keys of one name. They implement objstore.Renewer.
type heldKeys struct {
	fetch     func(context.Context, *firnpb.StoreKeysRequest) (*firnpb.StoreKeysResponse, error)
	job, name string
	// turn has a token while nobody looks at what is below the line; who holds it
	// may ask the scheduler meanwhile.
	turn chan struct{}
	// ----
	keys   objstore.Keys
	renew  time.Time
	mu     sync.Mutex
	expire string // under mu: the id that the store says has ended
}

// Expired implements objstore.Renewer.
func (h *heldKeys) Expired(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expire = id
}

// Keys implements objstore.Renewer.
func (h *heldKeys) Keys(ctx context.Context) (objstore.Keys, error) {
	select {
	case <-h.turn:
		defer func() { h.turn <- struct{}{} }()
	case <-ctx.Done():
		return objstore.Keys{}, context.Cause(ctx)
	}
	h.mu.Lock()
	expired := h.expire
	h.mu.Unlock()
	if expired != h.keys.AccessKeyID {
		expired = ""
	}
	now := time.Now()
	if h.keys.AccessKeyID != "" && expired == "" && (h.keys.Expires.IsZero() || now.Before(h.renew)) {
		return h.keys, nil
	}
	call, cancel := context.WithTimeout(ctx, renewFailing)
	defer cancel()
	got, err := h.fetch(call, &firnpb.StoreKeysRequest{JobId: h.job, Credential: h.name, ExpiredKey: expired})
	if err == nil && !got.GetKnown() {
		err = errors.New("the scheduler doesn't know this executor just now")
	}
	if err != nil {
		if h.keys.AccessKeyID != "" && expired == "" && now.Before(h.keys.Expires) {
			h.renew = earlier(now.Add(renewAgain), h.keys.Expires) // they still hold
			return h.keys, nil
		}
		if err = wire.FromStatus(err); commit.CodeOf(err) == "" {
			err = &commit.Error{Code: commit.CodeStorage, Op: "get keys to the store of", Object: "job " + h.job, Cause: err}
		}
		return objstore.Keys{}, err
	}
	h.keys = objstore.Keys{AccessKeyID: got.GetAccessKeyId(), SecretAccessKey: got.GetSecretAccessKey(), SessionToken: got.GetSessionToken()}
	if ttl := min(got.GetTtlMs(), longestKeys.Milliseconds()); ttl > 0 {
		ttl := time.Duration(ttl) * time.Millisecond
		h.keys.Expires = now.Add(ttl)
		h.renew = now.Add(time.Duration(float64(ttl) * (renewFrom + (renewTo-renewFrom)*rand.Float64())))
	}
	return h.keys, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
