package client_test

import (
	"errors"
	"testing"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/openwrite"
)

func wantOther(t *testing.T, what string, rep commit.Report, err error) {
	t.Helper()
	var other *client.SealedError
	if !errors.As(err, &other) || other.Status.Sealed != nil || other.Status.SealDigest != "" || !rep.OtherSubmission || rep.Rows != 33 {
		t.Errorf("%s: %+v, %v", what, rep, err)
	}
}

// Another submission of the key is in the table: that is no success of a write's
// handles, whenever and however its driver asks, and the report is of the other one.
func TestAnotherSubmissionIsNoSuccess(t *testing.T) {
	theirs := &openwrite.Report{Table: "lake.air.t", Commit: "committed", Rows: 33, SnapshotID: "9", Deduplicated: true, OtherSubmission: true}
	f := &writes{ready: 2}
	w := begin(t, f)
	f.mu.Lock()
	f.answer = func(a *openwrite.Answer) {
		if a.Status.State == openwrite.StateCommittedByOther {
			a.Status.SealedHandles, a.Status.SealDigest = nil, ""
		}
	}
	f.end = openwrite.Status{WriteID: "w-1", State: openwrite.StateCommittedByOther, Commit: "committed", Report: theirs}
	f.mu.Unlock()
	rep, err := w.Commit(t.Context(), []client.Handle{"h"}) // sealed, committing, and then it is known
	wantOther(t, "commit", rep, err)
	rep, err = w.Wait(t.Context())
	wantOther(t, "wait", rep, err)
	again, err := w.Commit(t.Context(), []client.Handle{"other"})
	wantOther(t, "commit of others", again, err)

	// One that never was open tells what is in the table to who asks for no handles.
	late := &writes{}
	w = begin(t, late)
	late.mu.Lock()
	late.status = openwrite.Status{WriteID: "w-1", State: openwrite.StateCommitted, Commit: "committed", Report: theirs}
	late.answer = func(a *openwrite.Answer) {
		a.Context = nil
		if a.Result == openwrite.ResultSealed {
			a.Result = openwrite.ResultOtherHandles
		}
		a.Status = openwrite.Status{WriteID: "w-1", State: openwrite.StateCommitted, Commit: "committed", Report: theirs}
	}
	late.mu.Unlock()
	if rep, err := w.Wait(t.Context()); err != nil || !rep.OtherSubmission || !rep.Deduplicated || rep.Rows != 33 {
		t.Errorf("%+v, %v", rep, err)
	}
	rep, err = w.Commit(t.Context(), []client.Handle{"h"})
	wantOther(t, "commit of one that never was open", rep, err)
	rep, err = w.Wait(t.Context())
	wantOther(t, "wait after that", rep, err)
}
