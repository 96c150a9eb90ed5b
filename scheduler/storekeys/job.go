package storekeys

import (
	"context"
	"fmt"
	"time"

	"github.com/firn-project/firn/internal/objstore"
)

// sparing is for how long new keys aren't made again, whatever is said of them: an
// executor can't have the scheduler ask STS without end.
const sparing = time.Second

// KeysOfWrite is the name of the keys of an external write.
const KeysOfWrite = "external"

// Job are the keys of one job. It is safe for concurrent use.
type Job struct {
	minter      Minter
	credentials map[string]*credential
}

// credential are keys that are made when they're asked for.
type credential struct {
	store Store
	scope objstore.Scope
	// turn has a token while nobody makes keys.
	turn   chan struct{}
	keys   objstore.Keys
	minted time.Time
}

func newCredential(s Store, scope objstore.Scope) *credential {
	c := &credential{store: s, scope: scope, turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// Keys gives the keys of that name. They are made once for all who ask, and again
// when half of their time has gone, or when the store says that those with the id
// expired have ended.
func (j *Job) Keys(ctx context.Context, name, expired string) (objstore.Keys, error) {
	var c *credential
	if j != nil {
		c = j.credentials[name]
	}
	if c == nil {
		return objstore.Keys{}, fmt.Errorf("the job has no store keys of the name %q", name)
	}
	select {
	case <-c.turn:
		defer func() { c.turn <- struct{}{} }()
	case <-ctx.Done():
		return objstore.Keys{}, context.Cause(ctx)
	}
	now := time.Now()
	has := !c.minted.IsZero()
	if has && !c.keys.Expires.IsZero() && now.Sub(c.minted) >= c.keys.Expires.Sub(now) {
		has = false
	}
	if has && (expired == "" || expired != c.keys.AccessKeyID || now.Sub(c.minted) < sparing) {
		return c.keys, nil
	}
	k, err := j.minter.Mint(ctx, c.store, c.scope)
	if err != nil {
		if has || c.keys.Expires.After(now) {
			return c.keys, nil // they still hold
		}
		return objstore.Keys{}, err
	}
	c.keys, c.minted = k, now
	return k, nil
}
