package writes

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// watched notes how many places are taken while what is expensive about a manifest
// goes on.
type watched struct {
	Host
	Journal
	s *Service
	// fail is what the store answers.
	fail error
	held []int
}

func (w *watched) note() {
	place := w.s.reading.writes["w"]
	if place == nil || len(place.slots) != len(w.s.slots) {
		w.held = append(w.held, -1)
		return
	}
	w.held = append(w.held, len(w.s.slots))
}

func (w *watched) Find(context.Context, string) (Write, error) {
	target := plan.Pinned{Format: "delta", SchemaJSON: []byte(`{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}`), SpecJSON: []byte(`[]`)}
	return Write{Plan: &plan.Commit{Prefix: "x/", Target: target}}, nil
}

func (w *watched) Store(context.Context, Write) (objstore.Store, error) {
	w.note()
	return objstore.New(objstore.Config{}), w.fail
}

func (w *watched) WriteState(context.Context, string) (lifecycle.State, error) {
	return lifecycle.State{Phase: lifecycle.Open}, nil
}

func (w *watched) StepWrite(context.Context, string, lifecycle.Event, []byte) (lifecycle.State, lifecycle.Answer, error) {
	w.note()
	return lifecycle.State{}, lifecycle.Answer{Verdict: lifecycle.Kept}, nil
}

// TestAManifestKeepsItsPlaceToItsEnd: while its files are looked at and while it's put
// on record it takes memory just as while it is read.
func TestAManifestKeepsItsPlaceToItsEnd(t *testing.T) {
	w := &watched{fail: errors.New("the store is down")}
	s := New(Parts{Host: w, Journal: w, Deriver: noDeriver{}, Logger: slog.New(slog.DiscardHandler)})
	s.handInTime = time.Minute
	w.s = s
	handIn := func(batch arrow.RecordBatch) error {
		defer batch.Release()
		messages := messagesOf(t, batch)
		messages[0].FlightDescriptor = &flight.FlightDescriptor{Path: []string{openwrite.DescriptorManifest, "w", "a"}}
		_, err := s.handIn(&stream{ctx: t.Context(), messages: messages})
		return err
	}
	if err := handIn(complete(t)); err != nil {
		t.Error(err)
	}
	if err := handIn(onlyPaths(t, "x/a-1")); !errors.Is(err, w.fail) {
		t.Error(err)
	}
	if len(w.held) != 2 || w.held[0] != 1 || w.held[1] != 1 {
		t.Errorf("places that were taken: %v, want 1 each", w.held)
	}
	if len(s.slots) != 0 || len(s.reading.writes) != 0 {
		t.Errorf("%d places are taken, and of writes %v", len(s.slots), s.reading.writes)
	}
}

type noDeriver struct{ Deriver }

// binding counts how often a table is bound.
type binding struct{ tables, files atomic.Int32 }

func (b *binding) For(plan.Pinned) (func(context.Context, objstore.Store, string, openwrite.PathsRow) (commit.File, error), error) {
	b.tables.Add(1)
	return func(_ context.Context, _ objstore.Store, attempt string, row openwrite.PathsRow) (commit.File, error) {
		b.files.Add(1)
		f := file(row.Path)
		f.Attempt = attempt
		return f, nil
	}, nil
}

// TestATableIsBoundOnce: however many files a manifest has.
func TestATableIsBoundOnce(t *testing.T) {
	w, b := &watched{}, &binding{}
	s := New(Parts{Host: w, Journal: w, Deriver: b, Logger: slog.New(slog.DiscardHandler)})
	w.s = s
	m := read(t, onlyPaths(t, "x/a-1", "x/a-2", "x/a-3"))
	write, err := w.Find(t.Context(), "w")
	if err == nil {
		err = s.derive(t.Context(), write, &m)
	}
	if err != nil || b.tables.Load() != 1 || b.files.Load() != 3 || len(m.files) != 3 || m.files[2].Path != "x/a-3" {
		t.Errorf("%d tables for %d files: %v, %v", b.tables.Load(), b.files.Load(), m.files, err)
	}
}

// silent is a store that doesn't answer.
type silent struct{}

func (silent) For(plan.Pinned) (func(context.Context, objstore.Store, string, openwrite.PathsRow) (commit.File, error), error) {
	return func(ctx context.Context, _ objstore.Store, _ string, _ openwrite.PathsRow) (commit.File, error) {
		<-ctx.Done()
		return commit.File{}, ctx.Err()
	}, nil
}

// TestAStoreThatDoesNotAnswer: whoever hands in files of it leaves the place to others
// after a while.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &watched{}
		s := New(Parts{Host: w, Journal: w, Deriver: silent{}, Logger: slog.New(slog.DiscardHandler)})
		w.s = s
		batch := onlyPaths(t, "x/a-1", "x/a-2")
		defer batch.Release()
		messages := messagesOf(t, batch)
		messages[0].FlightDescriptor = &flight.FlightDescriptor{Path: []string{openwrite.DescriptorManifest, "w", "a"}}
		began := time.Now()
		_, err := s.handIn(&stream{ctx: t.Context(), messages: messages})
		if took := time.Since(began); commit.CodeOf(err) != commit.CodeStorage || took > handInTime || len(s.slots) != 0 {
			t.Errorf("%v after %s; %d places are taken", err, took, len(s.slots))
		}
	})
}
