package openwrite_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
)

// Two attempts of each task hand their files in, and the driver commits one of each:
// the winners' rows are in the table, the losers' files go.
func TestLosersGoAndWinnersStay(t *testing.T) {
	for format := range formats {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := start(t, format)
			e := newExpected()
			w, wc := s.begin(client.WriteOptions{Key: "k"})
			var handles []client.Handle
			for range 3 {
				winner, loser := s.taken(w, wc, 10), s.taken(w, wc, 10)
				s.write(wc, 10) // one that died before it could hand anything in
				handles = append(handles, winner.handle)
				e.add(winner)
				_ = loser
			}
			rep, err := w.Commit(t.Context(), handles)
			if err != nil || rep.State != commit.CommitCommitted || rep.Rows != 30 || rep.Files != 3 {
				t.Fatalf("%+v, %v", rep, err)
			}
			s.judge(e)
			// Under the key it is there, whoever asks.
			again, err := s.BeginWrite(t.Context(), "lake.w.t", client.WriteOptions{Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := again.Context(); ok {
				t.Error("the key is open again")
			}
			if rep, err := again.Wait(t.Context()); err != nil || rep.Rows != 30 || rep.SnapshotID == "" {
				t.Errorf("%+v, %v", rep, err)
			}
		})
	}
}

// Drivers commit at once: the same handles, other handles, beside an abort and
// beside workers that still hand manifests in. One set wins, all are told which,
// and the table has exactly that.
func TestRacesOfDrivers(t *testing.T) {
	for format := range formats {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			s := start(t, format)
			e := newExpected()
			aborted, committed, late := 0, 0, 0
			for round := range rounds {
				w, wc := s.begin(client.WriteOptions{})
				a, b := s.taken(w, wc, 2), s.taken(w, wc, 3)
				c := s.write(wc, 1)
				sets := [][]attempt{{a}, {a, b}, {b}, {a}}
				var wg sync.WaitGroup
				reports, errs := make([]commit.Report, len(sets)), make([]error, len(sets))
				pause := func() { time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond) } //nolint:gosec // a race's
				for i, set := range sets {
					wg.Go(func() {
						other, err := s.ResumeWrite(t.Context(), w.Key())
						if err != nil {
							errs[i] = err
							return
						}
						pause()
						var handles []client.Handle
						for _, x := range set {
							handles = append(handles, x.handle)
						}
						reports[i], errs[i] = other.Commit(t.Context(), handles)
					})
				}
				var abortErr, putErr error
				var abortState client.WriteStatus
				if round%2 == 0 {
					wg.Go(func() { pause(); abortState, abortErr = w.Abort(t.Context()) })
				}
				wg.Go(func() { pause(); putErr = s.handIn(t.Context(), s.JoinWrite(wc), &c) })
				wg.Wait()
				if putErr != nil {
					late++
					if commit.CodeOf(putErr) != commit.CodeWriteNotOpen {
						t.Errorf("a late manifest: %v", putErr)
					}
				}
				st, err := w.Status(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				switch st.State {
				case client.WriteAborted:
					aborted++
					if round%2 != 0 || abortErr != nil || abortState.State != client.WriteAborted {
						t.Errorf("it is aborted; the abort was told %+v, %v", abortState, abortErr)
					}
					for i := range sets {
						if reports[i].State != commit.CommitNone || commit.CodeOf(errs[i]) != commit.CodeWriteNotOpen {
							t.Errorf("it is aborted, and driver %d was told %+v, %v", i, reports[i], errs[i])
						}
					}
				case client.WriteCommitted:
					committed++
					if round%2 == 0 && commit.CodeOf(abortErr) != commit.CodeWriteNotOpen {
						t.Errorf("it is committed; the abort was told %+v, %v", abortState, abortErr)
					}
					won := -1
					for i, set := range sets {
						var other *client.SealedError
						switch {
						case sameHandles(set, st.Sealed):
							won = i
							if errs[i] != nil || reports[i].State != commit.CommitCommitted {
								t.Errorf("driver %d has won and was told %+v, %v", i, reports[i], errs[i])
							}
						case !errors.As(errs[i], &other) || !slices.Equal(other.Status.Sealed, st.Sealed):
							t.Errorf("driver %d has lost and was told %+v, %v", i, reports[i], errs[i])
						}
					}
					if won < 0 {
						t.Fatalf("sealed with %v, which nobody asked for", st.Sealed)
					}
					e.add(sets[won]...)
				default:
					t.Fatalf("it is %s: %v", st.State, st.Err)
				}
				if t.Failed() {
					t.Fatalf("round %d", round)
				}
			}
			t.Logf("%d rounds: %d committed, %d aborted, %d manifests too late", rounds, committed, aborted, late)
			s.judge(e)
		})
	}
}

func sameHandles(set []attempt, sealed []client.Handle) bool {
	var handles []client.Handle
	for _, a := range set {
		handles = append(handles, a.handle)
	}
	slices.Sort(handles)
	return slices.Equal(handles, sealed)
}

// A write expires at the moment of its commit: one of the two wins, and the table is
// as it was told.
func TestExpiryBesideCommit(t *testing.T) {
	s := start(t, "iceberg")
	e := newExpected()
	var wg sync.WaitGroup
	var mu sync.Mutex
	expired, committed := 0, 0
	slots := make(chan struct{}, 50) // 100 writes may be open
	for range rounds {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			w, err := s.BeginWrite(t.Context(), "lake.w.t", client.WriteOptions{TTL: time.Second})
			if err != nil {
				t.Error(err)
				return
			}
			wc, ok := w.Context()
			if !ok {
				t.Error("it isn't open")
				return
			}
			a := s.write(wc, 1)
			if err := s.handIn(t.Context(), w, &a); err != nil {
				if commit.CodeOf(err) != commit.CodeWriteNotOpen {
					t.Errorf("hand in: %v", err)
				}
				return
			}
			wait(t, time.Until(wc.Expires)+time.Duration(rand.IntN(1500))*time.Millisecond) //nolint:gosec // a race's
			rep, err := w.Commit(t.Context(), []client.Handle{a.handle})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && rep.State == commit.CommitCommitted:
				committed++
				e.add(a)
			case commit.CodeOf(err) == commit.CodeWriteNotOpen && rep.State == commit.CommitNone:
				expired++
			default:
				t.Errorf("%+v, %v", rep, err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d committed, %d expired", committed, expired)
	s.judge(e)
}
