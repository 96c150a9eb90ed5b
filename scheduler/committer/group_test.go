package committer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
	"github.com/firn-project/firn/scheduler/committer"
)

// group is a lab whose first request is held until release, so that what is
// submitted meanwhile gathers in the queue. It must be used in a bubble.
type group struct {
	*lab
	release func()
	// requests are the jobs of each built request, and build and answer look at
	// every one.
	requests [][]string
	build    func([]commit.Unit)
	answer   func(commit.Request) (commit.Answer, bool)

	wg      sync.WaitGroup
	mu      sync.Mutex
	reports map[string]commit.Report
	errs    map[string]error
}

func newGroup(t *testing.T, change func(*committer.Config)) *group {
	t.Helper()
	g := &group{lab: newLab(t, change), reports: map[string]commit.Report{}, errs: map[string]error{}}
	hold := make(chan struct{})
	g.release = sync.OnceFunc(func() { close(hold) })
	t.Cleanup(g.release)
	g.opened = func(table commit.Table) commit.Table { return gated{table, g, hold} }
	g.submit(t.Context(), "first", "first", nil)
	synctest.Wait()
	return g
}

// gated is the table of a group.
type gated struct {
	commit.Table
	g    *group
	hold chan struct{}
}

func (t gated) Build(ctx context.Context, m commit.Metadata, units []commit.Unit) (commit.Request, error) {
	var jobs []string
	for _, u := range units {
		jobs = append(jobs, u.JobID)
	}
	t.g.requests = append(t.g.requests, jobs)
	if t.g.build != nil {
		t.g.build(units)
	}
	return t.Table.Build(ctx, m, units)
}

func (t gated) Send(ctx context.Context, r commit.Request) commit.Answer {
	select {
	case <-t.hold:
	case <-ctx.Done():
	}
	if t.g.answer != nil {
		if a, ok := t.g.answer(r); ok {
			return a
		}
	}
	return t.Table.Send(ctx, r)
}

// submit runs a root of its own goroutine.
func (g *group) submit(ctx context.Context, job, key string, change func(*committer.Root)) {
	r := g.root(job, key)
	if change != nil {
		change(&r)
	}
	g.wg.Go(func() {
		rep, err := g.com.Run(ctx, r)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.reports[key], g.errs[key] = rep, err
	})
}

func (g *group) finish() {
	synctest.Wait() // all are in the queue
	g.release()
	g.wg.Wait()
}

func (g *group) committed(t *testing.T, keys ...string) {
	t.Helper()
	for _, k := range keys {
		if rep := g.reports[k]; g.errs[k] != nil || rep.State != commit.CommitCommitted || rep.Rows != 2 || rep.SnapshotID == "" {
			t.Errorf("%s: %+v %v", k, rep, g.errs[k])
		}
	}
}

func TestUnitsGatherWhileARequestIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		var keys []string
		for n := range 64 {
			keys = append(keys, fmt.Sprintf("k%d", n))
			g.submit(t.Context(), "j"+keys[n], keys[n], nil)
		}
		g.finish()
		g.committed(t, append(keys, "first")...)
		if g.c.Applied() != 2 || g.c.Rows("main") != 65*2 {
			t.Errorf("%d table versions, %d rows", g.c.Applied(), g.c.Rows("main"))
		}
		for _, k := range keys {
			rep := g.reports[k]
			if rep.SnapshotID != g.reports[keys[0]].SnapshotID || rep.JobID != "j"+k || rep.Key != k || rep.Files != 1 || rep.Deduplicated || rep.Attempts != 1 {
				t.Errorf("receipt %+v", rep)
			}
		}
		if g.opens.Load() != 1 {
			t.Errorf("the table was opened %d times", g.opens.Load())
		}
	})
}

func TestABatchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		for n := range 600 {
			k := fmt.Sprintf("k%d", n)
			g.submit(t.Context(), "j"+k, k, nil)
		}
		g.finish()
		if len(g.requests) != 4 || len(g.requests[1]) != 256 || len(g.requests[2]) != 256 || len(g.requests[3]) != 88 {
			t.Errorf("%d requests", len(g.requests))
		}
		if g.c.Rows("main") != 601*2 {
			t.Errorf("%d rows", g.c.Rows("main"))
		}
	})
}

