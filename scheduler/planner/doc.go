// Package planner turns a plan into the stages of a job.
//
// PlanJob is the only place where a scheduler root is split off, whatever the
// plan's form (logical or physical) and however its stages are planned (static
// or adaptive). Since the split comes before the cut, a root never appears in a
// stage, is never encoded and never reaches an executor.
//
// Stages are cut at exchanges, and at a Coalesce whose input has several
// partitions. A stage's operators end in the Exchange that spreads its output,
// except for those of the final stage, which give one shuffle partition a task.
package planner
