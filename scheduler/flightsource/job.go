package flightsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/flightsql"
	"github.com/firn-project/firn/plan"
)

// Job are the queries that engines run for one job. It is safe for concurrent use. A
// nil Job has none.
type Job struct {
	registry *Registry
	// life ends with End.
	life context.Context //nolint:containedctx // see above
	stop context.CancelFunc
	busy sync.WaitGroup

	mu sync.Mutex
	// ran are the executions that nobody has given up, by source and query.
	ran map[[2]string]plan.Source
	// reads are the names of the sources.
	reads map[string]bool
	ended bool
}

// NewJob begins with nothing, or with what an earlier process had run. It does nothing
// any more when life ends. A nil Registry gives a nil Job.
func (r *Registry) NewJob(life context.Context, ran ...plan.Source) *Job {
	if r == nil {
		return nil
	}
	j := &Job{registry: r, ran: map[[2]string]plan.Source{}, reads: map[string]bool{}}
	j.life, j.stop = context.WithCancel(life)
	for _, s := range ran {
		j.ran[keyOf(s)], j.reads[s.Flight.Name] = s, true
	}
	return j
}

func keyOf(s plan.Source) [2]string { return [2]string{s.Flight.Name, s.Flight.Query} }

// Reads says whether a source of that name is one of the job's.
func (j *Job) Reads(name string) bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reads[name] && !j.ended
}

// Run has an engine run a query and gives the source that it makes.
func (j *Job) Run(ctx context.Context, name, query string) (plan.Source, error) {
	return j.run(ctx, name, query, 1)
}

func (j *Job) run(ctx context.Context, name, query string, execution int) (plan.Source, error) {
	var none plan.Source
	src, err := j.registry.find(ctx, name)
	if err != nil {
		return none, err
	}
	timeout := src.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, &commit.Error{
		Code: commit.CodeFlightUnavailable, Op: "run the query at", Object: "source " + name,
		Cause: fmt.Errorf("the engine didn't say within %s where its rows are", timeout),
		Hint:  "Give the source more time: timeout of its entry in sources.flight_sql.",
	})
	defer cancel()
	defer context.AfterFunc(j.life, cancel)()
	var x *flightsql.Execution
	err = j.registry.with(ctx, name, func(e *flightsql.Engine) (err error) {
		x, err = e.Execute(ctx, query)
		return err
	})
	if err != nil {
		return none, err
	}
	s := plan.Source{
		Kind: plan.SourceFlightSQL, Files: x.Endpoints, Columns: x.Columns,
		Flight: &plan.FlightSource{Name: name, Query: query, Execution: execution, Info: x.Info, Bytes: x.Bytes},
	}
	j.mu.Lock()
	ended := j.ended
	j.ran[keyOf(s)], j.reads[name] = s, true
	j.mu.Unlock()
	if ended {
		j.registry.cancel(ctx, s)
		return none, context.Canceled
	}
	return s, nil
}

// with calls an engine, and once more as somebody it knows if it doesn't know who
// asks.
func (r *Registry) with(ctx context.Context, name string, call func(*flightsql.Engine) error) error {
	expired := ""
	for {
		a, err := r.Access(ctx, name, expired)
		if err != nil {
			return err
		}
		e := flightsql.New(a)
		err = call(e)
		if cerr := e.Close(); err == nil {
			err = cerr
		}
		if commit.CodeOf(err) != commit.CodeFlightAuth || expired != "" {
			return err
		}
		expired = a.Fingerprint()
	}
}

// cancelTimeout bounds what it takes to reach an engine whose query isn't wanted any
// more; the cancellation itself has its own bound.
const cancelTimeout = 5 * time.Second

func (r *Registry) cancel(ctx context.Context, s plan.Source) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	_ = r.with(ctx, s.Flight.Name, func(e *flightsql.Engine) error {
		e.Cancel(ctx, s.Flight.Info, s.Files)
		return nil
	})
}

// Again gives up what sources' queries gave and has the engines run them once more.
// The sources are those of the job's plan, by any key.
func (j *Job) Again(ctx context.Context, sources map[int]plan.Source) (map[int]plan.Source, error) {
	out := map[int]plan.Source{}
	for _, i := range slices.Sorted(maps.Keys(sources)) {
		old := sources[i]
		j.registry.cancel(ctx, j.forget(old))
		s, err := j.run(ctx, old.Flight.Name, old.Flight.Query, old.Flight.Execution+1)
		if err != nil {
			return nil, err
		}
		if err := flightsql.SameColumns(old.Flight.Name, old.Columns, s.Columns); err != nil {
			return nil, err
		}
		s.View = old.View
		out[i] = s
	}
	return out, nil
}

