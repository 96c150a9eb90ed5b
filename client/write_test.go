package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/openwrite"
)

// writes is a scheduler that knows the open write protocol by heart and no table.
type writes struct {
	flight.BaseFlightServer

	// lose says whether the answer to the n-th call is lost; answer changes answers.
	lose   func(n int, call string) bool
	answer func(a *openwrite.Answer)
	put    error
	// refuse is what calls are refused with before they're looked at.
	refuse error

	mu     sync.Mutex
	calls  []string
	begun  []openwrite.Begin
	rows   []openwrite.PathsRow
	files  []commit.File
	path   []string
	status openwrite.Status
	ready  int // how many asks until the outcome is known
	end    openwrite.Status
}

func (f *writes) serve(t *testing.T) *client.Client {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	flight.RegisterFlightServiceServer(srv, f)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(lis) // Stop ends it
	}()
	c, err := client.Dial(t.Context(), lis.Addr().String(), client.WithPollInterval(time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		srv.Stop()
		<-served
	})
	f.status = openwrite.Status{WriteID: "w-1", State: openwrite.StateOpen}
	f.end = openwrite.Status{WriteID: "w-1", State: openwrite.StateCommitted, Commit: "committed", Report: &openwrite.Report{
		Table: "lake.air.t", Commit: "committed", Rows: 3, SnapshotID: "7", Committed: "2026-11-30T12:00:00.5Z",
	}}
	return c
}

func (f *writes) context() *openwrite.Context {
	schema, err := wire.EncodeIPC(arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil))
	if err != nil {
		panic(err)
	}
	expires := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	return &openwrite.Context{
		WriteID: "w-1", Key: f.status.Key, Table: "lake.air.t", Prefix: "s3://lake/w-1/", ArrowSchema: schema, SchemaID: 3, SpecID: 5,
		Partition:   []openwrite.PartitionField{{FieldID: 1000, Name: "day", SourceID: 1, Source: "n", Transform: "identity", Type: "long"}},
		Storage:     openwrite.Storage{Kind: openwrite.StoreS3, Credentials: &openwrite.Credentials{AccessKeyID: "AK", SecretAccessKey: "SK", Expires: &expires}},
		WorkerToken: "fw1.x", Expires: expires,
	}
}

// counted notes a call, and says whether its answer is lost.
func (f *writes) counted(call string) (lost bool) {
	f.calls = append(f.calls, call)
	return f.lose != nil && f.lose(len(f.calls), call)
}

func (f *writes) DoAction(act *flight.Action, s flight.FlightService_DoActionServer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	a, err := f.act(act)
	if f.counted(act.GetType()) {
		return status.Error(codes.Unavailable, "the connection broke")
	}
	if err != nil {
		return err
	}
	if f.answer != nil {
		f.answer(&a)
	}
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return s.Send(&flight.Result{Body: body})
}

func (f *writes) act(act *flight.Action) (openwrite.Answer, error) {
	a := openwrite.Answer{Version: openwrite.Version, Result: openwrite.ResultStatus}
	switch act.GetType() {
	case openwrite.ActionBegin:
		var b openwrite.Begin
		if err := openwrite.Decode(act.GetBody(), &b); err != nil {
			return a, fault(commit.CodeBadRequest, err)
		}
		f.begun = append(f.begun, b)
		f.status.Key = b.Key
	case openwrite.ActionCommit:
		var c openwrite.Commit
		if err := openwrite.Decode(act.GetBody(), &c); err != nil {
			return a, fault(commit.CodeBadRequest, err)
		}
		if slices.Contains(c.Handles, "bad") {
			return a, fault(commit.CodeHandleVoid, errors.New("no such handle"))
		}
		sealed, digest := openwrite.SealOf(c.Handles)
		switch {
		case f.status.State == openwrite.StateAborted:
			a.Result = openwrite.ResultNotOpen
		case f.status.SealDigest == "":
			a.Result = openwrite.ResultSealed
			f.status.State, f.status.SealedHandles, f.status.SealDigest = openwrite.StateCommitting, sealed, digest
		case f.status.SealDigest == digest:
			a.Result = openwrite.ResultJoined
		default:
			a.Result = openwrite.ResultOtherHandles
		}
	case openwrite.ActionAbort:
		if a.Result = openwrite.ResultNotOpen; f.status.State == openwrite.StateOpen {
			a.Result, f.status.State = openwrite.ResultAborted, openwrite.StateAborted
		}
	case openwrite.ActionResume:
		var r openwrite.Resume
		if err := openwrite.Decode(act.GetBody(), &r); err != nil || r.Key != f.status.Key {
			return a, fault(commit.CodeWriteNotFound, errors.New("no such key"))
		}
	}
	if f.status.State == openwrite.StateCommitting {
		if f.ready--; f.ready < 0 {
			end := f.end
			end.SealedHandles, end.SealDigest, end.Key = f.status.SealedHandles, f.status.SealDigest, f.status.Key
			f.status = end
		}
	}
	if f.status.State == openwrite.StateOpen && act.GetType() != openwrite.ActionStatus {
		a.Result, a.Context = openwrite.ResultOpen, f.context()
	}
	a.Status = f.status
	return a, nil
}

