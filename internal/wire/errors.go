package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Classes of a failed task.
const (
	ClassRetryable    = "retryable"
	ClassNotRetryable = "not_retryable"
	ClassCancelled    = "cancelled"
)

// LostInputError says that a piece of shuffle output can't be read any more,
// so that the task that made it must run again. Readers of shuffle data return
// it; it survives the way from an executor to the scheduler.
type LostInputError struct {
	Stage, Task int
	// Attempt wrote the piece; Executor holds it, or did.
	Attempt, Executor string
	// Unreachable: the executor doesn't answer, so nothing that it holds can be read.
	Unreachable bool
	// Cause is what happened when it was read.
	Cause error
}

// Error names the piece and the cause.
func (e *LostInputError) Error() string {
	if e.Attempt == "" { // who reads rows by a ticket knows no more
		return fmt.Sprintf("shuffle output of stage %d task %d is lost: %v", e.Stage, e.Task, e.Cause)
	}
	return fmt.Sprintf("shuffle output of stage %d task %d (attempt %s on executor %s) is lost: %v",
		e.Stage, e.Task, e.Attempt, e.Executor, e.Cause)
}

// Unwrap gives the cause.
func (e *LostInputError) Unwrap() error { return e.Cause }

// SourceBreakError says that a stream of another engine broke off, and where.
type SourceBreakError struct {
	Break *firnpb.SourceBreak
	// Cause is what happened.
	Cause error
}

// Error is the cause's, which names the place.
func (e *SourceBreakError) Error() string { return e.Cause.Error() }

// Unwrap gives the cause.
func (e *SourceBreakError) Unwrap() error { return e.Cause }

// remoteError is an error that came over the wire without a code: its text, and
// the sentinel that it wrapped, if it was one that callers look for.
type remoteError struct {
	text string
	is   error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.is }

// ErrorToProto keeps what a *commit.Error in err's chain knows, and the whole
// text of err in any case. Nil stays nil.
func ErrorToProto(err error) *firnpb.JobError {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*commit.Error](err)
	if !ok {
		return &firnpb.JobError{Cause: valid(err.Error())}
	}
	out := &firnpb.JobError{
		Code: string(e.Code), Op: e.Op, Object: e.Object, Tried: e.Tried, Hint: e.Hint, Reason: string(e.Reason),
	}
	if e.Cause != nil {
		out.Cause = e.Cause.Error()
	}
	// What others wrapped around the error goes in front of the operation, so
	// that the text stays the same: "<prefix><op> <object>: <cause> [<code>]".
	switch prefix, found := strings.CutSuffix(err.Error(), e.Error()); {
	case found:
		out.Op = prefix + out.Op
	default:
		out.Op, out.Object, out.Cause = strings.ReplaceAll(err.Error(), " ["+out.Code+"]", ""), "", ""
	}
	for _, s := range []*string{&out.Code, &out.Op, &out.Object, &out.Cause, &out.Tried, &out.Hint, &out.Reason} {
		*s = valid(*s)
	}
	return out
}

// valid makes text fit for a protobuf string: an error may quote a file name
// that isn't UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// ErrorFromProto gives back what ErrorToProto kept: a *commit.Error if there was
// one, else an error with the text. Nil gives nil.
func ErrorFromProto(p *firnpb.JobError) error {
	if p == nil {
		return nil
	}
	if p.GetCode() == "" && p.GetOp() == "" {
		return &remoteError{text: p.GetCause()}
	}
	e := &commit.Error{
		Code: commit.Code(p.GetCode()), Op: p.GetOp(), Object: p.GetObject(),
		Reason: commit.Reason(p.GetReason()), Tried: p.GetTried(), Hint: p.GetHint(),
	}
	if p.GetCause() != "" {
		e.Cause = &remoteError{text: p.GetCause()}
	}
	return e
}

// Class sorts an error of a task. Lost input and everything that isn't known to
// be someone's mistake may be tried again: attempts are limited, and a fault of
// a disk, a network or a store looks like anything.
func Class(err error) string {
	if _, lost := errors.AsType[*LostInputError](err); lost {
		return ClassRetryable
	}
	switch commit.KindOf(err) {
	case commit.KindInvalid, commit.KindUsage, commit.KindPermission, commit.KindNotFound, commit.KindConflict, commit.KindUnknown:
		return ClassNotRetryable
	case commit.KindCancelled:
		return ClassCancelled
	}
	if errors.Is(err, context.Canceled) {
		return ClassCancelled
	}
	return ClassRetryable
}

