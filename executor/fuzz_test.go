package executor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// FuzzTask: whatever a task's definition holds, the attempt ends with a status and
// the executor goes on.
func FuzzTask(f *testing.F) {
	own := "file://" + f.TempDir() + "/"
	for _, n := range []plan.Node{
		query("rows 3"), &plan.Exchange{Input: query("rows 3"), How: plan.ExchangeRoundRobin, Partitions: 2},
		&plan.Coalesce{Input: query("rows 3"), Limit: new(int64(1))}, &plan.ShuffleRead{Locations: []plan.ShuffleLocation{{Job: "j-1", Attempt: "a"}}},
		&plan.Write{Input: query("rows 1"), Context: plan.WriteContext{Prefix: own, Layout: plan.Layout{Format: "fake"}}},
	} {
		raw, err := proto.Marshal(def(f, "a", n))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	h := start(f, newScheduler(f, "push"), nil)
	n := 0
	f.Fuzz(func(t *testing.T, raw []byte) {
		var d firnpb.TaskDefinition
		if proto.Unmarshal(raw, &d) != nil || d.GetOutputs() > 1000 {
			return
		}
		node, err := plan.Decode(d.GetFragment())
		if err == nil && (waits(node) || strays(node, own)) {
			return
		}
		n++
		d.AttemptId = fmt.Sprintf("fuzz-%d", n)
		h.launch(t, &d)
		for {
			st := <-h.statuses
			if st.GetAttemptId() == d.GetAttemptId() && st.GetState() != "running" {
				return
			}
		}
	})
}

// waits says whether a task would do what takes its time by design: a fake query
// that blocks, many partitions, or a read that is tried again.
func waits(n plan.Node) bool {
	switch n := n.(type) {
	case *plan.Query:
		return n.SQL != "rows 3" && n.SQL != "rows 1"
	case *plan.ShuffleRead:
		return len(n.Locations) > 0
	case *plan.Exchange:
		return n.Partitions > 100 || waits(n.Input)
	}
	return slices.ContainsFunc(n.Inputs(), waits)
}

// strays says whether a task would write anywhere but below own: what is made up
// here must not lie about on the machine that tries it.
func strays(n plan.Node, own string) bool {
	if w, ok := n.(*plan.Write); ok && (!strings.HasPrefix(w.Context.Prefix, own) || strings.Contains(w.Context.Prefix, "..")) {
		return true
	}
	return slices.ContainsFunc(n.Inputs(), func(in plan.Node) bool { return strays(in, own) })
}
