package journal

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// Writes that come while one is being made durable share a transaction; one that
// fails, panics or was cancelled takes no other with it.
func TestWritesShareATransaction(t *testing.T) {
	j, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	insert := func(n int) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO meta VALUES (?, 'x')", fmt.Sprint("test", n))
			return err
		}
	}
	commits := 0
	j.fault = func() error { commits++; return nil }
	started, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := j.tx(t.Context(), func(tx *sql.Tx) error {
			close(started)
			<-release
			return insert(0)(tx)
		}); err != nil {
			t.Error(err)
		}
	})
	<-started
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	failed := errors.New("failed")
	errs := make([]error, 20)
	for n := 1; n < len(errs); n++ {
		ctx, f := t.Context(), insert(n)
		switch n {
		case 5:
			f = func(tx *sql.Tx) error { return errors.Join(insert(5)(tx), failed) }
		case 6:
			f = func(tx *sql.Tx) error { _ = insert(6)(tx); panic("broke") }
		case 7:
			ctx = gone
		}
		wg.Go(func() { errs[n] = j.tx(ctx, f) })
	}
	for {
		j.group.mu.Lock()
		waiting := len(j.group.queue)
		j.group.mu.Unlock()
		if waiting == len(errs)-1 {
			break
		}
	}
	close(release)
	wg.Wait()
	for n, err := range errs {
		if want := n >= 5 && n <= 7; (err != nil) != want {
			t.Errorf("write %d: %v", n, err)
		}
	}
	if !errors.Is(errs[5], failed) || !errors.Is(errs[7], context.Canceled) {
		t.Errorf("%v, %v", errs[5], errs[7])
	}
	var rows int
	if err := j.db.QueryRow("SELECT count(*) FROM meta WHERE name LIKE 'test%'").Scan(&rows); err != nil || rows != 17 {
		t.Errorf("%d rows, %v", rows, err)
	}
	if commits != 2 {
		t.Errorf("%d transactions for 20 writes", commits)
	}
}