// forget takes out the newest of what a query gave.
func (j *Job) forget(s plan.Source) plan.Source {
	j.mu.Lock()
	defer j.mu.Unlock()
	if newest, ok := j.ran[keyOf(s)]; ok {
		s = newest
	}
	delete(j.ran, keyOf(s))
	return s
}

// End says that the job has ended. What wasn't read to its end is cancelled, which
// takes some seconds at most; wait blocks until then.
func (j *Job) End(readToTheEnd bool) (wait func()) {
	if j == nil {
		return func() {}
	}
	j.mu.Lock()
	ended := j.ended
	j.ended = true
	ran := slices.Collect(maps.Values(j.ran))
	j.mu.Unlock()
	j.stop()
	if ended || readToTheEnd {
		return j.busy.Wait
	}
	for _, s := range ran {
		j.busy.Go(func() { j.registry.cancel(context.Background(), s) })
	}
	return j.busy.Wait
}

// leastRenewal is the least time between two renewals of a part, however little of its
// time is left.
const leastRenewal = time.Second

// Keep has the engines keep what their queries gave, until the job ends or none of it
// has an end any more, and tells of renewed parts: a source as it is from then on.
func (j *Job) Keep(renewed func(plan.Source)) {
	if j == nil {
		return
	}
	j.mu.Lock()
	ran := slices.Collect(maps.Values(j.ran))
	j.mu.Unlock()
	var keepers sync.WaitGroup
	for _, s := range ran {
		if slices.ContainsFunc(s.Files, func(f plan.SourceFile) bool { return f.Endpoint.ExpiresMS > 0 }) {
			keepers.Go(func() { j.keep(s, renewed) })
		}
	}
	keepers.Wait()
}

// keep renews the parts of one execution, as long as its engine does that.
func (j *Job) keep(s plan.Source, renewed func(plan.Source)) {
	for {
		t := time.NewTimer(renewIn(s, time.Now()))
		select {
		case <-t.C:
		case <-j.life.Done():
			t.Stop()
			return
		}
		next, ok := j.renew(s)
		j.mu.Lock()
		current, here := j.ran[keyOf(s)]
		here = here && current.Flight.Execution == s.Flight.Execution && !j.ended
		if here && ok {
			j.ran[keyOf(s)] = next
		}
		j.mu.Unlock()
		if !here || !ok {
			return
		}
		s = next
		renewed(s)
	}
}

// renewIn is how long to wait: half of the shortest time that a part has left.
func renewIn(s plan.Source, now time.Time) time.Duration {
	least := time.Duration(-1)
	for _, f := range s.Files {
		if f.Endpoint.ExpiresMS == 0 {
			continue
		}
		if left := time.UnixMilli(f.Endpoint.ExpiresMS).Sub(now) / 2; least < 0 || left < least {
			least = max(left, 0)
		}
	}
	return max(least, leastRenewal)
}

var errNoRenewal = errors.New("the engine doesn't renew")

// renew asks for more time for every part that has an end. ok is false when the
// engine doesn't give any.
func (j *Job) renew(s plan.Source) (_ plan.Source, ok bool) {
	files := slices.Clone(s.Files)
	err := j.registry.with(j.life, s.Flight.Name, func(e *flightsql.Engine) error {
		for i, f := range files {
			if f.Endpoint.ExpiresMS == 0 {
				continue
			}
			next, ok, err := e.Renew(j.life, f)
			switch {
			case commit.CodeOf(err) == commit.CodeFlightAuth, j.life.Err() != nil:
				return err
			case err != nil:
				// It may have been read, and be gone. It isn't asked about again.
				own := *f.Endpoint
				own.ExpiresMS, files[i].Endpoint = 0, &own
			case !ok:
				return errNoRenewal
			default:
				files[i] = next
			}
		}
		return nil
	})
	s.Files = files
	lives := slices.ContainsFunc(files, func(f plan.SourceFile) bool { return f.Endpoint.ExpiresMS > 0 })
	return s, err == nil && lives
}
