package placement

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
)

var (
	t0   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	full = &commit.Error{Code: commit.CodeShuffleFull, Op: "write"}
)

func fit(b *Board, up, failed []string, waited time.Duration, now time.Time) (all []string) {
	fits := b.Fit("j", up, failed, waited, now)
	for _, e := range up {
		if fits(e) {
			all = append(all, e)
		}
	}
	return all
}

func TestFit(t *testing.T) {
	up := []string{"a", "b", "c"}
	b := New()
	for range faults {
		b.Failed("c", full, t0)
	}
	b.Failed("b", full, t0) // once isn't repeatedly
	for name, c := range map[string]struct {
		up, failed []string
		waited     time.Duration
		after      time.Duration
		want       []string
	}{
		"none that fails tasks":                         {up: up, want: []string{"a", "b"}},
		"none where it failed":                          {up: up, failed: []string{"a"}, want: []string{"b"}},
		"rather one that fails tasks than where it did": {up: up, failed: []string{"a", "b"}, want: []string{"c"}},
		"everywhere once":                               {up: up, failed: up, want: []string{"a", "b"}},
		"only one is there":                             {up: []string{"c"}, failed: []string{"c"}, want: []string{"c"}},
		"it has waited long enough for another one":     {up: up, failed: []string{"a"}, waited: patience + 1, want: []string{"a", "b"}},
		"where the executor was at fault it waits on":   {up: up, failed: []string{"b"}, waited: time.Hour, want: []string{"a"}},
		"passed over for a time":                        {up: up, after: first, want: up},
	} {
		if got := fit(b, c.up, c.failed, c.waited, t0.Add(c.after)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// An executor is passed over for longer each time that it is tried in vain, up to a
// bound, and no more after a success.
func TestPassedOver(t *testing.T) {
	b := New()
	for range faults {
		if !b.Failed("e", errors.New("503"), t0).IsZero() {
			t.Fatal("passed over for what isn't its own fault")
		}
	}
	b.Failed("e", full, t0)
	now, want := t0, first
	for range 6 {
		until := b.Failed("e", full, now)
		if until.Sub(now) != want || !b.PassedOver("j", "e", until.Add(-1)) || b.PassedOver("j", "e", until) {
			t.Fatalf("passed over for %v, want %v", until.Sub(now), want)
		}
		if !b.Failed("e", full, now).IsZero() {
			t.Fatal("what ran beside it counts again")
		}
		now, want = until, min(2*want, most)
	}
	if want != most {
		t.Fatalf("the bound wasn't reached: %v", want)
	}
	b.Failed("e", full, now)
	b.Succeeded("e")
	if b.PassedOver("j", "e", now) || !b.Failed("e", full, now).IsZero() {
		t.Fatal("a success counts for nothing")
	}
	b.Failed("e", full, now)
	b.Forget("e")
	if b.PassedOver("j", "e", now) {
		t.Fatal("its next process is passed over")
	}
}

// An executor that a task couldn't reach is passed over for that job only, and not
// if it is the last one.
func TestUnreachable(t *testing.T) {
	b, up := New(), []string{"a", "b"}
	b.Unreachable("j", "a", up, t0)
	b.Unreachable("j", "b", up, t0)
	if got := fit(b, up, nil, 0, t0); !slices.Equal(got, []string{"b"}) {
		t.Fatalf("%v fit, want the last one", got)
	}
	if b.PassedOver("other", "a", t0) || b.PassedOver("", "a", t0) || b.PassedOver("j", "a", t0.Add(most)) {
		t.Fatal("passed over for another job, or for ever")
	}
	b.EndJob("j")
	if got := fit(b, up, nil, 0, t0); !slices.Equal(got, up) {
		t.Fatalf("%v fit after the job's end", got)
	}
}