// A job with many units leaves room for others, and the oldest unit goes first
// all the same.
func TestJobsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, func(c *committer.Config) { c.MaxBatch = 3 })
		for n := range 6 {
			g.submit(t.Context(), "big", fmt.Sprintf("b%d", n), nil)
			synctest.Wait()
		}
		g.submit(t.Context(), "small", "s", nil)
		g.finish()
		want := "[[first] [big small big] [big big big] [big]]"
		if got := fmt.Sprint(g.requests); got != want {
			t.Errorf("requests %s, want %s", got, want)
		}
	})
}

func TestAPoisonedUnitIsRefusedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		bad := commit.NewToken(commit.TokenInput{Key: "k3", TableUUID: g.c.UUID(), Branch: "main"})
		g.answer = func(r commit.Request) (commit.Answer, bool) {
			return commit.Answer{Class: commit.AnswerRejected, Status: 400, Err: errors.New("bad data file")}, slices.Contains(r.Tokens, bad)
		}
		var good []string
		for n := range 8 {
			k := fmt.Sprintf("k%d", n)
			if n != 3 {
				good = append(good, k)
			}
			g.submit(t.Context(), "j"+k, k, nil)
		}
		g.finish()
		g.committed(t, good...)
		if rep, err := g.reports["k3"], g.errs["k3"]; rep.State != commit.CommitRefused || commit.ReasonOf(err) != commit.ReasonValidation {
			t.Errorf("the poisoned one: %+v %v", rep, err)
		}
		if g.c.Rows("main") != 16 {
			t.Errorf("%d rows", g.c.Rows("main"))
		}
	})
}

func TestABatchWithAUnitThatIsThereAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		g.submit(t.Context(), "again", "a", nil)
		synctest.Wait()
		g.submit(t.Context(), "again2", "a", nil) // the same token: never in one request
		g.submit(t.Context(), "other", "b", nil)
		g.finish()
		if g.c.Applied() != 2 || g.c.Rows("main") != 6 {
			t.Errorf("%d versions, %d rows", g.c.Applied(), g.c.Rows("main"))
		}
		g.submit(t.Context(), "third", "a", nil)
		g.submit(t.Context(), "more", "c", nil)
		g.wg.Wait()
		if rep := g.reports["a"]; !rep.Deduplicated || rep.Attempts != 0 {
			t.Errorf("%+v %v", rep, g.errs["a"])
		}
		g.committed(t, "c")
		for _, r := range g.requests {
			seen := map[string]bool{}
			for _, j := range r {
				if j == "again2" || j == "third" || seen[j] {
					t.Errorf("request %v", r)
				}
				seen[j] = true
			}
		}
	})
}

func TestACancelRacesWithItsBatch(t *testing.T) {
	for _, at := range []string{"queue", "build", "permit", "send"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroup(t, nil)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				g.submit(ctx, "jx", "x", func(r *committer.Root) {
					if at == "permit" {
						r.BeforeSend = func() error { cancel(); return context.Canceled }
					}
				})
				g.submit(t.Context(), "ja", "a", nil)
				g.submit(t.Context(), "jb", "b", nil)
				synctest.Wait()
				switch at {
				case "queue":
					cancel()
				case "build":
					g.build = func([]commit.Unit) { cancel() }
				case "send":
					g.answer = func(r commit.Request) (commit.Answer, bool) {
						if len(r.Tokens) == 3 {
							cancel()
						}
						return commit.Answer{}, false
					}
				}
				// While the first request is held, a cancelled unit comes back.
				if at == "queue" {
					synctest.Wait()
					if rep := g.reports["x"]; commit.KindOf(g.errs["x"]) != commit.KindCancelled || rep.State != commit.CommitNone {
						t.Errorf("%+v %v", rep, g.errs["x"])
					}
				}
				g.finish()
				g.committed(t, "a", "b")
				rows := int64(8)
				if at == "send" {
					g.committed(t, "x")
				} else {
					rows = 6
					if commit.KindOf(g.errs["x"]) != commit.KindCancelled || g.reports["x"].State != commit.CommitNone {
						t.Errorf("%+v %v", g.reports["x"], g.errs["x"])
					}
				}
				if got := g.c.Rows("main"); got != rows {
					t.Errorf("%d rows, want %d", got, rows)
				}
				if at == "queue" && fmt.Sprint(len(g.requests)) != "2" {
					t.Errorf("a unit that had left was built: %v", g.requests)
				}
			})
		})
	}
}

func TestAPanicEndsEveryUnitOfTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		broken := false
		g.answer = func(r commit.Request) (commit.Answer, bool) {
			if len(r.Tokens) == 3 && !broken {
				broken = true
				panic("driver broke")
			}
			return commit.Answer{}, false
		}
		for _, k := range []string{"a", "b", "c"} {
			g.submit(t.Context(), "j"+k, k, nil)
		}
		g.finish()
		for _, k := range []string{"a", "b", "c"} {
			if g.reports[k].State != commit.CommitUnknown || !strings.Contains(g.errs[k].Error(), "driver broke") {
				t.Errorf("%s: %+v %v", k, g.reports[k], g.errs[k])
			}
		}
		g.submit(t.Context(), "je", "e", func(r *committer.Root) {
			r.OnPhase = func(p string) {
				if p == committer.PhaseCommitting {
					panic("caller broke")
				}
			}
		})
		g.wg.Wait()
		if g.reports["e"].State != commit.CommitRefused || !strings.Contains(g.errs["e"].Error(), "caller broke") {
			t.Errorf("%+v %v", g.reports["e"], g.errs["e"])
		}
		g.submit(t.Context(), "jd", "d", nil)
		g.wg.Wait()
		g.committed(t, "first", "d")
		if g.opens.Load() != 2 || g.closes.Load() != 1 {
			t.Errorf("a driver that broke must be opened anew: %d opens, %d closes", g.opens.Load(), g.closes.Load())
		}
	})
}

// What replaces or deletes goes alone and in its turn; units of another schema
// don't share a request either.
func TestWhatDoesNotShareARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		overwrite := func(r *committer.Root) { r.Plan.Operation = "overwrite" }
		branch := func(r *committer.Root) { r.Plan.Branch = "audit" }
		for n, change := range []func(*committer.Root){nil, overwrite, nil, branch, overwrite, branch} {
			g.submit(t.Context(), fmt.Sprintf("j%d", n), fmt.Sprintf("k%d", n), change)
			synctest.Wait()
		}
		g.finish()
		got := map[string]bool{}
		for _, r := range g.requests {
			got[fmt.Sprint(r)] = true
		}
		for _, want := range []string{"[j0 j2]", "[j1]", "[j3 j5]", "[j4]"} {
			if !got[want] {
				t.Errorf("requests %v lack %s", g.requests, want)
			}
		}
	})
}

func TestAnIdleTableIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(c *committer.Config) { c.IdleClose = time.Minute })
		for n, want := range []int64{1, 1, 2} {
			k := fmt.Sprintf("k%d", n)
			if _, err := l.com.Run(t.Context(), l.root("j"+k, k)); err != nil {
				t.Error(err)
			}
			if l.opens.Load() != want {
				t.Errorf("opened %d times after %d commits", l.opens.Load(), n+1)
			}
			<-time.After(time.Duration(n+1) * 40 * time.Second)
		}
		synctest.Wait()
		if l.closes.Load() != 2 {
			t.Errorf("closed %d times", l.closes.Load())
		}
	})
}

// The ledger isn't trimmed past what a unit in the queue needs.
func TestTheLedgerReachesBackToTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, func(c *committer.Config) { c.MaxBatch = 2 })
		var floors []int64
		g.build = func(units []commit.Unit) {
			for _, u := range units {
				floors = append(floors, u.LedgerFloor.Number)
			}
		}
		for n, origin := range []int64{9, 8, 5} {
			g.submit(t.Context(), fmt.Sprint("j", n), fmt.Sprint("k", n), func(r *committer.Root) {
				r.Origin = commit.Seat{Number: origin}
				if n == 2 {
					r.LedgerFloor = &commit.Seat{Number: 3}
				}
			})
			synctest.Wait()
		}
		g.finish()
		if fmt.Sprint(floors) != "[5 5 3]" {
			t.Errorf("floors %v", floors)
		}
	})
}

