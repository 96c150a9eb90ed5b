package writes

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"

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
	return nil, w.fail
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
