package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/cached"
	"github.com/firn-project/firn/scheduler/journal"
)

// statementCache is the kind of statement of jobs that build cached frames.
const statementCache = "CACHE"

// maxFrameTTL bounds what a client may ask for.
const maxFrameTTL = 30 * 24 * time.Hour

// CacheFrame implements firnpb.ClientServiceServer. A statement that writes is
// refused when its job is planned, as for every job that is to be cached.
func (s *Scheduler) CacheFrame(ctx context.Context, r *firnpb.CacheFrameRequest) (*firnpb.CacheFrameResponse, error) {
	req := r.GetStatement()
	ttl := time.Duration(r.GetTtlMs()) * time.Millisecond
	if r.GetTtlMs() < 0 || r.GetTtlMs() > maxFrameTTL.Milliseconds() {
		return nil, badRequest("cache query", fmt.Errorf("the time to live is %d ms; want 0 to %d", r.GetTtlMs(), maxFrameTTL.Milliseconds()))
	}
	if req.GetDryRun() || len(req.GetPhysical()) > 0 {
		return nil, badRequest("cache query", errors.New("a cached frame is made from SQL, and not from a plan or as a dry run"))
	}
	if mode := req.GetMode(); mode != "" && mode != string(plan.ModeCached) {
		return nil, badRequest("cache query", fmt.Errorf("the mode is %q; a frame's is %q", mode, plan.ModeCached))
	}
	sub, err := newSubmission(req, plan.ModeCached)
	if err != nil {
		return nil, err
	}
	sub.caches = &caching{ttl: ttl}
	resp, err := s.executeSQL(ctx, req, sub)
	if err != nil {
		return nil, err
	}
	return &firnpb.CacheFrameResponse{FrameId: frameOf(resp.GetJob().GetJobId()), Job: resp.GetJob()}, nil
}

// asFrame changes what a statement is submitted as when its rows become a frame.
func (sub *submission) asFrame() {
	sub.statement = statementCache
	sub.fingerprint = fingerprint("frame", sub.fingerprint, strconv.FormatInt(int64(sub.caches.ttl), 10))
}

// beginFrame admits a job that builds a frame, unless the job that its key stood for
// has built one that is still there.
func (s *Scheduler) beginFrame(ctx context.Context, j *job, earlier journal.Job, found bool) (*firnpb.JobStatus, error) {
	alive := false
	var err error
	if cerr := s.loop.call(ctx, func() {
		if found {
			v, lerr := s.state.frames.Look(frameOf(earlier.ID), j.namespace)
			alive = lerr == nil && v.Ready
		}
		if !alive {
			err = s.reserveFrame(j, false)
		}
	}); cerr != nil {
		return nil, cerr
	}
	if alive {
		return recorded(earlier)
	}
	if err != nil {
		return nil, err
	}
	st, err := s.begin(ctx, j)
	if err != nil {
		_ = s.loop.call(context.WithoutCancel(ctx), func() {
			_ = s.frameEvent(cached.BuildFailed{Frame: j.frame, Build: j.id, Err: err})
		})
	}
	return st, err
}

// ListFrames implements firnpb.ClientServiceServer.
func (s *Scheduler) ListFrames(ctx context.Context, _ *firnpb.ListFramesRequest) (*firnpb.ListFramesResponse, error) {
	resp := &firnpb.ListFramesResponse{}
	err := s.loop.call(ctx, func() {
		for _, v := range s.state.frames.List(defaultNamespace) {
			st := s.frameStatus(v)
			st.ResultSchema = nil
			resp.Frames = append(resp.Frames, st)
		}
	})
	return resp, err
}

// GetFrame implements firnpb.ClientServiceServer.
func (s *Scheduler) GetFrame(ctx context.Context, r *firnpb.FrameRequest) (st *firnpb.FrameStatus, err error) {
	if cerr := s.loop.call(ctx, func() {
		var v cached.View
		if v, err = s.state.frames.Look(r.GetFrameId(), defaultNamespace); err == nil {
			st = s.frameStatus(v)
		}
	}); cerr != nil {
		return nil, cerr
	}
	return st, err
}

// ReleaseFrame implements firnpb.ClientServiceServer.
func (s *Scheduler) ReleaseFrame(ctx context.Context, r *firnpb.FrameRequest) (st *firnpb.FrameStatus, err error) {
	if cerr := s.loop.call(ctx, func() {
		v, lerr := s.state.frames.Look(r.GetFrameId(), defaultNamespace)
		if lerr == nil {
			st = s.frameStatus(v)
		}
		err = s.frameEvent(cached.Release{Frame: r.GetFrameId(), Owner: defaultNamespace})
	}); cerr != nil {
		return nil, cerr
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

// frameStatus is a frame as clients see it.
func (s *Scheduler) frameStatus(v cached.View) *firnpb.FrameStatus {
	st := &firnpb.FrameStatus{
		FrameId: v.ID, State: "ready", Pieces: uint32(len(v.Pieces)), Lost: uint32(v.Lost), Users: uint32(v.Users), TtlMs: v.TTL.Milliseconds(),
		ExpiresUnixMs: millis(v.Expires), Repeats: v.Repeats,
	}
	switch {
	case !v.Ready:
		st.State = "building"
	case v.Building != "":
		st.State = "rebuilding"
	case v.Lost > 0:
		st.State = "lost"
	}
	for _, p := range v.Pieces {
		st.Rows, st.Bytes = st.Rows+p.Rows, st.Bytes+p.Bytes
		if !slices.Contains(st.Executors, p.Executor) {
			st.Executors = append(st.Executors, p.Executor)
		}
	}
	slices.Sort(st.Executors)
	if l := s.state.frames.lineages[v.ID]; l != nil {
		st.Sql, st.JobId, st.CreatedUnixMs, st.ResultSchema = l.SQL, l.Job, millis(l.Created), l.Schema
	}
	return st
}
