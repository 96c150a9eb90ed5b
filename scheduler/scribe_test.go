package scheduler

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/firn-project/firn/scheduler/journal"
)

// What comes while a transaction is under way goes into the next one together,
// in order, and nobody hears of it before it is durable.
func TestScribeWritesTogether(t *testing.T) {
	var mu sync.Mutex
	var batches [][]string
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	w := newScribe(func(_ context.Context, b journal.Batch) error {
		arrived <- struct{}{}
		<-release
		mu.Lock()
		defer mu.Unlock()
		batches = append(batches, b.Ended)
		return nil
	})
	told := make(chan string, 10)
	put := func(id string) {
		w.put(note{batch: journal.Batch{Ended: []string{id}}, after: []func(error){func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil || !slices.Contains(slices.Concat(batches...), id) {
				t.Errorf("%s was told before it was written: %v", id, err)
			}
			told <- id
		}}})
	}
	put("a")
	receive(t, arrived, "write")
	put("b")
	put("c")
	put("d")
	close(release)
	for _, want := range []string{"a", "b", "c", "d"} {
		if got := receive(t, told, "answer"); got != want {
			t.Fatalf("told of %s before %s", got, want)
		}
	}
	w.close()
	if len(batches) != 2 || !slices.Equal(batches[1], []string{"b", "c", "d"}) {
		t.Fatalf("transactions %v", batches)
	}
}

// One record that can't be written doesn't take the others along.
func TestScribeIsolatesABadRecord(t *testing.T) {
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	bad := errors.New("bad")
	w := newScribe(func(_ context.Context, b journal.Batch) error {
		arrived <- struct{}{}
		<-release
		if slices.Contains(b.Ended, "bad") {
			return bad
		}
		return nil
	})
	w.put(note{batch: journal.Batch{Ended: []string{"first"}}})
	receive(t, arrived, "write")
	results := map[string]chan error{}
	for _, id := range []string{"good", "bad", "fine"} {
		done := make(chan error, 1)
		results[id] = done
		w.put(note{batch: journal.Batch{Ended: []string{id}}, after: []func(error){func(err error) { done <- err }}})
	}
	close(release)
	for id, done := range results {
		if err := receive(t, done, "answer"); (id == "bad") != errors.Is(err, bad) {
			t.Errorf("%s: %v", id, err)
		}
	}
	w.close()
	if err := w.record(t.Context(), journal.Batch{}); err == nil {
		t.Error("a closed scribe wrote")
	}
}
