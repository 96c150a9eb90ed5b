package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
)

// sourcesAccess has what reaches the Flight SQL sources of the jobs that run here. It
// asks the scheduler for it, once for all tasks of a job.
type sourcesAccess struct {
	fetch func(context.Context, *firnpb.SourceAccessRequest) (*firnpb.SourceAccessResponse, error)

	mu   sync.Mutex
	jobs map[string]map[string]heldAccess
}

type heldAccess struct {
	engine *flightsql.Engine
	// shows is the fingerprint of what the engine is shown.
	shows string
	// before are earlier connections, of which streams may still be open.
	before []*flightsql.Engine
}

func newSourcesAccess(fetch func(context.Context, *firnpb.SourceAccessRequest) (*firnpb.SourceAccessResponse, error)) *sourcesAccess {
	return &sourcesAccess{fetch: fetch, jobs: map[string]map[string]heldAccess{}}
}

// drop forgets what belongs to a job of which nothing runs any more, and gives its
// connections, which the caller closes.
func (s *sourcesAccess) drop(job string) (unused []*flightsql.Engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.jobs[job] {
		unused = append(append(unused, h.before...), h.engine)
	}
	delete(s.jobs, job)
	return unused
}

// get gives the access to a source: another one than that which expired names, if
// that isn't empty.
func (s *sourcesAccess) get(ctx context.Context, job, source, expired string) (heldAccess, error) {
	s.mu.Lock()
	h, ok := s.jobs[job][source]
	s.mu.Unlock()
	if ok && (expired == "" || expired != h.shows) {
		return h, nil
	}
	ctx, cancel := context.WithTimeout(ctx, renewFailing)
	defer cancel()
	got, err := s.fetch(ctx, &firnpb.SourceAccessRequest{JobId: job, Source: source, Expired: expired})
	if err == nil && !got.GetKnown() {
		err = errors.New("the scheduler doesn't know this executor just now")
	}
	var access flightsql.Access
	if err == nil {
		err = json.Unmarshal(got.GetAccess(), &access)
	}
	if err != nil {
		if err = wire.FromStatus(err); commit.CodeOf(err) == "" {
			err = &commit.Error{Code: commit.CodeFlightUnavailable, Op: "ask the scheduler for", Object: "source " + source, Cause: err}
		}
		return h, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.jobs[job] == nil {
		s.jobs[job] = map[string]heldAccess{}
	}
	h = s.jobs[job][source] // another task may have asked meanwhile
	if shows := access.Fingerprint(); h.engine == nil || h.shows != shows {
		if h.engine != nil {
			h.before = append(h.before, h.engine)
		}
		h.engine, h.shows = flightsql.New(access), shows
		s.jobs[job][source] = h
	}
	return h, nil
}

// openEndpoint reads a part of what an engine's query gave.
func (r *task) openEndpoint(ctx context.Context, src *plan.Source, f plan.SourceFile) (Batches, error) {
	if src.Flight == nil {
		return nil, r.unplanned(fmt.Errorf("the source %v has no query", src.View))
	}
	job, name := r.def.GetJobId(), src.Flight.Name
	held, err := r.e.sources.get(ctx, job, name, "")
	if err != nil {
		return nil, err
	}
	s, err := held.engine.Read(ctx, f, src.Columns, r.def.GetBroke(), false)
	if errors.Is(err, flightsql.ErrUnauthenticated) {
		if held, err = r.e.sources.get(ctx, job, name, held.shows); err != nil {
			return nil, err
		}
		s, err = held.engine.Read(ctx, f, src.Columns, r.def.GetBroke(), true)
	}
	if err != nil {
		return nil, err
	}
	return endpointRows{s}, nil
}

// endpointRows are Batches.
type endpointRows struct{ *flightsql.Stream }

func (r endpointRows) Close() error {
	r.Stream.Close()
	return nil
}
