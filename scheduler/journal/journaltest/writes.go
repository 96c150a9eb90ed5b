package journaltest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// beginWrite puts an open write with its job on record.
func beginWrite(t *testing.T, j journal.Journal, id string) lifecycle.State {
	t.Helper()
	s := lifecycle.State{WriteID: id, Phase: lifecycle.Open, TTL: time.Hour, Expires: at.Add(time.Hour), MaxExpires: at.Add(24 * time.Hour)}
	must(t, j.Write(t.Context(), journal.Batch{
		Jobs: []journal.Job{Job(id, id)}, Writes: []lifecycle.State{s},
		Started: []journal.Attempt{{ID: "a-" + id, JobID: id, Prefix: "file:///w/data/" + id + "/", Started: at}},
	}))
	return s
}

// endWrite puts the end of a write's job on record.
func endWrite(t *testing.T, j journal.Journal, id string) {
	t.Helper()
	job := Job(id, id)
	job.State, job.Ended = "ended", at.Add(time.Second)
	must(t, j.PutJob(t.Context(), job))
}

func handedIn(attempt, content string) lifecycle.Put {
	return lifecycle.Put{Manifest: lifecycle.Manifest{Attempt: attempt, Digest: strings.Repeat(content, 64), Files: 2, Rows: 20, Size: 200, Bytes: 7}}
}

func step(t *testing.T, j journal.Journal, id string, ev lifecycle.Event, body string, want lifecycle.Verdict) lifecycle.State {
	t.Helper()
	s, a, err := j.StepWrite(t.Context(), id, ev, []byte(body))
	must(t, err)
	if a.Verdict != want {
		t.Fatalf("%#v: %+v, want %s", ev, a, want)
	}
	return s
}

func testWrites(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	if _, _, err := j.StepWrite(ctx, "j-none", lifecycle.Abort{}, nil); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("a write that there isn't: %v", err)
	}
	begun := beginWrite(t, j, "j-1")
	beginWrite(t, j, "j-2")
	got, err := j.WriteState(ctx, "j-1")
	must(t, err)
	if got.Phase != begun.Phase || got.TTL != begun.TTL || !got.Expires.Equal(begun.Expires) || !got.MaxExpires.Equal(begun.MaxExpires) || got.JobEnded {
		t.Fatalf("%+v, want %+v", got, begun)
	}
	large := strings.Repeat("m", 2<<20)
	step(t, j, "j-1", handedIn("b", "b"), large, lifecycle.Kept)
	step(t, j, "j-1", handedIn("a", "a"), "small", lifecycle.Kept)
	step(t, j, "j-1", handedIn("a", "a"), "small", lifecycle.Known)
	step(t, j, "j-1", handedIn("a", "c"), "other", lifecycle.OtherContent)
	over := handedIn("c", "c")
	over.Limits.Files = 5
	step(t, j, "j-1", over, "over", lifecycle.OverLimit)
	step(t, j, "j-2", handedIn("a", "d"), "of another write", lifecycle.Kept)

	all, err := j.WriteManifests(ctx, "j-1")
	must(t, err)
	if want := []lifecycle.Manifest{handedIn("a", "a").Manifest, handedIn("b", "b").Manifest}; !slices.Equal(all, want) {
		t.Fatalf("%+v, want %+v", all, want)
	}
	for attempt, want := range map[string]string{"a": "small", "b": large} {
		body, err := j.WriteManifest(ctx, "j-1", attempt)
		must(t, err)
		if !bytes.Equal(body, []byte(want)) {
			t.Fatalf("the manifest of %s has %d bytes", attempt, len(body))
		}
	}
	if _, err := j.WriteManifest(ctx, "j-1", "c"); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("a manifest that was refused: %v", err)
	}
	s := step(t, j, "j-1", lifecycle.Renew{Now: at.Add(time.Minute)}, "", lifecycle.Renewed)
	if s.Manifests != 2 || s.Files != 4 || s.Bytes != 14 || !s.Expires.Equal(at.Add(time.Hour+time.Minute)) {
		t.Fatalf("%+v", s)
	}
	running, err := j.RunningWrites(ctx)
	must(t, err)
	if len(running) != 2 || running[0].WriteID != "j-1" || running[0].Files != 4 {
		t.Fatalf("%+v", running)
	}
	h := handedIn("a", "a").Manifest.Handle("j-1")
	void := handedIn("b", "a").Manifest.Handle("j-1")
	step(t, j, "j-1", lifecycle.Seal{Handles: []string{h, void}}, "", lifecycle.VoidHandle)
	step(t, j, "j-1", lifecycle.Seal{Handles: []string{h, h}}, "", lifecycle.NowSealed)
	step(t, j, "j-1", handedIn("d", "d"), "late", lifecycle.NotOpen)
	step(t, j, "j-1", lifecycle.Expire{Now: at.Add(100 * time.Hour)}, "", lifecycle.NotOpen)
	if got, err = j.WriteState(ctx, "j-1"); err != nil || got.Phase != lifecycle.Sealed || !slices.Equal(got.Handles, []string{h}) || got.Digest == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	step(t, j, "j-2", lifecycle.Abort{}, "", lifecycle.NowEnded)
	if running, err = j.RunningWrites(ctx); err != nil || len(running) != 2 || running[0].Phase != lifecycle.Sealed || running[0].Handles != nil || running[1].Phase != lifecycle.Aborted {
		t.Fatalf("%+v, %v", running, err)
	}
}

