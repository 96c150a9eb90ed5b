package lifecycle_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// record is what a journal has: the row, and manifests. Each step is one transaction.
type record struct {
	state     lifecycle.State
	manifests map[string]lifecycle.Manifest
}

func open() *record {
	return &record{
		state:     lifecycle.State{WriteID: "w", Phase: lifecycle.Open, TTL: time.Hour, Expires: began.Add(time.Hour), MaxExpires: began.Add(3 * time.Hour)},
		manifests: map[string]lifecycle.Manifest{},
	}
}

func (r *record) step(ev lifecycle.Event) lifecycle.Verdict {
	return r.answer(ev).Verdict
}

func (r *record) answer(ev lifecycle.Event) lifecycle.Answer {
	s, a := lifecycle.Step(r.state, func(attempt string) (lifecycle.Manifest, bool) {
		m, ok := r.manifests[attempt]
		return m, ok
	}, ev)
	r.state = s
	if p, ok := ev.(lifecycle.Put); ok && a.Verdict == lifecycle.Kept {
		r.manifests[p.Manifest.Attempt] = p.Manifest
	}
	return a
}

func manifest(attempt, content string) lifecycle.Manifest {
	return lifecycle.Manifest{Attempt: attempt, Digest: strings.Repeat(content, 64), Files: 1, Rows: 10, Size: 100, Bytes: 20}
}

func put(attempt string) lifecycle.Put { return lifecycle.Put{Manifest: manifest(attempt, "a")} }

func handle(attempt string) string { return manifest(attempt, "a").Handle("w") }

func seal(attempts ...string) lifecycle.Seal {
	s := lifecycle.Seal{}
	for _, a := range attempts {
		s.Handles = append(s.Handles, handle(a))
	}
	return s
}

