package commit

import (
	"errors"
	"strings"
)

// Code is a stable name of a kind of error, such as "FIRN-2003". The registry
// under errorcodes generates the constants, the reference page and what
// `firn error explain` prints.
type Code string

// Kind groups codes by what a caller does about them; it fixes the exit code of
// the CLI and the status code on the wire.
type Kind string

// Kinds of errors, with the exit code of `firn`.
const (
	KindInvalid    Kind = "invalid"    // 1: bad SQL, bad data, bad request
	KindFailed     Kind = "failed"     // 1: something broke; nothing was committed
	KindPermission Kind = "permission" // 4
	KindNotFound   Kind = "not_found"  // 5
	KindConflict   Kind = "conflict"   // 6
	KindUnknown    Kind = "unknown"    // 7: commit state unknown
	KindTimeout    Kind = "timeout"    // 8: the job goes on
	KindUsage      Kind = "usage"      // 64
	KindCancelled  Kind = "cancelled"  // 130
)

// ExitCode is the exit code of the CLI for the kind.
func (k Kind) ExitCode() int {
	switch k {
	case KindPermission:
		return 4
	case KindNotFound:
		return 5
	case KindConflict:
		return 6
	case KindUnknown:
		return 7
	case KindTimeout:
		return 8
	case KindUsage:
		return 64
	case KindCancelled:
		return 130
	default:
		return 1
	}
}

// Error is an error for a person: what failed, on what, why, what was tried and
// what to do next.
type Error struct {
	Code Code
	// Op is what was being done, as a verb phrase: "commit", "read file".
	Op string
	// Object is what it was done to: a table, a file, a column.
	Object string
	// Reason is set for refusals.
	Reason Reason
	// Conflict is what somebody else did that the unit can't go with; empty for
	// other errors.
	Conflict Conflict
	// Cause is the underlying error or a plain statement of why.
	Cause error
	// Tried says what was tried and what was left behind, if anything.
	Tried string
	// Hint says what to do next, with the command where there is one.
	Hint string
}

// Error is one line: operation, object, cause. A code that the cause's own text
// ends with isn't repeated.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Object != "" {
		b.WriteString(" " + e.Object)
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	// A cause that came from another process is text alone, and may end with the code.
	if tail := " [" + string(e.Code) + "]"; e.Code != "" && CodeOf(e.Cause) != e.Code && !strings.HasSuffix(b.String(), tail) {
		b.WriteString(tail)
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

// CodeOf returns the code of the first *Error in err's chain, or "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// ReasonOf returns the reason of the first *Error in err's chain that has one.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

// ConflictOf returns the conflict of the first *Error in err's chain that names one.
func ConflictOf(err error) Conflict {
	for err != nil {
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return ""
		}
		if e.Conflict != "" {
			return e.Conflict
		}
		err = e.Cause
	}
	return ""
}

// ErrTableNotFound is wrapped by a driver's errors when the table is gone.
var ErrTableNotFound = errors.New("table not found")
