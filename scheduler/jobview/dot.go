package jobview

import (
	"fmt"
	"strings"
)

// Dot draws the job's stages for Graphviz. Each stage reads the one before it; the
// scheduler's stands at the end.
func (j *Job) Dot() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n  rankdir=LR;\n  node [shape=box];\n", j.ID)
	for i, s := range j.Stages {
		label := fmt.Sprintf("stage %s\n%d of %d tasks\n%s", s.ID, s.TasksDone, s.TaskCount, s.State)
		if s.TaskCount == 0 {
			label = s.ID + "\n" + s.State
		}
		fmt.Fprintf(&b, "  %q [label=%q];\n", s.ID, label)
		if i > 0 {
			fmt.Fprintf(&b, "  %q -> %q;\n", j.Stages[i-1].ID, s.ID)
		}
	}
	b.WriteString("}\n")
	return b.String()
}
