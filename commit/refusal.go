package commit

import (
	"errors"
	"fmt"
)

// answerError is the answer as a cause.
func answerError(a Answer) error {
	switch {
	case a.Err != nil && a.Status != 0:
		return fmt.Errorf("the catalog answered %d: %w", a.Status, a.Err)
	case a.Err != nil:
		return a.Err
	case a.Status != 0:
		return fmt.Errorf("the catalog answered %d", a.Status)
	default:
		return fmt.Errorf("the catalog's answer was %q, but the table doesn't show the commit", a.Class)
	}
}

func errRefused(u *unitRun, r *refusal) error {
	e := &Error{
		Op: "commit to", Object: u.unit.Table.String(), Reason: r.reason, Cause: r.err,
		Code: codeOfRefusal(r.reason, u),
		Hint: "Run the statement again with the same idempotency key.",
	}
	if inner, ok := errors.AsType[*Error](r.err); ok && inner.Code != "" && r.reason != ReasonBudget {
		e.Code = inner.Code
		if inner.Hint != "" {
			e.Hint = inner.Hint
		}
	}
	if u.attempts > 0 {
		e.Tried = fmt.Sprintf("%d requests were sent, %d lost their seat to other commits; ", u.attempts, u.conflicts)
	}
	switch {
	case !r.reason.Parks():
		e.Tried += "nothing was committed"
	case u.unit.Files.Len() == 0:
		e.Tried += "nothing was committed; the job wrote no files"
	default:
		e.Tried += fmt.Sprintf("nothing was committed; the %d data files are kept under %s", u.unit.Files.Len(), u.unit.Prefix)
		e.Hint = fmt.Sprintf("`firn commit retry %s [--table NAME]` adopts the files, `firn commit drop %s` deletes them.",
			u.unit.JobID, u.unit.JobID)
	}
	return e
}

func codeOfRefusal(r Reason, u *unitRun) Code {
	switch r {
	case ReasonTableChanged:
		return CodeTableChanged
	case ReasonPermission:
		return CodeCommitPermission
	case ReasonValidation, ReasonLimit:
		return CodeCommitRejected
	case ReasonConflict:
		return CodeConflict
	}
	if u.attempts > 0 && u.conflicts == u.attempts {
		return CodeConflict
	}
	return CodeBudget
}

func errUnknown(u *unitRun, s *sentRun, readErr error) error {
	cause := answerError(s.answer)
	fate, sends := "may still land", fmt.Sprintf("%d requests were sent", u.attempts)
	if u.sentBefore {
		sends += " now, others by an earlier run"
	}
	switch {
	case errors.Is(readErr, errBlind):
		cause = readErr
		if s.passed {
			fate = "may have landed"
		}
	case readErr != nil:
		cause = fmt.Errorf("%w; and the table can't be read: %w", cause, readErr)
	}
	return &Error{
		Code: CodeUnknown, Op: "commit to", Object: u.unit.Table.String(), Cause: cause,
		Tried: fmt.Sprintf("%s; the last one (%s) %s; the data files are kept under %s", sends, s.request.ID, fate, u.unit.Prefix),
		Hint:  "Don't submit again under another key. Run the statement again with the same key: it looks the commit up in the table first.",
	}
}

// errUnfenced: a fence that was asked for can't be put on the table.
func errUnfenced(u *unitRun, s *sentRun, cause error) error {
	e := &Error{Op: "put an empty commit on", Object: u.unit.Table.String(), Code: CodeUnknown, Cause: cause}
	e.Tried = fmt.Sprintf("what became of job %s is as unknown as before; its last request (%s) may still land; the data files are kept under %s",
		u.unit.JobID, s.request.ID, u.unit.Prefix)
	e.Hint = fmt.Sprintf("The next commit to the table settles it, or `firn commit retry %s`.", u.unit.JobID)
	return e
}

func errStopped(u Unit, cause error) error {
	if cause == nil {
		cause = errors.New("the job was cancelled")
	}
	return &Error{
		Code: CodeCommitStopped, Op: "commit to", Object: u.Table.String(), Cause: cause,
		Tried: "it was stopped before anything was sent; nothing was committed",
		Hint:  "Run the statement again with the same idempotency key to do it after all.",
	}
}
