package footers_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/scheduler/footers"
)

// silent is a store that stops to answer with the nth read of a file. As with the
// objects of real ones, only Close ends a read.
type silent struct {
	objstore.Store
	from int
}

type mute struct {
	objstore.Object
	from, reads int
	closed      chan struct{}
	once        sync.Once
}

func (s *silent) Open(ctx context.Context, uri string) (objstore.Object, error) {
	o, err := s.Store.Open(ctx, uri)
	return &mute{Object: o, from: s.from, closed: make(chan struct{})}, err
}

func (m *mute) ReadAt(p []byte, off int64) (int, error) {
	if m.reads++; m.reads < m.from {
		return m.Object.ReadAt(p, off)
	}
	<-m.closed
	return 0, os.ErrClosed
}

func (m *mute) Close() (err error) {
	m.once.Do(func() {
		close(m.closed)
		err = m.Object.Close()
	})
	return err
}

// Whoever leaves isn't waited for by a read.
func TestReadsEndWithWhoeverAsked(t *testing.T) {
	u := unit(t, parquetFile(t, 20, 1))
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancelCause(t.Context())
		enough, done := errors.New("enough"), make(chan error, 1)
		go func() { done <- footers.New(true, 0).Check(ctx, &silent{objstore.New(objstore.Config{}), 1}, u) }()
		synctest.Wait()
		leave(enough)
		if err := <-done; !errors.Is(err, enough) {
			t.Errorf("%v", err)
		}
	})
}

// A store that stops to answer in the middle of a large footer doesn't keep the memory
// that others wait for.
func TestASilentStoreGivesItsMemoryBack(t *testing.T) {
	u := unit(t, parquetFile(t, 20, 400))
	synctest.Test(t, func(t *testing.T) {
		c := footers.New(true, 0)
		first := make(chan error, 1)
		go func() { first <- c.Check(t.Context(), &silent{objstore.New(objstore.Config{}), 2}, u) }()
		synctest.Wait()
		release, err := c.Fill(t.Context()) // waits for all of it
		if err != nil {
			t.Fatal(err)
		}
		release()
		if err := <-first; err == nil || commit.CodeOf(err) == commit.CodeVerification {
			t.Errorf("%v", err)
		}
	})
}
