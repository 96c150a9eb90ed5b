package executor

import "testing"

// TestIfIdle: what a job holds isn't taken away while an attempt of it runs, nor between
// the look and the taking: an attempt that comes then waits, and finds it gone.
func TestIfIdle(t *testing.T) {
	r := &runner{active: map[string]*active{"a-1": {job: "j-1"}}, seen: map[string]bool{}, draining: true}
	r.ifIdle("j-1", func() { t.Error("it has an attempt") })
	taken := false
	r.ifIdle("j-2", func() {
		taken = true
		if r.mu.TryLock() {
			r.mu.Unlock()
			t.Error("an attempt could be launched meanwhile")
		}
	})
	if !taken {
		t.Error("it has no attempt")
	}
}
