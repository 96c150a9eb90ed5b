package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/cached"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/planner"
	"github.com/firn-project/firn/sql"
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

// errNoFrame is the error of caching a statement that has no rows.
func errNoFrame(stmt sql.Statement) error {
	return &commit.Error{
		Code: commit.CodeBadRequest, Op: "cache query", Cause: fmt.Errorf("%s gives no rows that could be cached; SELECT does", stmt.Kind),
		Tried: "nothing was run",
		Hint:  "Cache a SELECT; run other statements without caching them.",
	}
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
	st, err := s.beginNew(ctx, j)
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

// checkFrame refuses to cache a query whose rows couldn't be read by name, or built
// again.
func checkFrame(p *planner.Job, top plan.Node) error {
	refuse := func(hint, cause string, args ...any) error {
		return &commit.Error{Code: commit.CodeFrameQuery, Op: "cache query", Cause: fmt.Errorf(cause, args...), Tried: "nothing was run", Hint: hint}
	}
	seen := map[string]bool{}
	for _, c := range p.ResultColumns {
		if name := strings.ToLower(c.Name); seen[name] || name == "" {
			return refuse("Give each column a name of its own with AS.", "several columns are called %q", c.Name)
		} else {
			seen[name] = true
		}
	}
	for _, src := range sourcesOf(top) {
		if src.Flight != nil {
			return refuse("Insert the rows into a table and cache a query over that.", "it reads the source %s, whose query gives other parts each time it runs, so that single lost ones couldn't be built again", src.Flight.Name)
		}
		if src.Upload != nil {
			return refuse("Insert the rows into a table and cache a query over that.", "it reads the upload %s, which is gone once it was read, so that lost rows couldn't be built again", src.Upload.ID)
		}
	}
	return nil
}

func sourcesOf(n plan.Node) (all []plan.Source) {
	for ; n != nil; n = n.Inputs()[0] {
		if q, ok := n.(*plan.Query); ok {
			all = append(all, q.Sources...)
		}
		if len(n.Inputs()) == 0 {
			break
		}
	}
	return all
}

// useFrame gives a job a cached frame to read. The job holds it until it ends.
func (s *Scheduler) useFrame(ctx context.Context, j *job, id string) (f plan.Frame, columns []plan.Column, err error) {
	if cerr := s.loop.call(ctx, func() {
		if err = s.frameEvent(cached.Use{Frame: id, Owner: j.namespace, User: j.id}); err != nil {
			return
		}
		f, columns = s.planFrame(id), s.state.frames.lineages[id].Columns
	}); cerr != nil {
		return f, nil, cerr
	}
	return f, columns, err
}

// planFrame is a frame as plans have it.
func (s *Scheduler) planFrame(id string) plan.Frame {
	v, _ := s.state.frames.Any(id)
	f := plan.Frame{ID: id, Pieces: len(v.Pieces), Repeats: v.Repeats}
	for _, p := range v.Pieces {
		f.Bytes += p.Bytes
	}
	return f
}

// sourceFrames gives a job that builds a frame again the frames that it reads, as they
// are now.
func (s *Scheduler) sourceFrames(ctx context.Context, j *job, top plan.Node) (_ plan.Node, err error) {
	cerr := s.loop.call(ctx, func() {
		top = plan.Rewrite(top, func(n plan.Node) {
			q, ok := n.(*plan.Query)
			if !ok {
				return
			}
			q.Sources = slices.Clone(q.Sources)
			for i := range q.Sources {
				if f := q.Sources[i].Frame; f != nil && err == nil {
					err = s.frameEvent(cached.Use{Frame: f.ID, Owner: j.namespace, User: j.id, Again: true})
					own := s.planFrame(f.ID)
					q.Sources[i].Frame = &own
				}
			}
		})
	})
	return top, errors.Join(cerr, err)
}
