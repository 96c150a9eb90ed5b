package planner

import (
	"fmt"
	"strings"

	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
)

// Explain writes a job as text: the root on top, then the stages from the final
// one down to the first, each with its operators. ran is how the stages of a job
// that has run did, in order; nil for one that hasn't.
func Explain(j *Job, ran []graph.StageView) string {
	var b strings.Builder
	if j.Root != nil {
		fmt.Fprintf(&b, "scheduler root: %s\n", describeRoot(j.Root))
	}
	if j.Mode == plan.ModePipelined {
		b.WriteString(j.describePipeline())
	}
	for i := len(j.Stages) - 1; i >= 0; i-- {
		s := &j.Stages[i]
		fmt.Fprintf(&b, "stage %d", s.ID)
		if i == len(j.Stages)-1 {
			b.WriteString(" (final)")
		}
		if s.Frame != "" {
			fmt.Fprintf(&b, ": cached frame %s, %s\n", s.Frame, count(s.Tasks, "piece"))
			continue
		}
		fmt.Fprintf(&b, ": %s", count(s.Tasks, "task"))
		switch {
		case i < len(ran):
			b.WriteString(describeRun(&ran[i]))
		case s.Adapt != nil && j.Stages[s.Inputs[0]].Frame != "":
			b.WriteString(", cut by the sizes of the frame's pieces")
		case s.Adapt != nil:
			fmt.Fprintf(&b, ", cut anew when stage %d has ended", s.Inputs[0])
		case j.Mode == plan.ModePipelined && len(s.Inputs) > 0 && j.Stages[s.Inputs[0]].Frame == "":
			fmt.Fprintf(&b, ", reads stage %d while it runs", s.Inputs[0])
		}
		b.WriteString("\n")
		indent := "  "
		for n := s.Top; n != nil; n = input(n) {
			for line := range strings.Lines(describe(n, s.ReadsAll)) {
				b.WriteString(indent + strings.TrimRight(line, "\n") + "\n")
			}
			indent += "  "
		}
	}
	return b.String()
}

// describePipeline says whether all tasks of a pipelined job can run at once.
func (j *Job) describePipeline() string {
	tasks := 0
	for i := range j.Stages {
		if j.Stages[i].Frame == "" {
			tasks += j.Stages[i].Tasks
		}
	}
	how := "all run at once"
	if tasks > j.slots {
		how = "not all run at once: tasks wait for a slot, those that read others longest"
	}
	return fmt.Sprintf("pipelined, planned statically: %s, %s; %s\n", count(tasks, "task"), count(j.slots, "slot"), how)
}

// describeRun is what became of a stage: how it was cut, and what it made.
func describeRun(v *graph.StageView) string {
	var b strings.Builder
	if l := v.Layout; l != nil {
		fmt.Fprintf(&b, " planned, %d run", len(l.Tasks))
		if l.Empty > 0 {
			fmt.Fprintf(&b, "; %s without rows", count(l.Empty, "partition"))
		}
		if l.Split > 0 {
			fmt.Fprintf(&b, "; %s split", count(l.Split, "partition"))
		}
		if len(l.Tasks) == 0 {
			b.WriteString("; the stage is dropped")
		}
	}
	if v.State != graph.StageSucceeded {
		fmt.Fprintf(&b, "; %s, %d done", v.State, v.Done)
	}
	fmt.Fprintf(&b, "; %s, %s", count(int(v.Rows), "row"), count(int(v.Bytes), "byte"))
	if v.Files > 0 {
		fmt.Fprintf(&b, ", %s", count(v.Files, "file"))
	}
	return b.String()
}

func describeRoot(n plan.Node) string {
	c, ok := n.(*plan.Commit)
	if !ok {
		return n.Kind()
	}
	s := fmt.Sprintf("commit %s to %s", c.Operation, c.Target.Name)
	if c.Branch != "" {
		s += ", branch " + c.Branch
	}
	if c.Target.Format != "" {
		s += " (" + c.Target.Format + ")"
	}
	return s
}

// describe is one operator without its input: a line, and further lines for
// details. readsAll: each task of its stage reads all that the stage reads.
func describe(n plan.Node, readsAll bool) string {
	switch n := n.(type) {
	case *plan.Query:
		return describeQuery(n, readsAll)
	case *plan.ShuffleRead:
		return fmt.Sprintf("shuffle read of stage %d", n.Stage)
	case *plan.Exchange:
		s := fmt.Sprintf("exchange: %s into %s", strings.ReplaceAll(string(n.How), "_", " "), count(n.Partitions, "partition"))
		if n.How == plan.ExchangeHash {
			s += " by the table's partitions"
		}
		return s
	case *plan.Write:
		s := "write " + n.Context.Table.String()
		if n.Context.TargetFileSize > 0 {
			s += fmt.Sprintf(", files of about %d MiB", max(1, n.Context.TargetFileSize>>20))
		}
		return s
	case *plan.External:
		return "files of others for " + n.Context.Table.String()
	case *plan.Coalesce:
		if n.Limit != nil {
			return fmt.Sprintf("coalesce, limit %d", *n.Limit)
		}
		return "coalesce"
	default:
		return n.Kind()
	}
}

func describeQuery(q *plan.Query, readsAll bool) string {
	var b strings.Builder
	how := "whole, in one task"
	switch {
	case q.Parallel && readsAll:
		how = "row by row, over all pieces of a cached frame in one task"
	case q.Parallel && framesOf(q) > 0:
		how = "parallel over the pieces of a cached frame"
	case q.Parallel:
		how = "parallel over " + count(max(1, len(q.Partitions)), "partition")
	}
	fmt.Fprintf(&b, "query: %s", how)
	if q.Why != "" {
		fmt.Fprintf(&b, " (%s)", q.Why)
	}
	b.WriteString("\n")
	for i := range q.Sources {
		fmt.Fprintf(&b, "  source %s\n", describeSource(&q.Sources[i]))
	}
	fmt.Fprintf(&b, "  sql %s\n", q.SQL)
	return b.String()
}

func describeSource(s *plan.Source) string {
	switch s.Kind {
	case plan.SourceTable:
		return fmt.Sprintf("table %s: %s", s.Table, count(len(s.Files), "file"))
	case plan.SourceUpload:
		if s.Upload != nil {
			return "upload " + s.Upload.ID
		}
		return "upload"
	case plan.SourceFrame:
		if s.Frame != nil {
			return "cached frame " + s.Frame.ID
		}
		return "cached frame"
	case plan.SourceFlightSQL:
		if s.Flight == nil {
			return string(s.Kind)
		}
		return fmt.Sprintf("%s %s: %s, of the engine's %s", s.Kind, s.Flight.Name, count(len(s.Files), "endpoint"), strings.Join(strings.Fields(s.Flight.Query), " "))
	default:
		return fmt.Sprintf("%s %s: %s", s.Kind, strings.Join(s.Patterns, ", "), count(len(s.Files), "file"))
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
