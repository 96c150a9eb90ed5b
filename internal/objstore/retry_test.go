package objstore

import (
	"testing"
	"time"
)

// TestDelay: the waits between tries double up to the longest one, and writers that
// were throttled together don't come back together.
func TestDelay(t *testing.T) {
	u := &tuning{pause: 100 * time.Millisecond, longest: 5 * time.Second}
	for attempt, most := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 3: 400 * time.Millisecond, 6: 3200 * time.Millisecond,
		7: 5 * time.Second, 20: 5 * time.Second, 1000: 5 * time.Second,
	} {
		seen := map[time.Duration]bool{}
		for range 50 {
			d := u.delay(attempt)
			seen[d] = true
			if d < most/2 || d > most {
				t.Errorf("after try %d: %v, want %v to %v", attempt, d, most/2, most)
			}
		}
		if len(seen) < 2 {
			t.Errorf("after try %d it's always the same", attempt)
		}
	}
}