// TestTraces: event by event, with the verdict on each. Those of A10 are the first
// three: a commit whose reply was lost and that comes again with more handles; two
// commits with different handles at two schedulers, which is two orders of the same
// events as each is one transaction; and an abort that races a commit.
func TestTraces(t *testing.T) {
	type at struct {
		ev   lifecycle.Event
		want lifecycle.Verdict
	}
	both := []at{{put("a"), lifecycle.Kept}, {put("b"), lifecycle.Kept}}
	late := lifecycle.Expire{Now: began.Add(2 * time.Hour)}
	for name, c := range map[string]struct {
		events []at
		phase  lifecycle.Phase
		sealed []string
	}{
		"a commit comes again with more": {
			append(slices.Clone(both), at{seal("a"), lifecycle.NowSealed}, at{seal("a", "b"), lifecycle.OtherHandles}, at{seal("a"), lifecycle.Joined}),
			lifecycle.Sealed,
			[]string{"a"},
		},
		"two commits, the smaller first": {
			append(slices.Clone(both), at{seal("a"), lifecycle.NowSealed}, at{seal("b", "a"), lifecycle.OtherHandles}),
			lifecycle.Sealed,
			[]string{"a"},
		},
		"two commits, the larger first": {
			append(slices.Clone(both), at{seal("b", "a"), lifecycle.NowSealed}, at{seal("a"), lifecycle.OtherHandles}, at{seal("a", "b", "a"), lifecycle.Joined}),
			lifecycle.Sealed,
			[]string{"a", "b"},
		},
		"abort after commit": {
			append(slices.Clone(both), at{seal("a"), lifecycle.NowSealed}, at{lifecycle.Abort{}, lifecycle.NotOpen}),
			lifecycle.Sealed,
			[]string{"a"},
		},
		"commit after abort": {
			append(slices.Clone(both), at{lifecycle.Abort{}, lifecycle.NowEnded}, at{seal("a"), lifecycle.NotOpen}, at{lifecycle.Abort{}, lifecycle.NotOpen}),
			lifecycle.Aborted, nil,
		},
		"expiry after commit": {
			append(slices.Clone(both), at{seal("a", "b"), lifecycle.NowSealed}, at{late, lifecycle.NotOpen}),
			lifecycle.Sealed,
			[]string{"a", "b"},
		},
		"commit after expiry": {
			append(slices.Clone(both), at{late, lifecycle.NowEnded}, at{seal("a"), lifecycle.NotOpen}, at{put("c"), lifecycle.NotOpen}),
			lifecycle.Expired, nil,
		},
		"renewed in time": {
			[]at{{lifecycle.Renew{Now: began.Add(50 * time.Minute)}, lifecycle.Renewed}, {lifecycle.Expire{Now: began.Add(time.Hour)}, lifecycle.NotDue}},
			lifecycle.Open, nil,
		},
		"never past its age": {
			[]at{{lifecycle.Renew{Now: began.Add(150 * time.Minute)}, lifecycle.Renewed}, {lifecycle.Expire{Now: began.Add(3 * time.Hour)}, lifecycle.NowEnded}, {lifecycle.Renew{Now: began}, lifecycle.NotOpen}},
			lifecycle.Expired, nil,
		},
		"a commit that is late but before the expiry": {
			[]at{{put("a"), lifecycle.Kept}, {seal("a"), lifecycle.NowSealed}, {late, lifecycle.NotOpen}},
			lifecycle.Sealed,
			[]string{"a"},
		},
		"a manifest comes again": {
			[]at{{put("a"), lifecycle.Kept}, {put("a"), lifecycle.Known}, {lifecycle.Put{Manifest: manifest("a", "b")}, lifecycle.OtherContent}, {seal("a"), lifecycle.NowSealed}, {put("a"), lifecycle.NotOpen}, {put("b"), lifecycle.NotOpen}},
			lifecycle.Sealed,
			[]string{"a"},
		},
		"handles that are void": {
			[]at{
				{put("a"), lifecycle.Kept},
				{seal("b"), lifecycle.VoidHandle},
				{lifecycle.Seal{Handles: []string{handle("a"), "fh1.x"}}, lifecycle.VoidHandle},
				{lifecycle.Seal{Handles: []string{manifest("a", "a").Handle("other")}}, lifecycle.VoidHandle},
				{lifecycle.Seal{Handles: []string{manifest("a", "b").Handle("w")}}, lifecycle.VoidHandle},
				{put("b"), lifecycle.Kept}, // it is still open
			},
			lifecycle.Open, nil,
		},
		"no handles": {
			[]at{{put("a"), lifecycle.Kept}, {seal(), lifecycle.NowSealed}, {seal("a"), lifecycle.OtherHandles}, {seal(), lifecycle.Joined}},
			lifecycle.Sealed, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := open()
			for i, e := range c.events {
				if got := r.step(e.ev); got != e.want {
					t.Fatalf("event %d, %#v: %s; want %s", i, e.ev, got, e.want)
				}
			}
			if r.state.Phase != c.phase || !slices.Equal(slices.Sorted(slices.Values(r.state.SealedAttempts())), append([]string{}, c.sealed...)) && len(c.sealed)+len(r.state.Handles) > 0 {
				t.Errorf("it is %s with %v; want %s with %v", r.state.Phase, r.state.SealedAttempts(), c.phase, c.sealed)
			}
		})
	}
}

