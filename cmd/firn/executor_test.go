package main

import (
	"strings"
	"testing"

	"github.com/firn-project/firn/internal/render"
)

// People see one of the jobs that an executor holds and how many more; programs see all.
func TestExecutorListHolds(t *testing.T) {
	list := []executorStateJSON{{ID: "e-1", Holds: []string{"j-1", "j-2", "j-3"}}, {ID: "e-2", Holds: []string{"j-4"}}, {ID: "e-3"}}
	for format, want := range map[render.Format]string{render.Text: "j-1 and 2 more", render.CSV: "j-1 j-2 j-3", render.JSON: `["j-1","j-2","j-3"]`} {
		var out strings.Builder
		if err := listExecutors(&out, format, list); err != nil || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "j-4") {
			t.Errorf("%s: got %v, %s", format, err, out.String())
		}
	}
}
