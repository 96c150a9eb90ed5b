package iceberg_test

import "testing"

// Thousands of files go into few manifests, by its number in
// docs/explanation/proven.md.
func TestScenario58_ManifestsReachTheirSize(t *testing.T) { TestTrapB9_ManifestsAreRolled(t) }