// A write whose job has ended isn't open, though nobody has said so to its record.
func TestEndedJob(t *testing.T) {
	for name, ev := range map[string]lifecycle.Event{"put": put("a"), "seal": seal(), "renew": lifecycle.Renew{Now: began}} {
		r := open()
		r.state.JobEnded = true
		if got := r.step(ev); got != lifecycle.NotOpen {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestLimits(t *testing.T) {
	for name, l := range map[string]lifecycle.Limits{"manifests": {Manifests: 2}, "files": {Files: 2}, "bytes": {Bytes: 41}} {
		r := open()
		for i, a := range []string{"a", "b", "c"} {
			ev := put(a)
			ev.Limits = l
			want := lifecycle.Kept
			if i == 2 {
				want = lifecycle.OverLimit
			}
			if got := r.answer(ev); got.Verdict != want || want == lifecycle.OverLimit && !strings.Contains(got.Detail, name) {
				t.Errorf("%s, %s: %+v", name, a, got)
			}
		}
		again := put("a")
		again.Limits = l
		if got := r.step(again); got != lifecycle.Known {
			t.Errorf("%s: what is there already is %s", name, got)
		}
	}
	if lifecycle.Admit(9, 4, 10, 5) != "" || lifecycle.Admit(10, 0, 10, 5) == "" || lifecycle.Admit(5, 5, 10, 5) == "" {
		t.Error("admission")
	}
}

// TestView: what is known of the table comes before everything else.
func TestView(t *testing.T) {
	in := func(p lifecycle.Phase) lifecycle.State { return lifecycle.State{Phase: p} }
	for _, c := range []struct {
		s    lifecycle.State
		j    lifecycle.Job
		want openwrite.State
	}{
		{in(lifecycle.Open), lifecycle.Job{Commit: commit.CommitNone}, openwrite.StateOpen},
		{in(lifecycle.Sealed), lifecycle.Job{Commit: commit.CommitPreparing}, openwrite.StateCommitting},
		{in(lifecycle.Sealed), lifecycle.Job{Commit: commit.CommitInFlight}, openwrite.StateCommitting},
		{in(lifecycle.Sealed), lifecycle.Job{Commit: commit.CommitUnknown}, openwrite.StateUnknown},
		{in(lifecycle.Sealed), lifecycle.Job{Ended: true, Failed: true, Commit: commit.CommitUnknown}, openwrite.StateUnknown},
		{in(lifecycle.Sealed), lifecycle.Job{Ended: true, Failed: true, Commit: commit.CommitRefused}, openwrite.StateRefused},
		{in(lifecycle.Sealed), lifecycle.Job{Ended: true, Failed: true, Commit: commit.CommitNone}, openwrite.StateFailed},
		{in(lifecycle.Sealed), lifecycle.Job{Ended: true, Cancelled: true, Commit: commit.CommitNone}, openwrite.StateAborted},
		{in(lifecycle.Sealed), lifecycle.Job{Ended: true, Cancelled: true, Commit: commit.CommitCommitted}, openwrite.StateCommitted},
		{in(lifecycle.Sealed), lifecycle.Job{Ended: true, Commit: commit.CommitNone, DryRun: true}, openwrite.StateVerified},
		{in(lifecycle.Aborted), lifecycle.Job{Commit: commit.CommitNone}, openwrite.StateAborted},
		{in(lifecycle.Expired), lifecycle.Job{Ended: true, Failed: true, Commit: commit.CommitNone}, openwrite.StateExpired},
		{in(lifecycle.Open), lifecycle.Job{Ended: true, Cancelled: true, Commit: commit.CommitNone}, openwrite.StateAborted},
		{in(""), lifecycle.Job{Ended: true, Commit: commit.CommitCommitted}, openwrite.StateCommitted},
		{in(""), lifecycle.Job{Ended: true, Commit: commit.CommitCommitted, Other: true}, openwrite.StateCommitted},
		{in(lifecycle.Sealed), lifecycle.Job{Commit: commit.CommitCommitted, Other: true}, openwrite.StateCommittedByOther},
		{in(lifecycle.Sealed), lifecycle.Job{Ended: true, Cancelled: true, Commit: commit.CommitCommitted, Other: true}, openwrite.StateCommittedByOther},
		{in(lifecycle.Sealed), lifecycle.Job{Ended: true, Failed: true, Commit: commit.CommitRefused, Other: true}, openwrite.StateRefused},
	} {
		if got := lifecycle.View(c.s, c.j); got != c.want {
			t.Errorf("%+v of %+v: %s, want %s", c.j, c.s, got, c.want)
		}
	}
	for p, want := range map[lifecycle.Phase]lifecycle.Resumption{
		lifecycle.Open: lifecycle.Reopen, lifecycle.Sealed: lifecycle.Finish, lifecycle.Aborted: lifecycle.End, lifecycle.Expired: lifecycle.End,
	} {
		if got := lifecycle.Resume(in(p)); got != want {
			t.Errorf("%s: %s", p, got)
		}
	}
}
