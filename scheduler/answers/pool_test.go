package answers_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/answers"
)

const mib = 1 << 20

// The first one goes on where others wait, the others after it; small ones don't wait.
func TestPoolGivesTheFirstItsHalf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := answers.NewPool(100 * mib)
		first, second, third, small := pool.Join(), pool.Join(), pool.Join(), pool.Join()
		hold := func(s *answers.Share, n int64) chan error {
			done := make(chan error, 1)
			go func() { done <- s.Hold(t.Context(), n) }()
			synctest.Wait()
			return done
		}
		is := func(name string, done chan error, want bool) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-done:
				if !want || err != nil {
					t.Errorf("%s got it: %v", name, err)
				}
			default:
				if want {
					t.Errorf("%s waits", name)
				}
			}
		}
		is("the first", hold(first, 20*mib), true)
		is("the second", hold(second, 30*mib), true)
		waits := hold(third, 2*mib)
		is("the third", waits, false)
		is("a small one", hold(small, mib), true)
		is("the first, beyond what is free", hold(first, 50*mib), true)
		if used, jobs := pool.Used(); used != 81*mib || jobs != 3 {
			t.Errorf("%d bytes of %d jobs", used, jobs)
		}
		if err := first.Hold(t.Context(), 51*mib); err == nil {
			t.Error("more than half of all")
		}
		is("the third", waits, false)
		first.Leave()
		is("the third", waits, true)
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := third.Hold(late, 25*mib); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		for _, s := range []*answers.Share{second, third, third, small} {
			s.Leave()
		}
		if used, jobs := pool.Used(); used != 0 || jobs != 0 {
			t.Errorf("%d bytes of %d jobs are left", used, jobs)
		}
	})
}

// Whatever jobs do, what they hold stays below the limit, and all of them end.
func TestPoolNeverDeadlocks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		jobs := rapid.SliceOfN(rapid.SliceOfN(rapid.Int64Range(0, 50), 1, 5), 1, 8).Draw(rt, "jobs")
		synctest.Test(t, func(t *testing.T) {
			pool := answers.NewPool(100 * mib)
			ended := make(chan error, len(jobs))
			for _, steps := range jobs {
				go func() {
					s := pool.Join()
					defer s.Leave()
					var held int64
					for _, n := range steps {
						if held = max(held, n*mib); held > 0 {
							if err := s.Hold(t.Context(), held); err != nil {
								ended <- err
								return
							}
						}
						if used, _ := pool.Used(); used > int64(100+len(jobs))*mib {
							t.Errorf("%d bytes are held", used)
						}
						time.Sleep(time.Millisecond) // of the bubble: so that others come in between
					}
					ended <- nil
				}()
			}
			for range jobs {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	})
}

// What others hold isn't the executor's fault.
func TestWaitPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, w := answers.NewWait(t.Context(), time.Second)
		defer w.End()
		resume := w.Pause()
		time.Sleep(time.Hour)
		if resume(); ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("after the pause nobody looks at the time")
		}
	})
}

func TestKeepSaysWhoseTheyAre(t *testing.T) {
	var p commit.Packer
	for range 30 {
		p.Add(commit.File{Attempt: string(make([]byte, mib))})
	}
	err := answers.NewPool(50*mib).Join().Keep(t.Context(), &p, "a-7")
	if commit.CodeOf(err) != commit.CodeVerification || commit.ReasonOf(err) != commit.ReasonValidation {
		t.Error(err)
	}
}