// testWriteHasOneSeal: of many that want to seal, abort or expire a write at the same
// time, one wins, and all are told of the same.
func testWriteHasOneSeal(t *testing.T, j journal.Journal) {
	for round := range 20 {
		id := fmt.Sprint("j-", round)
		beginWrite(t, j, id)
		a, b := handedIn("a", "a"), handedIn("b", "b")
		step(t, j, id, a, "a", lifecycle.Kept)
		step(t, j, id, b, "b", lifecycle.Kept)
		ha, hb := a.Manifest.Handle(id), b.Manifest.Handle(id)
		events := []lifecycle.Event{
			lifecycle.Seal{Handles: []string{ha}},
			lifecycle.Seal{Handles: []string{ha, hb}},
			lifecycle.Seal{Handles: []string{hb, ha}},
			lifecycle.Abort{},
			lifecycle.Expire{Now: at.Add(2 * time.Hour)},
		}
		verdicts := make([]lifecycle.Verdict, len(events))
		var wg sync.WaitGroup
		for i, ev := range events {
			wg.Go(func() {
				_, answer, err := j.StepWrite(t.Context(), id, ev, nil)
				if err != nil {
					t.Error(err)
				}
				verdicts[i] = answer.Verdict
			})
		}
		wg.Wait()
		won := 0
		for _, v := range verdicts {
			if v == lifecycle.NowSealed || v == lifecycle.NowEnded {
				won++
			}
		}
		s, err := j.WriteState(t.Context(), id)
		must(t, err)
		small, large := verdicts[0], verdicts[1:3]
		told := func(v lifecycle.Verdict) bool { return v == lifecycle.NowSealed || v == lifecycle.Joined }
		if won != 1 || told(small) && (told(large[0]) || told(large[1])) || told(large[0]) != told(large[1]) || (s.Phase == lifecycle.Sealed) != (told(small) || told(large[0])) {
			t.Fatalf("%v, and it is %s with %d handles", verdicts, s.Phase, len(s.Handles))
		}
	}
}

// testWriteEndsWithItsJob: when the job has ended, its write isn't open, and its
// manifests are forgotten; the prefix that it had is due for its sweeps.
func testWriteEndsWithItsJob(t *testing.T, j journal.Journal) {
	ctx := t.Context()
	beginWrite(t, j, "j-1")
	step(t, j, "j-1", handedIn("a", "a"), "a", lifecycle.Kept)
	endWrite(t, j, "j-1")
	step(t, j, "j-1", handedIn("b", "b"), "b", lifecycle.NotOpen)
	step(t, j, "j-1", lifecycle.Seal{Handles: []string{handedIn("a", "a").Manifest.Handle("j-1")}}, "", lifecycle.NotOpen)
	if all, err := j.WriteManifests(ctx, "j-1"); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if running, err := j.RunningWrites(ctx); err != nil || len(running) != 0 {
		t.Errorf("%+v, %v", running, err)
	}
	sweeps, err := j.Sweeps(ctx)
	must(t, err)
	if len(sweeps) != 1 || sweeps[0].JobID != "j-1" {
		t.Fatalf("%+v", sweeps)
	}
	must(t, j.Swept(ctx, "j-1", true))
	if n, err := j.Prune(ctx, at.Add(time.Hour)); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if _, err := j.WriteState(ctx, "j-1"); !errors.Is(err, journal.ErrNotFound) {
		t.Errorf("after the job was forgotten: %v", err)
	}
}

// testWriteTakenOver: a process that was deposed neither seals nor takes a manifest,
// and what it had on record stands for the next one.
func testWriteTakenOver(t *testing.T, o Opener) {
	old := open(t, o)
	beginWrite(t, old, "j-1")
	step(t, old, "j-1", handedIn("a", "a"), "a", lifecycle.Kept)
	now := open(t, o)
	for _, ev := range []lifecycle.Event{lifecycle.Abort{}, handedIn("b", "b"), lifecycle.Seal{}, lifecycle.Expire{Now: at.Add(2 * time.Hour)}} {
		if _, _, err := old.StepWrite(t.Context(), "j-1", ev, nil); !errors.Is(err, journal.ErrDeposed) {
			t.Errorf("%#v by a deposed process: %v", ev, err)
		}
	}
	s := step(t, now, "j-1", lifecycle.Seal{Handles: []string{handedIn("a", "a").Manifest.Handle("j-1")}}, "", lifecycle.NowSealed)
	if body, err := now.WriteManifest(t.Context(), "j-1", s.SealedAttempts()[0]); err != nil || string(body) != "a" {
		t.Errorf("%q, %v", body, err)
	}
}
