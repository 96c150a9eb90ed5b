package footers_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/scheduler/footers"
)

// meeting is a store in which the second read of a file waits until that of another one
// has come, too.
type meeting struct {
	objstore.Store
	all *sync.WaitGroup
}

type met struct {
	objstore.Object
	all   *sync.WaitGroup
	reads int
}

func (m *meeting) Open(ctx context.Context, uri string) (objstore.Object, error) {
	o, err := m.Store.Open(ctx, uri)
	return &met{Object: o, all: m.all}, err
}

func (m *met) ReadAt(p []byte, off int64) (int, error) {
	if m.reads++; m.reads == 2 {
		m.all.Done()
		m.all.Wait()
	}
	return m.Object.ReadAt(p, off)
}

// Footers that are more than a tail are read at the same time, as long as there is
// memory for all of them.
func TestFootersAreReadAtTheSameTime(t *testing.T) {
	u := unit(t, parquetFile(t, 20, 400), parquetFile(t, 20, 400))
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		all.Add(u.Files.Len())
		if err := footers.New(true, 0).Check(t.Context(), &meeting{Store: objstore.New(objstore.Config{}), all: &all}, u); err != nil {
			t.Error(err)
		}
	})
}

// While there's no memory for a footer its check waits, and whoever asked for it may
// leave.
func TestAFooterWaitsForMemory(t *testing.T) {
	u := unit(t, parquetFile(t, 20, 400))
	synctest.Test(t, func(t *testing.T) {
		c, s := footers.New(true, 0), objstore.New(objstore.Config{})
		release, err := c.Fill(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		left, done := make(chan error, 1), make(chan error, 1)
		go func() { left <- c.Check(ctx, s, u) }()
		go func() { done <- c.Check(t.Context(), s, u) }()
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) || commit.CodeOf(err) == commit.CodeVerification {
			t.Errorf("who leaves waits on: %v", err)
		}
		if err := c.Check(ctx, s, u); !errors.Is(err, context.Canceled) {
			t.Errorf("files that nobody looked at are fine: %v", err)
		}
		select {
		case err := <-done:
			t.Errorf("it didn't wait: %v", err)
		default:
		}
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
