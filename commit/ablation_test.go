package commit_test

import (
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

// TestAblations breaks each part of the protocol, one at a time, and explores a
// small world in which that part is needed. The exploration must find the
// invariant that the part protects broken, and the same world whole with it.
func TestAblations(t *testing.T) {
	type world = committest.Exploration
	type brk = committest.Break
	covered := map[string]bool{}
	for _, c := range []struct {
		// part is what is broken in the machine, or a name for what is broken
		// in the world.
		part string
		// want is what the violation begins with.
		want  string
		world world
		// broken changes the world when the part isn't the machine's.
		broken func(*world)
	}{
		{
			part: "tokens are looked for in the head's history only", want: "I6",
			world: world{Jobs: 1, Faults: 1, Events: 2, Foreign: []string{"rollback", "append"}},
		},
		{
			part: "own snapshot ids aren't looked for", want: "I6",
			world: world{Mode: committest.Mode{StripTokens: true, NoLedger: true}, Jobs: 1},
		},
		{
			part: "the ledger isn't looked into", want: "I6",
			world: world{Jobs: 1, Faults: 1, Events: 2, Foreign: []string{"append", "expire"}},
		},
		{
			part: "every read is taken to show everything", want: "I",
			world: world{Mode: committest.Mode{NoLedger: true}, Jobs: 1, Faults: 1, Events: 2, Foreign: []string{"append", "expire"}},
		},
		{
			part: "no send record", want: "I",
			world: world{Jobs: 1, Faults: 1, Takeovers: 1, Events: 1, Foreign: []string{"drop column", "add column"}, Cancel: true},
		},
		{
			part: "a cancel wins after the point of no return", want: "I",
			world: world{Jobs: 1, Faults: 1, Cancel: true},
		},
		{
			part: "a moved head is taken for a taken seat", want: "I",
			world: world{Jobs: 1, Faults: 2, Events: 2, Foreign: []string{"rollback", "newest"}, Deadline: true},
		},
		{
			part: "refused while requests are alive", want: "I",
			world: world{Jobs: 1, Faults: 1, Deadline: true},
		},
		{
			part: "a 4xx speaks for all copies", want: "I",
			world: world{Jobs: 1, Faults: 2},
		},
		{
			part: "a 409 speaks for its copy", want: "I2",
			world: world{Jobs: 1, Faults: 1, Events: 2, Foreign: []string{"rollback", "newest"}, Deadline: true},
		},
		{
			part: "a batch's refusal is everybody's", want: "C1",
			world: world{Jobs: 2, Poison: 1},
		},
		{
			part: "a token twice in a request", want: "I1",
			world: world{Jobs: 2, SameKey: true},
		},
		{
			part: "a fence that was sent has landed", want: "I",
			world: world{Jobs: 1, Faults: 2, Takeovers: 1, Fence: true},
		},
		{
			part: "seats that can be taken back count as taken", want: "I",
			world: world{Mode: committest.Mode{TakesBack: true}, Jobs: 1, Faults: 1, Events: 1, Foreign: []string{"compaction"}, Deadline: true},
		},
		{
			part: "overwrites without a seat", want: "I6",
			world: world{Mode: committest.Mode{NullParent: true}, Operation: commit.OperationOverwrite, Empty: true, Jobs: 1, Faults: 1, Events: 2, Foreign: []string{"append", "truncate"}},
		},
		{
			part: "overwrites don't mind what others did", want: "I8",
			world:  world{Operation: commit.OperationOverwrite, Claims: true, Jobs: 2, Events: 1, Foreign: []string{"append"}},
			broken: func(w *world) { w.Break = brk{Conflicts: true} },
		},
		{
			part: "the table doesn't check the seat", want: "I",
			world:  world{Jobs: 1, Faults: 1, Events: 2, Foreign: []string{"append", "rollback"}},
			broken: func(w *world) { w.Mode.Overlook = true },
		},
		{
			part: "the request doesn't assert the branch's head", want: "I8",
			world:  world{Jobs: 1, Events: 1, Foreign: []string{"rollback"}},
			broken: func(w *world) { w.Mode.NoRef = true },
		},
		{
			part: "the request doesn't assert schema and spec", want: "I12",
			world:  world{Jobs: 1, Events: 1, Foreign: []string{"drop column"}},
			broken: func(w *world) { w.Mode.NoSchema = true },
		},
		{
			part: "the epoch isn't compared in the same transaction", want: "I",
			world:  world{Jobs: 1, Faults: 1, Takeovers: 1, Events: 1, Foreign: []string{"drop column"}, Cancel: true},
			broken: func(w *world) { w.Break = brk{Epoch: true} },
		},
		{
			part: "a restarted root seals again", want: "I4",
			world:  world{Jobs: 1, Attempts: 2, Faults: 1, Takeovers: 1},
			broken: func(w *world) { w.Break = brk{Seal: true} },
		},
		{
			part: "files are deleted before the refusal is final", want: "I4",
			world:  world{Jobs: 1, Faults: 1, Deadline: true},
			broken: func(w *world) { w.Break = brk{Delete: true} },
		},
		{
			part: "the journal's row lets a cancel win after the permit", want: "I",
			world:  world{Jobs: 1, Faults: 1, Takeovers: 1, Cancel: true},
			broken: func(w *world) { w.Break = brk{Permit: true} },
		},
	} {
		t.Run(c.part, func(t *testing.T) {
			c.world.Name = "whole"
			c.world.Limit = 3_000_000
			whole := committest.Explore(c.world)
			t.Log(whole)
			if whole.Violation != "" || !whole.Complete {
				t.Errorf("with the part in place:\n%s", whole)
			}
			broken := c.world
			broken.Name = "broken"
			if c.broken != nil {
				c.broken(&broken)
			} else {
				broken.New = commit.NewAblated(c.part)
				covered[c.part] = true
			}
			r := committest.Explore(broken)
			t.Log(r)
			if !strings.HasPrefix(r.Violation, c.want) {
				t.Errorf("found %q, want a violation of %s", r.Violation, c.want)
			}
		})
	}
	for _, name := range commit.Ablations() {
		if !covered[name] {
			t.Errorf("no exploration is broken by: %s", name)
		}
	}
}
