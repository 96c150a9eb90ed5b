package lifecycle_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// TestModel holds random histories of several drivers, workers and a clock against
// what the protocol promises. Replies may be lost: a driver that doesn't know the
// answer asks again, with the same handles or with others.
func TestModel(t *testing.T) {
	attempts := []string{"a", "b", "c"}
	rapid.Check(t, func(rt *rapid.T) {
		r := open()
		now := began
		handed := map[string]bool{}
		var sealed []string // as the first one who was told
		told := false
		taken := 0 // how often something took it out of open
		for range rapid.IntRange(1, 40).Draw(rt, "events") {
			was := r.state
			switch rapid.IntRange(0, 5).Draw(rt, "what") {
			case 0, 1:
				a := rapid.SampledFrom(attempts).Draw(rt, "attempt")
				content := rapid.SampledFrom([]string{"a", "a", "b"}).Draw(rt, "content")
				switch v := r.step(lifecycle.Put{Manifest: manifest(a, content)}); {
				case was.Phase != lifecycle.Open && v != lifecycle.NotOpen:
					rt.Fatalf("a manifest was taken while %s: %s", was.Phase, v)
				case v == lifecycle.Kept && handed[a]:
					rt.Fatal("an attempt has two manifests")
				case v == lifecycle.Kept:
					handed[a] = true
				}
			case 2:
				set := rapid.SliceOfDistinct(rapid.SampledFrom(attempts), rapid.ID[string]).Draw(rt, "handles")
				slices.Sort(set)
				v := r.step(seal(set...))
				switch v {
				case lifecycle.NowSealed, lifecycle.Joined:
					if told && !slices.Equal(sealed, set) {
						rt.Fatalf("%v was told that it is committed, after %v was", set, sealed)
					}
					sealed, told = set, true
				case lifecycle.OtherHandles:
					if told && slices.Equal(sealed, set) {
						rt.Fatalf("%v was told that others were sealed", set)
					}
				}
				if v == lifecycle.NowSealed {
					taken++
					for _, a := range set {
						if !handed[a] {
							rt.Fatalf("sealed with the handle of %s, which handed nothing in", a)
						}
					}
				}
			case 3:
				if r.step(lifecycle.Abort{}) == lifecycle.NowEnded {
					taken++
				}
			case 4:
				now = now.Add(time.Duration(rapid.IntRange(1, 90).Draw(rt, "minutes")) * time.Minute)
				v := r.step(lifecycle.Expire{Now: now})
				if v == lifecycle.NowEnded {
					taken++
				}
				if v == lifecycle.NowEnded && now.Before(was.Expires) || v == lifecycle.NotDue && !now.Before(was.Expires) {
					rt.Fatalf("at %s, which expires at %s: %s", now, was.Expires, v)
				}
			case 5:
				r.step(lifecycle.Renew{Now: now})
			}
			switch {
			case taken > 1:
				rt.Fatal("two of seal, abort and expiry won")
			case (taken == 1) != (r.state.Phase != lifecycle.Open):
				rt.Fatalf("it is %s, and %d took it out of open", r.state.Phase, taken)
			case was.Phase != lifecycle.Open && was.Phase != r.state.Phase:
				rt.Fatalf("%s became %s", was.Phase, r.state.Phase)
			case was.Phase == lifecycle.Sealed && !slices.Equal(was.Handles, r.state.Handles):
				rt.Fatal("the seal changed")
			case r.state.Expires.After(r.state.MaxExpires):
				rt.Fatal("it was renewed past its age")
			}
		}
	})
}
