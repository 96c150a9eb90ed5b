package openwrite_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/cluster"
)

// second starts another scheduler on the stand's catalog.
func (s *stand) second() *client.Client {
	s.t.Helper()
	catalogs, err := cluster.DefaultCatalogs(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	cl, err := cluster.Start(s.t.Context(), cluster.Config{Dir: s.t.TempDir(), Catalogs: catalogs, Executors: cluster.NoExecutors, CheckAllFiles: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := cl.Close(context.Background()); err != nil {
			s.t.Errorf("close: %v", err)
		}
	})
	return s.dial(s.t, cl.Addr())
}

// Drivers of two live schedulers commit to one table under one key, one after the other
// and at once: exactly one is told that its handles are committed, the other that they
// aren't, and table and store have it so.
func TestTwoSchedulersOneKey(t *testing.T) {
	s := start(t, "iceberg")
	e := newExpected()
	clients := []*client.Client{s.Client, s.second()}
	for round := range 6 {
		key := client.NewKey()
		var open [2]*client.Write
		var sets [2][]attempt
		var reports [2]commit.Report
		var errs [2]error
		for i, c := range clients {
			w, err := c.BeginWrite(t.Context(), "lake.w.t", client.WriteOptions{Key: key})
			if err != nil {
				t.Fatal(err)
			}
			wc, ok := w.Context()
			if !ok {
				t.Fatalf("write %s isn't open", w.ID())
			}
			open[i], sets[i] = w, []attempt{s.taken(w, wc, 1+i), s.taken(w, wc, 2)}
		}
		do := func(i int) {
			reports[i], errs[i] = open[i].Commit(t.Context(), []client.Handle{sets[i][0].handle, sets[i][1].handle})
		}
		var wg sync.WaitGroup
		for i := range clients {
			if round < 2 {
				do((round + i) % 2)
			} else {
				wg.Go(func() { do(i) })
			}
		}
		wg.Wait()
		won := 0
		if errs[0] != nil {
			won = 1
		}
		lost := 1 - won
		var other *client.SealedError
		if rep := reports[won]; errs[won] != nil || rep.OtherSubmission || rep.State != commit.CommitCommitted || rep.Rows != int64(3+won) {
			t.Errorf("round %d, the one that won: %+v, %v", round, rep, errs[won])
		}
		if rep := reports[lost]; !errors.As(errs[lost], &other) || other.Status.State != client.WriteCommittedByOther || other.Status.Sealed != nil ||
			!rep.OtherSubmission || rep.SnapshotID != reports[won].SnapshotID || rep.Rows != reports[won].Rows {
			t.Errorf("round %d, the one that lost: %+v, %v", round, rep, errs[lost])
		}
		again, err := clients[lost].ResumeWrite(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := again.Wait(t.Context()); !errors.As(err, &other) || !rep.OtherSubmission {
			t.Errorf("round %d, resumed: %+v, %v", round, rep, err)
		}
		e.add(sets[won]...)
	}
	s.judge(e)
}
