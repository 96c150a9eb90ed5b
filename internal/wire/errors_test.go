package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

func known() *commit.Error {
	return &commit.Error{
		Code: commit.CodeConflict, Op: "commit", Object: "lake.air.flights", Reason: commit.ReasonConflict,
		Cause: errors.New("4 attempts lost"), Tried: "4 attempts", Hint: "run it again",
	}
}

// ways are all the ways that an error takes over the wire.
var ways = map[string]func(error) error{
	"job error":  func(err error) error { return wire.ErrorFromProto(wire.ErrorToProto(err)) },
	"task error": func(err error) error { return wire.TaskErrorFromProto(wire.TaskErrorToProto(err)) },
	"status":     func(err error) error { return wire.FromStatus(wire.ToStatus(err)) },
}

func TestErrorsKeepWhatTheyKnow(t *testing.T) {
	bare := &commit.Error{Code: commit.CodeUnknown, Op: "ask the catalog"}
	cases := map[string]error{
		"known":           known(),
		"wrapped":         fmt.Errorf("error running the job's scheduler root: %w", known()),
		"wrapped twice":   fmt.Errorf("stage 1: %w", fmt.Errorf("task 2: %w", known())),
		"in the middle":   fmt.Errorf("it failed (%w) at last", known()),
		"without a cause": bare,
	}
	for name, err := range cases {
		for way, through := range ways {
			t.Run(name+"/"+way, func(t *testing.T) {
				got := through(err)
				if commit.CodeOf(got) != commit.CodeOf(err) {
					t.Errorf("code is %q, want %q", commit.CodeOf(got), commit.CodeOf(err))
				}
				want, ok := errors.AsType[*commit.Error](err)
				e, gotOK := errors.AsType[*commit.Error](got)
				if !ok || !gotOK {
					t.Fatalf("got %T", got)
				}
				if e.Reason != want.Reason || e.Tried != want.Tried || e.Hint != want.Hint {
					t.Errorf("got %+v, want %+v", e, want)
				}
				if name != "in the middle" && got.Error() != err.Error() {
					t.Errorf("text is\n%s\nwant\n%s", got, err)
				}
			})
		}
	}
}

func TestPlainErrorsKeepTheirText(t *testing.T) {
	for way, through := range ways {
		got := through(fmt.Errorf("read: %w", io.ErrUnexpectedEOF))
		if got == nil || got.Error() != "read: unexpected EOF" {
			t.Errorf("%s: got %v", way, got)
		}
		if through(nil) != nil {
			t.Errorf("%s: nil became an error", way)
		}
	}
}

// protobuf refuses strings that aren't UTF-8, and a file's name needn't be.
func TestErrorsWithBadText(t *testing.T) {
	e := known()
	e.Object = "x\xff.parquet"
	for way, through := range ways {
		if got := through(e); commit.CodeOf(got) != e.Code {
			t.Errorf("%s: got %v", way, got)
		}
	}
	if _, err := proto.Marshal(wire.TaskErrorToProto(errors.New("\xff"))); err != nil {
		t.Error(err)
	}
}

func TestLostInputTravels(t *testing.T) {
	lost := &wire.LostInputError{Stage: 1, Task: 2, Attempt: "a-1", Executor: "e-1", Cause: errors.New("gone")}
	p := wire.TaskErrorToProto(fmt.Errorf("read: %w", lost))
	if p.GetClass() != wire.ClassRetryable {
		t.Errorf("class is %s", p.GetClass())
	}
	got, ok := errors.AsType[*wire.LostInputError](wire.TaskErrorFromProto(p))
	if !ok || got.Stage != 1 || got.Task != 2 || got.Attempt != "a-1" || got.Executor != "e-1" {
		t.Fatalf("got %+v", got)
	}
	if got.Error() != lost.Error() {
		t.Errorf("text is %q, want %q", got, lost)
	}
}

