package committest_test

import (
	"testing"

	"github.com/firn-project/firn/commit/committest"
)

func TestExploreTry(t *testing.T) {
	for _, e := range []committest.Exploration{
		{Name: "one", Jobs: 1, Attempts: 1, Faults: 1, Takeovers: 1, Events: 1, Foreign: []string{"append", "rollback", "expire", "add column", "drop column"}, Deadline: true, Cancel: true},
		{Name: "two", Jobs: 2, Attempts: 1, Faults: 1, Takeovers: 1, Events: 1, Foreign: []string{"append"}},
	} {
		r := committest.Explore(e)
		t.Log(r, r.Ends)
	}
}
