package graph_test

import (
	"errors"
	"testing"

	"github.com/firn-project/firn/scheduler/graph"
)

// The tests here are what went wrong in other systems, by the numbers of
// docs/explanation/proven.md.

// A manifest that comes late is its attempt's, whenever it comes.
func TestScenario32_LateManifest(t *testing.T) {
	TestW1_DuplicateLateAndStaleStatusesChangeNothing(t)
}

// The first attempt fails after it was accepted for a launch; the second wins, and
// nothing that the first says later counts.
func TestScenario46_TheFailedAttemptIsNoCommitter(t *testing.T) {
	j := insert(t)
	first := j.launch(id(1, 0), "e0")
	j.fail(first, graph.Retryable, errors.New("upload failed"), nil)
	second := j.launch(id(1, 0), "e1")
	j.apply(j.success(second))
	rev := j.g.Revision()
	if acts := j.apply(j.success(first)); len(acts) != 0 || j.g.Revision() != rev {
		t.Errorf("the failed attempt was heard: %v", acts)
	}
	for _, a := range j.g.Accepted() {
		if a.Attempt == first.Attempt {
			t.Errorf("accepted %v", a)
		}
	}
}

// Two attempts of one task finish: one is accepted, whichever is first.
func TestScenario47_OneOfTwins(t *testing.T) {
	TestW1_DuplicateLateAndStaleStatusesChangeNothing(t)
}
