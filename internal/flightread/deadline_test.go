package flightread_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/internal/flightread"
)

// passed is a context that gives an earlier deadline than the one that ends it: to
// executors, it has passed already.
type passed struct{ context.Context }

func (passed) Deadline() (time.Time, bool) { return time.Now(), true }

// An executor that says that the deadline has passed, before the caller's timer does,
// has lost nothing. The error is why the caller gave up.
func TestADeadlineIsNoLostInput(t *testing.T) {
	s := &server{total: 3, fail: func(int) (int, error) { return 1, status.Error(codes.DeadlineExceeded, "the deadline has passed") }}
	addr, enough := serve(t, s), errors.New("enough")
	for op, read := range map[string]func(*flightread.Reader) error{
		"connect": func(r *flightread.Reader) error { _, err := r.Schema(); return err },
		"read": func(r *flightread.Reader) error {
			b, err := r.Next()
			if err == nil {
				b.Release()
				_, err = r.Next()
			}
			return err
		},
	} {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 100*time.Millisecond, enough)
		r := client(t, flightread.Config{Retries: -1}).Open(passed{ctx}, source(addr))
		if err := read(r); !errors.Is(err, enough) || isLost(err) {
			t.Errorf("%s: %v", op, err)
		}
		r.Close()
		cancel()
	}
	// That of another deadline, such as a proxy's, is.
	r := client(t, flightread.Config{Retries: -1}).Open(t.Context(), source(addr))
	if _, err := all(t, r); !isLost(err) {
		t.Errorf("another's deadline: %v", err)
	}
}
