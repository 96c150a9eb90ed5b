package flightsource

import (
	"context"
	"time"

	"github.com/firn-project/firn/internal/flightsql"
)

// sparing is for how long after a login an engine isn't asked for another token: an
// executor that says that the last one has ended can't have the scheduler log in
// without end.
const sparing = time.Second

// maxShown bounds for how many sources, and addresses as statements write them, tokens
// are kept.
const maxShown = 2000

// shown is what is shown to an engine for a user and a password.
type shown struct {
	// turn has a token while nobody looks at the rest.
	turn          chan struct{}
	of            string // the password's fingerprint
	authorization string
	made          time.Time
}

// Access gives what reaches a source. expired is the fingerprint of an earlier one
// that the engine doesn't take any more; empty for none.
func (r *Registry) Access(ctx context.Context, name, expired string) (flightsql.Access, error) {
	s, err := r.find(ctx, name)
	if err != nil {
		return flightsql.Access{}, err
	}
	a := s.access()
	switch {
	case s.Token != "":
		a.Authorization = "Bearer " + s.Token
	case s.User != "" || s.Password != "":
		a.Authorization, err = r.login(ctx, s, a, expired)
	}
	return a, err
}

// login gives the token that an engine handed out for a user and a password. All who
// ask share one.
func (r *Registry) login(ctx context.Context, s source, a flightsql.Access, expired string) (string, error) {
	l := r.shownTo(s.Name)
	select {
	case <-l.turn:
		defer func() { l.turn <- struct{}{} }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	of := (flightsql.Access{Authorization: s.URI + "\x00" + s.User + "\x00" + s.Password}).Fingerprint()
	if l.of == of && l.authorization != "" {
		if expired == "" || expired != (flightsql.Access{Authorization: l.authorization}).Fingerprint() {
			return l.authorization, nil
		}
		if err := pause(ctx, sparing-time.Since(l.made)); err != nil {
			return "", err
		}
	}
	token, err := flightsql.Login(ctx, a, s.User, s.Password)
	if err != nil {
		r.mu.Lock()
		if r.shown[s.Name] == l {
			delete(r.shown, s.Name)
		}
		r.mu.Unlock()
		return "", err
	}
	l.of, l.authorization, l.made = of, token, time.Now()
	return token, nil
}

// shownTo is what is shown to a source, or nothing yet.
func (r *Registry) shownTo(name string) *shown {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.shown[name]
	if l == nil {
		for other := range r.shown {
			if len(r.shown) < r.maxShown {
				break
			}
			delete(r.shown, other) // who needs it logs in again
		}
		l = &shown{turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		r.shown[name] = l
	}
	return l
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
