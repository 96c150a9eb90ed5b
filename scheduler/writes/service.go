package writes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/openwrite"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// flightMethods stands before the names of the service's methods.
const flightMethods = "/arrow.flight.protocol.FlightService/"

const (
	// handInsAtOnce is how many manifests are taken at the same time, from their stream
	// to the journal: each takes memory.
	handInsAtOnce = 16
	// handInTime is how long a worker may take to send one when it has a place, and the
	// store over one of its files.
	handInTime = 2 * time.Minute
)

// handInsOfWrite is how many of one write are, so that workers which send theirs
// slowly, or never to its end, keep nobody else from handing in.
const handInsOfWrite = 4

// Service is the Flight service. It is safe for concurrent use.
type Service struct {
	flight.BaseFlightServer
	cfg      Config
	host     Host
	journal  Journal
	signer   *wire.Signer
	verifier *wire.Verifier
	deriver  Deriver
	log      *slog.Logger
	// slots has a place for each manifest that is being taken, and reading how many
	// of one write want one.
	slots      chan struct{}
	reading    places
	handInTime time.Duration
}

// Parts are what a Service is made of.
type Parts struct {
	Config   Config
	Host     Host
	Journal  Journal
	Signer   *wire.Signer
	Verifier *wire.Verifier
	// Deriver reads footers; nil: manifests of paths are refused.
	Deriver Deriver
	Logger  *slog.Logger
}

// New makes a service. Run carries out what it does by itself.
func New(p Parts) *Service {
	return &Service{
		cfg: p.Config.WithDefaults(), host: p.Host, journal: p.Journal, signer: p.Signer, verifier: p.Verifier, deriver: p.Deriver, log: p.Logger,
		slots: make(chan struct{}, handInsAtOnce), reading: places{most: handInsOfWrite, writes: map[string]*place{}}, handInTime: handInTime,
	}
}

// Authenticate decides about a call of the service: a worker token is good for the
// methods that workers need, and everything else is let in by others. ours says
// whether the call is one of the service at all.
func (s *Service) Authenticate(ctx context.Context, method string, others func(context.Context, string) error) (ours bool, err error) {
	name, ours := strings.CutPrefix(method, flightMethods)
	if !ours {
		return false, nil
	}
	token, worker := bearerOf(ctx)
	if !worker {
		return true, toStatus(others(ctx, method))
	}
	_, err = verifyToken(s.verifier, token, time.Now())
	if err == nil && name != "DoPut" && name != "DoAction" {
		err = errors.New("a worker token isn't good for it")
	}
	if err != nil {
		return true, toStatus(errWorker(name, err))
	}
	return true, nil
}

func errWorker(what string, cause error) error {
	return &commit.Error{
		Code: commit.CodeUnauthenticated, Op: "let a worker in to", Object: what, Cause: cause,
		Hint: "A worker token is good for handing manifests of its write in and for renewing it, until it ends; RenewWrite gives a fresh one.",
	}
}

// scope refuses a call of a worker for anything but its own write.
func (s *Service) scope(ctx context.Context, what, writeID string) error {
	token, worker := bearerOf(ctx)
	if !worker {
		return nil
	}
	t, err := verifyToken(s.verifier, token, time.Now())
	if err == nil && t.WriteID != writeID {
		err = errors.New("the token is for another write")
	}
	if err != nil {
		return errWorker(what, err)
	}
	return nil
}

// DoAction implements flight.FlightServer.
func (s *Service) DoAction(a *flight.Action, stream flight.FlightService_DoActionServer) error {
	answer, err := s.act(stream.Context(), a.GetType(), a.GetBody())
	if err != nil {
		return toStatus(err)
	}
	answer.Version = openwrite.Version
	raw, err := json.Marshal(answer)
	if err != nil {
		return toStatus(err)
	}
	return stream.Send(&flight.Result{Body: raw})
}