// A unit that can only wait for proof lets others pass, and is settled by them.
func TestAParkedUnitBlocksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, func(c *committer.Config) { c.MaxAttempts = 1 })
		d := committest.NewDriver(l.c)
		if err := d.Inject("late"); err != nil {
			t.Fatal(err)
		}
		l.driver = d
		var first error
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, first = l.com.Run(t.Context(), l.root("j1", "k1"))
		}()
		<-time.After(time.Second)
		if w := l.com.Waits(); len(w) != 1 || w[0].JobID != "j1" || !strings.Contains(w[0].For, "proof") {
			t.Errorf("%+v", w)
		}
		if rep, err := l.com.Run(t.Context(), l.root("j2", "k2")); err != nil || rep.State != commit.CommitCommitted {
			t.Errorf("%+v %v", rep, err)
		}
		<-done
		if commit.ReasonOf(first) != commit.ReasonBudget {
			t.Errorf("%v", first)
		}
		if l.c.Deliver() != 0 {
			t.Error("the refused unit landed")
		}
	})
}

func TestTheWatchdogNamesWhatACommitWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedBuffer
		g := newGroup(t, func(c *committer.Config) {
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			c.QueueLimit, c.WatchEvery = time.Minute, 10*time.Second
		})
		g.submit(t.Context(), "j2", "k2", nil)
		<-time.After(15 * time.Second)
		synctest.Wait()
		w := g.com.Waits()
		if len(w) != 2 || w[0].JobID != "first" || w[1].JobID != "j2" || w[0].Table.String() != committest.Name.String() ||
			!strings.HasPrefix(w[0].For, "the catalog's answer to request ") || !strings.HasPrefix(w[1].For, "another commit to the table, which waits for the catalog's answer") {
			t.Errorf("%+v", w)
		}
		for _, want := range []string{"commit waits", "job_id=j2", "waits_for=", "waited=10s"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("log lacks %q:\n%s", want, log.String())
			}
		}
		// The wait is bounded, and its refusal says what for.
		<-time.After(time.Minute)
		synctest.Wait()
		if err := g.errs["k2"]; commit.ReasonOf(err) != commit.ReasonBudget || !strings.Contains(err.Error(), "another commit to the table") {
			t.Errorf("%v", err)
		}
		g.finish()
		g.committed(t, "first")
		if len(g.com.Waits()) != 0 {
			t.Errorf("%+v", g.com.Waits())
		}
	})
}

// Many jobs against a foreign writer that is always there: all succeed.
func TestManyJobsAgainstAForeignWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroup(t, nil)
		n := 0
		g.answer = func(commit.Request) (commit.Answer, bool) {
			if n++; n < 12 {
				g.c.Foreign("main")
			}
			return commit.Answer{}, false
		}
		var keys []string
		for n := range 54 {
			keys = append(keys, fmt.Sprintf("k%d", n))
			g.submit(t.Context(), "j"+keys[n], keys[n], nil)
		}
		g.finish()
		g.committed(t, keys...)
		if g.c.Sends() > 40 {
			t.Errorf("%d requests for 54 jobs", g.c.Sends())
		}
		if left := len(g.c.MetadataFiles()); left > 2*2 {
			t.Errorf("requests that lost left %d metadata files behind: %v", left, g.c.MetadataFiles())
		}
	})
}

// A unit that was sent before and can't be driven again isn't one of which nothing
// was committed.
func TestWhatWasSentBeforeStaysOpen(t *testing.T) {
	l := newLab(t, nil)
	r := l.root("j1", "k")
	r.Sent = []commit.Request{{ID: "r-1", SnapshotID: "1", Branch: commit.MainBranch, Seat: commit.Seat{Number: 1}}}
	r.Read = func(context.Context, *commit.Packer) error {
		return errors.New("the manifest can't be read")
	}
	if rep, err := l.com.Run(t.Context(), r); err == nil || rep.State != commit.CommitUnknown {
		t.Errorf("%+v %v", rep, err)
	}
}