func (f *writes) DoPut(s flight.FlightService_DoPutServer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.put != nil {
		return f.put
	}
	r, err := flight.NewRecordReader(s)
	if err != nil {
		return err
	}
	defer r.Release()
	f.path = r.LatestFlightDescriptor().GetPath()
	f.rows, f.files = nil, nil
	for {
		b, err := r.Read()
		if err == io.EOF { //nolint:errorlint // the stream's own
			break
		}
		if err != nil {
			return err
		}
		if openwrite.IsPaths(b.Schema()) {
			rows, err := openwrite.DecodePaths(b)
			if err != nil {
				return err
			}
			f.rows = append(f.rows, rows...)
			continue
		}
		files, err := wire.DecodeManifest(b)
		if err != nil {
			return err
		}
		f.files = append(f.files, files...)
	}
	if f.counted("put") {
		return status.Error(codes.Unavailable, "the connection broke")
	}
	return s.Send(&flight.PutResult{AppMetadata: []byte("h-" + f.path[2])})
}

// fault is an error as the scheduler sends it.
func fault(code commit.Code, cause error) error {
	err := &commit.Error{Code: code, Op: "do", Object: "w-1", Cause: cause}
	return status.Error(codes.InvalidArgument, openwrite.FaultOf(err, commit.CommitNone).Message())
}

func (f *writes) answers(change func(*openwrite.Answer)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = change
}

