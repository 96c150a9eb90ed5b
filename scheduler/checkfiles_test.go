package scheduler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/footers"
)

// reached is a catalog whose tables are in a store of their own.
type reached struct{ *fakeCatalogs }

func (reached) Pin(context.Context, commit.TableName) (plan.Pinned, error) {
	return plan.Pinned{Storage: map[string]string{"s3.endpoint": "asked anew"}}, nil
}

// TestFilesOfARestoredPlan: a sealed unit that comes from the journal says nothing of
// its store, so that the table is asked; so it is when the plan's keys may have ended.
func TestFilesOfARestoredPlan(t *testing.T) {
	var endpoint string
	s := &Scheduler{cfg: Config{Catalogs: reached{}, OpenStore: func(storage map[string]string) objstore.Store {
		endpoint = storage["s3.endpoint"]
		return objstore.New(objstore.Config{})
	}}}
	for _, c := range []struct {
		prefix  string
		storage map[string]string
		want    string
	}{
		{"s3://lake/t/j-1/", nil, "asked anew"},
		{"s3://lake/t/j-1/", map[string]string{"s3.endpoint": "planned"}, "planned"},
		{"s3://lake/t/j-1/", map[string]string{"s3.endpoint": "planned", "s3.session-token": "it ends"}, "asked anew"},
		{"file:///lake/t/j-1/", nil, ""},
	} {
		must(t, s.checkFiles(footers.New(false, 0))(t.Context(), c.storage, commit.Unit{Prefix: c.prefix}))
		if endpoint != c.want {
			t.Errorf("files at %s were looked for at %q, want %q", c.prefix, endpoint, c.want)
		}
	}
}

// TestOneStoreForAWrite: whoever hands in to a write uses the store that another one has
// opened, for a while.
func TestOneStoreForAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, opened, failure := newWriteStore(), 0, error(nil)
		open := func() (objstore.Store, error) {
			time.Sleep(time.Second) // in the bubble: as the catalog takes it
			if opened++; failure != nil {
				return nil, failure
			}
			return objstore.New(objstore.Config{}), nil
		}
		stores := make(chan objstore.Store, 8)
		for range cap(stores) {
			go func() {
				s, err := w.get(t.Context(), open)
				if err != nil {
					t.Error(err)
				}
				stores <- s
			}()
		}
		first := <-stores
		for range cap(stores) - 1 {
			if s := <-stores; s != first {
				t.Error("another store")
			}
		}
		if opened != 1 {
			t.Errorf("it was opened %d times", opened)
		}
		time.Sleep(storeKept)
		failure = errors.New("the catalog is down")
		go func() { _, _ = w.get(t.Context(), open) }()
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		leave()
		if _, err := w.get(ctx, open); !errors.Is(err, context.Canceled) {
			t.Errorf("who leaves waits for who opens it: %v", err)
		}
		if _, err := w.get(t.Context(), open); !errors.Is(err, failure) {
			t.Errorf("keys that have ended are used: %v", err)
		}
		failure = nil
		if s, err := w.get(t.Context(), open); err != nil || s == nil || opened != 4 {
			t.Errorf("a failure is kept: %v; opened %d times", err, opened)
		}
	})
}