func TestSourceBreakTravels(t *testing.T) {
	at := &firnpb.SourceBreak{Part: "endpoint 1", Location: "grpc://a:1", Said: "died", Code: "FIRN-7510", Left: 2}
	broke := &wire.SourceBreakError{Break: at, Cause: &commit.Error{Code: commit.CodeFlightRead, Op: "read", Cause: errors.New("died")}}
	p := wire.TaskErrorToProto(fmt.Errorf("read source e: %w", broke))
	if p.GetClass() != wire.ClassRetryable {
		t.Errorf("class is %s", p.GetClass())
	}
	err := wire.TaskErrorFromProto(p)
	got, ok := errors.AsType[*wire.SourceBreakError](err)
	if !ok || !proto.Equal(got.Break, at) || commit.CodeOf(err) != commit.CodeFlightRead || err.Error() != "read source e: "+broke.Error() {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestClass(t *testing.T) {
	code := func(c commit.Code) error { return fmt.Errorf("x: %w", &commit.Error{Code: c, Op: "do"}) }
	cases := map[string]struct {
		err  error
		want string
	}{
		"unknown":                 {errors.New("connection reset"), wire.ClassRetryable},
		"invalid":                 {code(commit.CodeTaskPanic), wire.ClassNotRetryable},
		"failed":                  {code(commit.CodeShuffleFull), wire.ClassRetryable},
		"conflict":                {code(commit.CodeConflict), wire.ClassNotRetryable},
		"code of a newer release": {code("FIRN-9999"), wire.ClassRetryable},
		"cancelled":               {fmt.Errorf("x: %w", context.Canceled), wire.ClassCancelled},
		"timeout":                 {context.DeadlineExceeded, wire.ClassRetryable},
		"lost input of a cancelled read": {
			&wire.LostInputError{Cause: context.Canceled}, wire.ClassRetryable,
		},
	}
	for name, c := range cases {
		if got := wire.Class(c.err); got != c.want {
			t.Errorf("%s: class is %s, want %s", name, got, c.want)
		}
	}
}

func TestStatusCodes(t *testing.T) {
	cases := map[string]struct {
		err  error
		want codes.Code
	}{
		"plain":     {errors.New("x"), codes.Internal},
		"conflict":  {known(), codes.Aborted},
		"unknown":   {&commit.Error{Code: commit.CodeUnknown}, codes.Unknown},
		"cancelled": {context.Canceled, codes.Canceled},
		"timeout":   {fmt.Errorf("x: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		"status":    {status.Error(codes.NotFound, "x"), codes.NotFound},
	}
	for name, c := range cases {
		if got := status.Code(wire.ToStatus(c.err)); got != c.want {
			t.Errorf("%s: code is %s, want %s", name, got, c.want)
		}
	}
}

func TestCancellationIsFoundAgain(t *testing.T) {
	for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
		if got := wire.FromStatus(wire.ToStatus(want)); !errors.Is(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if got := wire.FromStatus(status.Error(codes.Canceled, "grpc: the client connection is closing")); !errors.Is(got, context.Canceled) {
		t.Errorf("got %v", got)
	}
	if got := wire.TaskErrorFromProto(wire.TaskErrorToProto(context.Canceled)); !errors.Is(got, context.Canceled) {
		t.Errorf("got %v", got)
	}
	plain := errors.New("no status")
	if got := wire.FromStatus(plain); got != plain { //nolint:errorlint // identity is the point
		t.Errorf("got %v", got)
	}
}

func TestStatusWithForeignDetails(t *testing.T) {
	s, err := status.New(codes.Unavailable, "down").WithDetails(&firnpb.Ticket{JobId: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if got := wire.FromStatus(s.Err()); status.Code(got) != codes.Unavailable {
		t.Errorf("got %v", got)
	}
}

func TestErrorToProtoIsComplete(t *testing.T) {
	want := &firnpb.JobError{
		Code: string(commit.CodeConflict), Op: "commit", Object: "lake.air.flights", Cause: "4 attempts lost",
		Tried: "4 attempts", Hint: "run it again", Reason: "conflict",
	}
	if got := wire.ErrorToProto(known()); !proto.Equal(got, want) {
		t.Error(cmp.Diff(want.String(), got.String()))
	}
}