func begin(t *testing.T, f *writes) *client.Write {
	t.Helper()
	w, err := f.serve(t).BeginWrite(t.Context(), "lake.air.t", client.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A write from its beginning to its end, with the answer to every first call lost.
func TestAWriteSurvivesLostAnswers(t *testing.T) {
	lost := map[string]bool{}
	f := &writes{ready: 3, lose: func(_ int, call string) bool {
		before := lost[call]
		lost[call] = true
		return !before
	}}
	c := f.serve(t)
	w, err := c.BeginWrite(t.Context(), `lake.air."t.1"`, client.WriteOptions{TTL: 1500 * time.Millisecond, Engine: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	if len(f.begun) != 2 || f.begun[0] != f.begun[1] || !f.begun[0].KeyIsNew || f.begun[0].Key == "" || f.begun[0].TTLSeconds != 2 || f.begun[0].Table != `"lake"."air"."t.1"` {
		t.Errorf("begun %+v", f.begun)
	}
	wc, ok := w.Context()
	if !ok || wc.Prefix != "s3://lake/w-1/" || wc.Schema.Field(0).Name != "n" || wc.Storage.SecretAccessKey != "SK" || wc.Partition[0].Name != "day" || wc.Key != w.Key() {
		t.Errorf("context %+v, %t", wc, ok)
	}
	// The context goes to a worker as JSON.
	raw, err := json.Marshal(wc)
	if err != nil {
		t.Fatal(err)
	}
	var there client.WriteContext
	if err := json.Unmarshal(raw, &there); err != nil || there.WorkerToken != "fw1.x" || !there.Schema.Equal(wc.Schema) {
		t.Errorf("%+v, %v", there, err)
	}
	worker := c.JoinWrite(there)
	day := "1"
	h1, err := worker.HandInFiles(t.Context(), "a1", []client.WrittenFile{{Path: wc.Prefix + "a1-0.parquet", Size: 9, Rows: -1, Partition: map[string]*string{"day": &day}}})
	if err != nil || h1 != "h-a1" || f.rows[0].Size != 9 || f.rows[0].Rows != -1 || *f.rows[0].Partition["day"] != "1" || !slices.Equal(f.path, []string{"firn.v1.manifest", "w-1", "a1"}) {
		t.Errorf("%s, %v, %+v, %v", h1, err, f.rows, f.path)
	}
	many := make([]commit.File, 2500) // several messages
	for i := range many {
		many[i] = commit.File{Path: wc.Prefix + "a2-" + day, SchemaID: wc.SchemaID, SpecID: wc.SpecID, Rows: int64(i), Size: 1}
	}
	h2, err := worker.HandIn(t.Context(), "a2", many)
	if err != nil || h2 != "h-a2" || len(f.files) != 2500 || f.files[2499].Rows != 2499 || f.files[7].Attempt != "a2" || f.files[7].Format != "PARQUET" {
		t.Errorf("%s, %v, %d files", h2, err, len(f.files))
	}
	rep, err := w.Commit(t.Context(), []client.Handle{h2, h1})
	if err != nil || rep.State != commit.CommitCommitted || rep.Rows != 3 || rep.SnapshotID != "7" || rep.Table.Name != "t" || rep.Key != w.Key() || rep.CommittedAt.Year() != 2026 {
		t.Errorf("%+v, %v", rep, err)
	}
	if _, ok := w.Context(); ok {
		t.Error("a sealed write has a context")
	}
	// A driver that was started again.
	again, err := c.ResumeWrite(t.Context(), w.Key())
	if err != nil {
		t.Fatal(err)
	}
	if rep, err = again.Wait(t.Context()); err != nil || rep.Rows != 3 {
		t.Errorf("%+v, %v", rep, err)
	}
	if rep, err = again.Commit(t.Context(), []client.Handle{h1, h2, h1}); err != nil || rep.Rows != 3 {
		t.Errorf("the same handles: %+v, %v", rep, err)
	}
	rep, err = again.Commit(t.Context(), []client.Handle{h1})
	var other *client.SealedError
	if !errors.As(err, &other) || !slices.Equal(other.Status.Sealed, []client.Handle{"h-a1", "h-a2"}) || rep.Rows != 3 {
		t.Errorf("other handles: %+v, %v", rep, err)
	}
	if _, err := again.Abort(t.Context()); commit.CodeOf(err) != commit.CodeWriteNotOpen {
		t.Errorf("abort of what is sealed: %v", err)
	}
}

// How a commit ends is told apart: by the error's kind and by the report's state.
func TestOutcomesOfAWrite(t *testing.T) {
	conflict := openwrite.FaultOf(&commit.Error{Code: commit.CodeConflict, Op: "commit", Reason: commit.ReasonConflict, Cause: errors.New("moved")}, commit.CommitRefused)
	for name, c := range map[string]struct {
		end   openwrite.Status
		state commit.CommitState
		kind  commit.Kind
	}{
		"refused":   {openwrite.Status{WriteID: "w-1", State: openwrite.StateRefused, Error: conflict}, commit.CommitRefused, commit.KindConflict},
		"unknown":   {openwrite.Status{WriteID: "w-1", State: openwrite.StateUnknown}, commit.CommitUnknown, commit.KindUnknown},
		"failed":    {openwrite.Status{WriteID: "w-1", State: openwrite.StateFailed, Error: conflict}, commit.CommitNone, commit.KindConflict},
		"aborted":   {openwrite.Status{WriteID: "w-1", State: openwrite.StateAborted}, commit.CommitNone, commit.KindInvalid},
		"expired":   {openwrite.Status{WriteID: "w-1", State: openwrite.StateExpired}, commit.CommitNone, commit.KindInvalid},
		"no reason": {openwrite.Status{WriteID: "w-1", State: openwrite.StateRefused}, commit.CommitRefused, commit.KindOf(&commit.Error{Code: commit.CodeProtocol})},
	} {
		f := &writes{}
		w := begin(t, f)
		f.mu.Lock()
		f.end = c.end
		f.mu.Unlock()
		rep, err := w.Commit(t.Context(), []client.Handle{"h"})
		if err == nil || rep.State != c.state || commit.KindOf(err) != c.kind || rep.JobID != "w-1" {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
	}
	f := &writes{}
	w := begin(t, f)
	f.end = openwrite.Status{WriteID: "w-1", State: openwrite.StateVerified}
	if rep, err := w.Commit(t.Context(), nil); err != nil || rep.State != commit.CommitNone {
		t.Errorf("dry run: %+v, %v", rep, err)
	}
}

// Only the scheduler itself says that nothing was sealed: with a void handle, which it
// looks at while a write is open.
func TestACommitOfAWriteThatNobodyAnswers(t *testing.T) {
	f := &writes{}
	w := begin(t, f)
	if rep, err := w.Commit(t.Context(), []client.Handle{"bad"}); commit.CodeOf(err) != commit.CodeHandleVoid || rep.State != commit.CommitNone {
		t.Errorf("void: %+v, %v", rep, err)
	}
	lost := false
	f.mu.Lock()
	f.lose = func(_ int, call string) bool {
		before := lost
		lost = true
		return !before && call == openwrite.ActionCommit
	}
	f.mu.Unlock()
	if rep, err := w.Commit(t.Context(), []client.Handle{"bad"}); commit.CodeOf(err) != commit.CodeHandleVoid || rep.State != commit.CommitNone {
		t.Errorf("lost, then void: %+v, %v", rep, err)
	}
	f.mu.Lock()
	f.lose, f.ready = func(int, string) bool { return true }, 1<<30
	f.mu.Unlock()
	if rep, err := w.Commit(t.Context(), []client.Handle{"h"}); commit.CodeOf(err) != commit.CodeUnreachable || rep.State != commit.CommitUnknown || rep.JobID != "w-1" {
		t.Errorf("all lost: %+v, %v", rep, err)
	}
	f.mu.Lock()
	f.lose = nil
	f.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	if rep, err := w.Commit(ctx, []client.Handle{"h"}); err == nil || rep.State != commit.CommitUnknown {
		t.Errorf("stopped waiting: %+v, %v", rep, err)
	}
}

// A commit that nobody heard of may have landed. What becomes of the next call says
// nothing of it.
func TestACommitAfterOneThatNobodyHeardOf(t *testing.T) {
	f := &writes{}
	w := begin(t, f)
	ctx, leave := context.WithCancelCause(t.Context())
	f.mu.Lock()
	f.lose = func(int, string) bool { leave(errors.New("enough")); return true }
	f.mu.Unlock()
	if rep, err := w.Commit(ctx, []client.Handle{"h"}); err == nil || rep.State != commit.CommitUnknown {
		t.Errorf("%+v, %v", rep, err)
	}
	for _, code := range []commit.Code{commit.CodeUnauthenticated, commit.CodeWriteNotFound, commit.CodeBadRequest} {
		f.mu.Lock()
		f.lose, f.refuse = nil, fault(code, errors.New("another token"))
		f.mu.Unlock()
		if rep, err := w.Commit(t.Context(), []client.Handle{"h"}); commit.CodeOf(err) != code || rep.State != commit.CommitUnknown {
			t.Errorf("%s: %+v, %v", code, rep, err)
		}
		if rep, err := w.Wait(t.Context()); commit.CodeOf(err) != code || rep.State != commit.CommitUnknown {
			t.Errorf("%s: %+v, %v", code, rep, err)
		}
	}
	f.mu.Lock()
	f.refuse = nil
	f.mu.Unlock()
	if rep, err := w.Commit(t.Context(), []client.Handle{"h"}); err != nil || rep.State != commit.CommitCommitted {
		t.Errorf("%+v, %v", rep, err)
	}
}

// Nor does it say so of one that may still be on its way.
func TestAVoidHandleAfterACommitThatNobodyAnswered(t *testing.T) {
	f := &writes{}
	w := begin(t, f)
	f.mu.Lock()
	f.refuse = status.Error(codes.Internal, "the connection broke")
	f.mu.Unlock()
	if rep, err := w.Commit(t.Context(), []client.Handle{"h"}); err == nil || rep.State != commit.CommitUnknown {
		t.Errorf("%+v, %v", rep, err)
	}
	f.mu.Lock()
	f.refuse = nil
	f.mu.Unlock()
	if rep, err := w.Commit(t.Context(), []client.Handle{"bad"}); commit.CodeOf(err) != commit.CodeHandleVoid || rep.State != commit.CommitUnknown {
		t.Errorf("%+v, %v", rep, err)
	}
}

// What a scheduler answers is held against what it can be.
func TestAnswersThatAreNone(t *testing.T) {
	for name, change := range map[string]func(*openwrite.Answer){
		"another version":      func(a *openwrite.Answer) { a.Version = 2 },
		"an unknown state":     func(a *openwrite.Answer) { a.Status.State = "done" },
		"no id":                func(a *openwrite.Answer) { a.Status.WriteID = "" },
		"a context of another": func(a *openwrite.Answer) { a.Context.WriteID = "w-2" },
		"no prefix":            func(a *openwrite.Answer) { a.Context.Prefix = "s3://lake" },
		"no schema":            func(a *openwrite.Answer) { a.Context.ArrowSchema = nil },
		"a broken schema":      func(a *openwrite.Answer) { a.Context.ArrowSchema = []byte("\xff\xff\xff\xff\xff\xff\xff\x7f") },
		"a time that is none":  func(a *openwrite.Answer) { a.Status.Report = &openwrite.Report{Committed: "yesterday"} },
	} {
		f := &writes{answer: change}
		if _, err := f.serve(t).BeginWrite(t.Context(), "lake.air.t", client.WriteOptions{}); commit.CodeOf(err) != commit.CodeProtocol {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := &writes{}
	w := begin(t, f)
	f.answers(func(a *openwrite.Answer) { a.Status.WriteID, a.Context = "w-2", nil })
	if _, err := w.Status(t.Context()); commit.CodeOf(err) != commit.CodeProtocol {
		t.Errorf("the status of another write: %v", err)
	}
	f.answers(func(a *openwrite.Answer) { a.Result = "done" })
	if rep, err := w.Commit(t.Context(), []client.Handle{"h"}); commit.CodeOf(err) != commit.CodeProtocol || rep.State != commit.CommitUnknown {
		t.Errorf("a result that isn't known: %+v, %v", rep, err)
	}
	f = &writes{put: fault(commit.CodeManifestRefused, errors.New("file x"))}
	w = begin(t, f)
	if _, err := w.HandInFiles(t.Context(), "a", nil); commit.CodeOf(err) != commit.CodeManifestRefused || !strings.Contains(err.Error(), "file x") {
		t.Errorf("a refused manifest: %v", err)
	}
	for _, attempt := range []string{"", "a-b", "../a", strings.Repeat("a", 101)} {
		if _, err := w.HandIn(t.Context(), attempt, nil); commit.CodeOf(err) != commit.CodeBadCall {
			t.Errorf("attempt %q: %v", attempt, err)
		}
	}
}

func TestRenewAndAbort(t *testing.T) {
	f := &writes{}
	w := begin(t, f)
	if wc, err := w.Renew(t.Context(), "AK"); err != nil || wc.Storage.AccessKeyID != "AK" {
		t.Errorf("%+v, %v", wc, err)
	}
	if s, err := w.Abort(t.Context()); err != nil || s.State != client.WriteAborted {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := w.Renew(t.Context(), ""); commit.CodeOf(err) != commit.CodeWriteNotOpen {
		t.Errorf("renewed after the abort: %v", err)
	}
	if rep, err := w.Commit(t.Context(), nil); commit.CodeOf(err) != commit.CodeWriteNotOpen || rep.State != commit.CommitNone {
		t.Errorf("committed after the abort: %+v, %v", rep, err)
	}
}