func (s *Service) act(ctx context.Context, kind string, body []byte) (openwrite.Answer, error) {
	var begin openwrite.Begin
	var seal openwrite.Commit
	var ref openwrite.Ref
	var resume openwrite.Resume
	to, ok := map[string]any{
		openwrite.ActionBegin: &begin, openwrite.ActionCommit: &seal, openwrite.ActionResume: &resume,
		openwrite.ActionAbort: &ref, openwrite.ActionStatus: &ref, openwrite.ActionRenew: &ref,
	}[kind]
	if !ok {
		return openwrite.Answer{}, &commit.Error{
			Code: commit.CodeBadRequest, Op: "carry out action", Cause: fmt.Errorf("%.64q isn't one of the open write protocol", kind),
			Hint: "docs/reference/write-protocol.md specifies the requests. Flight SQL clients connect to another address, which `firn scheduler --flight-sql-listen` sets.",
		}
	}
	if _, worker := bearerOf(ctx); worker && kind != openwrite.ActionRenew {
		return openwrite.Answer{}, errWorker(kind, errors.New("it takes a client token"))
	}
	if err := openwrite.Decode(body, to); err != nil {
		return openwrite.Answer{}, badRequest("read the body of "+kind, err)
	}
	switch kind {
	case openwrite.ActionBegin:
		return s.begin(ctx, begin)
	case openwrite.ActionCommit:
		return s.commit(ctx, seal)
	case openwrite.ActionResume:
		return s.resume(ctx, resume)
	case openwrite.ActionAbort:
		return s.abort(ctx, ref)
	case openwrite.ActionStatus:
		return s.status(ctx, ref)
	default:
		return s.renew(ctx, ref)
	}
}

// DoPut implements flight.FlightServer: an attempt hands its manifest in.
func (s *Service) DoPut(stream flight.FlightService_DoPutServer) error {
	handle, err := s.handIn(stream)
	if err != nil {
		return toStatus(err)
	}
	return stream.Send(&flight.PutResult{AppMetadata: []byte(handle)})
}

// first gives the message that was read for its descriptor back to whoever reads the
// stream.
type first struct {
	flight.FlightService_DoPutServer
	message *flight.FlightData
}

// Recv implements flight.FlightService_DoPutServer.
func (f *first) Recv() (*flight.FlightData, error) {
	if d := f.message; d != nil {
		f.message = nil
		return d, nil
	}
	return f.FlightService_DoPutServer.Recv()
}

func (s *Service) handIn(stream flight.FlightService_DoPutServer) (string, error) {
	ctx := stream.Context()
	message, err := stream.Recv()
	if err != nil {
		return "", badRequest("take a manifest", err)
	}
	path := message.GetFlightDescriptor().GetPath()
	if len(path) != 3 || path[0] != openwrite.DescriptorManifest {
		return "", badRequest("take a manifest", fmt.Errorf("the descriptor's path is %.200q; want %q, the write's id and the attempt's", path, openwrite.DescriptorManifest))
	}
	writeID, attempt := path[1], path[2]
	if err := s.scope(ctx, "take a manifest", writeID); err != nil {
		return "", err
	}
	if !openwrite.ValidAttempt(attempt) {
		return "", Refuse(writeID, "", "", "an attempt's id has 1 to 100 letters, digits, underscores and dots", fmt.Sprintf("it is %.120q", attempt))
	}
	w, err := s.host.Find(ctx, writeID)
	if err != nil {
		return "", err
	}
	t, err := s.take(ctx, writeID)
	if err != nil {
		return "", err
	}
	defer t.done()
	m, err := s.read(ctx, t, w, writeID, attempt, &first{stream, message})
	if err != nil {
		return "", err
	}
	if err := s.complete(ctx, w, &m); err != nil {
		return "", err
	}
	rec, body, err := m.record()
	if err != nil {
		return "", err
	}
	state, answer, err := s.journal.StepWrite(ctx, writeID, lifecycle.Put{Manifest: rec, Limits: s.cfg.limits()}, body)
	if err != nil {
		return "", err
	}
	switch answer.Verdict {
	case lifecycle.Kept, lifecycle.Known:
		return rec.Handle(writeID), nil
	case lifecycle.OtherContent:
		return "", m.refuse("", "an attempt hands one manifest in", "it has handed another one in before, and that stays: other content is for a new attempt")
	case lifecycle.OverLimit:
		return "", m.refuse("", "a write fits its limits", answer.Detail)
	default:
		return "", errNotOpen(writeID, s.viewOf(w, state))
	}
}