// TaskErrorToProto is ErrorToProto for a task's error, with its class. Nil stays
// nil.
func TaskErrorToProto(err error) *firnpb.TaskError {
	if err == nil {
		return nil
	}
	out := &firnpb.TaskError{Class: Class(err)}
	if lost, ok := errors.AsType[*LostInputError](err); ok {
		out.LostInput = &firnpb.LostInput{
			Stage: uint32(lost.Stage), Task: uint32(lost.Task),
			AttemptId: valid(lost.Attempt), ExecutorId: valid(lost.Executor), Unreachable: lost.Unreachable,
		}
		err = lost.Cause
	}
	if broke, ok := errors.AsType[*SourceBreakError](err); ok {
		out.Broke = broke.Break
	}
	e := ErrorToProto(err)
	out.Code, out.Op, out.Object, out.Cause = e.GetCode(), e.GetOp(), e.GetObject(), e.GetCause()
	out.Hint, out.Tried, out.Reason = e.GetHint(), e.GetTried(), e.GetReason()
	return out
}

// TaskErrorFromProto gives back what TaskErrorToProto kept: lost input as a
// *LostInputError around the rest, a stream that broke off as a *SourceBreakError, a
// cancellation as context.Canceled. Nil gives nil.
func TaskErrorFromProto(p *firnpb.TaskError) error {
	if p == nil {
		return nil
	}
	err := ErrorFromProto(&firnpb.JobError{
		Code: p.GetCode(), Op: p.GetOp(), Object: p.GetObject(), Cause: p.GetCause(),
		Hint: p.GetHint(), Tried: p.GetTried(), Reason: p.GetReason(),
	})
	if l := p.GetLostInput(); l != nil {
		return &LostInputError{
			Stage: int(l.GetStage()), Task: int(l.GetTask()),
			Attempt: l.GetAttemptId(), Executor: l.GetExecutorId(), Unreachable: l.GetUnreachable(), Cause: err,
		}
	}
	if b := p.GetBroke(); b != nil {
		return &SourceBreakError{Break: b, Cause: err}
	}
	if plain, ok := err.(*remoteError); ok && p.GetClass() == ClassCancelled { //nolint:errorlint // made above
		plain.is = context.Canceled
	}
	return err
}

// ToStatus makes an error fit for a gRPC answer: a status whose code follows
// the error's kind and whose details keep the *commit.Error. Nil and errors that
// are a status already stay as they are.
func ToStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return err
	}
	s := status.New(statusCode(err), valid(err.Error()))
	if detailed, derr := s.WithDetails(ErrorToProto(err)); derr == nil {
		s = detailed
	}
	return s.Err()
}

func statusCode(err error) codes.Code {
	switch {
	case commit.CodeOf(err) == commit.CodeSchedulerClosing:
		return codes.Unavailable // whoever waits asks again
	case commit.CodeOf(err) != "":
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	switch commit.KindOf(err) {
	case commit.KindInvalid, commit.KindUsage:
		return codes.InvalidArgument
	case commit.KindPermission:
		return codes.PermissionDenied
	case commit.KindNotFound:
		return codes.NotFound
	case commit.KindConflict:
		return codes.Aborted
	case commit.KindUnknown:
		return codes.Unknown
	case commit.KindTimeout:
		return codes.DeadlineExceeded
	case commit.KindCancelled:
		return codes.Canceled
	default:
		return codes.Internal
	}
}

// FromStatus gives back the error that ToStatus kept. For a status without it
// the error is as it came, except that a cancelled or timed-out call also is
// context.Canceled or context.DeadlineExceeded.
func FromStatus(err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err
	}
	for _, d := range s.Details() {
		p, ok := d.(*firnpb.JobError)
		if !ok {
			continue
		}
		out := ErrorFromProto(p)
		if plain, ok := out.(*remoteError); ok { //nolint:errorlint // made above
			plain.is = contextError(s.Code())
		}
		return out
	}
	if is := contextError(s.Code()); is != nil {
		return fmt.Errorf("%w: %w", is, err)
	}
	return err
}

func contextError(c codes.Code) error {
	switch c {
	case codes.Canceled:
		return context.Canceled
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
