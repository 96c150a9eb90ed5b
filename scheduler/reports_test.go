package scheduler

import "testing"

// The tests here are what went wrong in other systems, by the numbers of
// docs/explanation/proven.md.

// The files of one task are missing from what the root reads: no commit.
func TestScenario40_AMissingPart(t *testing.T) { TestManifestThatIsShort(t) }