// turn is a manifest's place among those that are taken, until all who hold it are
// done.
type turn struct {
	holders atomic.Int32
	leave   func()
}

func (t *turn) done() {
	if t.holders.Add(-1) == 0 {
		t.leave()
	}
}

// take waits for a place for a manifest of a write.
func (s *Service) take(ctx context.Context, writeID string) (*turn, error) {
	leave, err := s.reading.take(ctx, writeID)
	if err != nil {
		return nil, err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
	t := &turn{leave: func() { <-s.slots; leave() }}
	t.holders.Store(1)
	return t, nil
}

// read reads what a worker sends for a write that is open. A worker that holds its
// stream back loses it when its time is over: the call ends, and with it the stream
// and whoever reads it, who has the place until then.
func (s *Service) read(ctx context.Context, t *turn, w Write, writeID, attempt string, stream flight.FlightService_DoPutServer) (manifest, error) {
	type result struct {
		m   manifest
		err error
	}
	done := make(chan result, 1)
	t.holders.Add(1)
	go func() {
		var r result
		defer func() {
			if p := recover(); p != nil { // on this goroutine nobody else would
				s.log.Error("panic recovered", slog.String("in", "take a manifest"), slog.Any("panic", p))
				r.err = fmt.Errorf("take a manifest: internal fault: %v", p)
			}
			t.done()
			done <- r
		}()
		state, err := s.state(ctx, writeID)
		switch {
		case err != nil:
			r.err = err
		case state.Phase != lifecycle.Open || w.Plan == nil:
			r.err = errNotOpen(writeID, s.viewOf(w, state))
		default:
			r.m, r.err = readManifest(writeID, attempt, &bounded{stream, s.cfg.MaxManifest}, s.cfg.MaxManifest, s.cfg.MaxFiles)
		}
	}()
	limit := time.NewTimer(s.handInTime)
	defer limit.Stop()
	select {
	case r := <-done:
		return r.m, r.err
	case <-limit.C:
		return manifest{}, badRequest("take a manifest", fmt.Errorf("it didn't come within %s", s.handInTime))
	}
}

// state reads the record of a write.
func (s *Service) state(ctx context.Context, id string) (lifecycle.State, error) {
	st, err := s.journal.WriteState(ctx, id)
	if errors.Is(err, journal.ErrNotFound) {
		return st, NotFound(id)
	}
	return st, err
}

// NotFound is the error for a write that there isn't, by id or by key.
func NotFound(what string) error {
	return &commit.Error{
		Code: commit.CodeWriteNotFound, Op: "find write", Object: what, Cause: errors.New("the scheduler has no record of it"),
		Hint: "Begin a write with " + openwrite.ActionBegin + ".",
	}
}

func errNotOpen(id string, state openwrite.State) error {
	return &commit.Error{
		Code: commit.CodeWriteNotOpen, Op: "add to write", Object: id, Cause: fmt.Errorf("it is %s", state), Tried: "nothing was handed in",
		Hint: openwrite.ActionStatus + " tells what became of it.",
	}
}

func badRequest(op string, cause error) error {
	return &commit.Error{Code: commit.CodeBadRequest, Op: op, Cause: cause, Hint: "docs/reference/write-protocol.md specifies the requests."}
}

// unsure is the error of a commit that failed when the write may be sealed already,
// so that it may be committed all the same.
type unsure struct{ error }

// Unwrap gives the error itself.
func (u unsure) Unwrap() error { return u.error }

// toStatus makes an error fit for a Flight answer: its message has the fault. A call
// that fails has changed nothing in the table, unless it is unsure.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	outcome := commit.CommitNone
	if _, ok := errors.AsType[unsure](err); ok {
		outcome = commit.CommitUnknown
	}
	code := codes.Internal
	if st, ok := status.FromError(wire.ToStatus(err)); ok {
		code = st.Code()
	}
	return status.Error(code, openwrite.FaultOf(err, outcome).Message())
}
