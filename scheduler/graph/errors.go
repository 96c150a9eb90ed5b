package graph

import (
	"errors"
	"fmt"
	"strings"

	"github.com/firn-project/firn/commit"
)

func asError(err error) (*commit.Error, bool) { return errors.AsType[*commit.Error](err) }

// causeOf wraps a task's error in one for people, keeping the code of an error
// that already is one: what went wrong in a task is what the job died of.
func causeOf(code commit.Code, op, tried, hint string, cause error) error {
	e := &commit.Error{Code: code, Op: op, Cause: cause, Tried: tried, Hint: hint}
	if inner, ok := asError(cause); ok && inner.Hint != "" {
		e.Hint = inner.Hint
	}
	return e
}

func errTask(id TaskID, executor string, cause error) error {
	code := commit.CodeTaskFailed
	if c := commit.CodeOf(cause); c != "" {
		code = c
	}
	return causeOf(code, fmt.Sprintf("run task %d of stage %d", id.Task, id.Stage),
		"one attempt on executor "+executor+"; this kind of failure isn't tried again", "", cause)
}

func errTaskLimit(id TaskID, failures int, executor string, cause error) error {
	return causeOf(commit.CodeTaskLimit, fmt.Sprintf("run task %d of stage %d", id.Task, id.Stage),
		fmt.Sprintf("%d attempts failed, the last on executor %s; nothing was committed", failures, executor),
		"Look at the last cause, then run the statement again with the same idempotency key.", cause)
}

func errStageLimit(id, rollbacks int, cause error) error {
	return causeOf(commit.CodeStageLimit, fmt.Sprintf("rerun lost output of stage %d", id),
		fmt.Sprintf("it was lost and made again %d times; nothing was committed", rollbacks),
		"Find out why executors or their disks get lost, then run the statement again with the same idempotency key.", cause)
}

func errShown(cause error) error {
	return &commit.Error{
		Code: commit.CodeResultLost, Op: "show rows of pipelined job",
		Cause: fmt.Errorf("rows that were given are lost, and the query wouldn't give the same ones again: %w", cause),
		Tried: "nothing, as rows of two runs would be mixed; those that were given are not to be used",
		Hint:  "Run the statement again. As a staged job (leave the mode out) it gives no rows before all are there.",
	}
}

func errSourceLimit(id, runs int, cause error) error {
	return causeOf(commit.CodeFlightLost, fmt.Sprintf("read the source of stage %d", id),
		fmt.Sprintf("its query ran %d times, and each time a part of what it gave was gone before it was read; nothing was committed", runs), "", cause)
}

func errExecutorLost(executor string) error {
	return &commit.Error{
		Code: commit.CodeExecutorLost, Op: "reach executor", Object: executor,
		Cause: errors.New("it stopped answering, and its shuffle output went with it"),
	}
}

func errReport(ev TaskSucceeded, why string) error {
	return &commit.Error{
		Code: commit.CodeBadReport, Op: "accept", Object: "attempt " + ev.Attempt + " of executor " + ev.Executor,
		Cause: errors.New(why),
	}
}

func errRejected(rows, limit int64, why []string) error {
	return &commit.Error{
		Code: commit.CodeRejectLimit, Op: "read rows",
		Cause: fmt.Errorf("%d rows can't be read or cast, and the limit is %d: %s", rows, limit, strings.Join(why, "; ")),
		Tried: "nothing was committed",
		Hint:  "Mend the rows, or allow more of them with --reject-limit.",
	}
}

// Validate says what is wrong with a spec.
func (s Spec) Validate() error {
	bad := func(format string, args ...any) error {
		return &commit.Error{Code: commit.CodeBadStages, Op: "start job", Object: s.JobID, Cause: fmt.Errorf(format, args...)}
	}
	if len(s.Stages) == 0 {
		return bad("the plan has no stage")
	}
	if s.Pipelined && s.HasRoot {
		return bad("a pipelined job has a root")
	}
	seen := map[int]StageSpec{}
	for _, st := range s.Stages {
		if _, dup := seen[st.ID]; dup {
			return bad("stage %d stands twice", st.ID)
		}
		if st.Tasks < 0 || st.Outputs < 0 {
			return bad("stage %d has %d tasks and %d outputs", st.ID, st.Tasks, st.Outputs)
		}
		for _, in := range st.Inputs {
			if _, ok := seen[in]; !ok {
				return bad("stage %d reads stage %d, which doesn't come before it", st.ID, in)
			}
		}
		if st.Adapt != nil && (len(st.Inputs) != 1 || st.ReadsAll) {
			return bad("stage %d is adaptive and doesn't read one stage task by task", st.ID)
		}
		if st.Adapt != nil && s.Pipelined {
			return bad("stage %d of a pipelined job is adaptive", st.ID)
		}
		seen[st.ID] = st
	}
	return nil
}
