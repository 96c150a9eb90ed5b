package cached_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/cached"
	"github.com/firn-project/firn/scheduler/graph"
)

// world is a cluster with cached frames and the jobs that read them. Jobs are real
// graphs; builds, executors and data are simulated. It knows what is really where,
// and holds every action against it.
type world struct {
	rt     *rapid.T
	m      *cached.Frames
	now    time.Time
	seq    int
	alive  map[string]bool
	data   map[string]content // by attempt
	freed  map[string]bool    // builds
	frames map[string]*frameModel
	builds map[string]*build
	// asked are those StartBuild that have no job yet. Of one frame there may be several,
	// if nobody wanted it meanwhile; the jobs of all but the first are stopped.
	asked   []cached.StartBuild
	readers map[string]*reader
	stats   *stats
	told    []toldLost
	limits  cached.Limits
}

type toldLost struct {
	user string
	lost []graph.LostInput
}

type stats struct{ rebuilt, shared, denied, refused, whole, expired, inUse, done int }

// content is what an attempt wrote: the rows of one piece, in one run of the query.
type content struct {
	frame string
	piece int
	// run tells the runs of a frame that doesn't repeat apart.
	run             string
	build, executor string
}

type frameModel struct {
	id, owner string
	pieces    int
	repeats   bool
	closed    bool
	built     bool
	expires   time.Time
	// running are the builds that haven't ended.
	running map[string]bool
}

type build struct {
	id, frame string
	kept      map[int]cached.Piece
	ended     bool
}

// reader is a job with a graph: one stage that stands for the frame, and one task
// that reads it whole.
type reader struct {
	id    string
	frame *frameModel
	g     *graph.Graph
	// queued are tasks of its own that wait for an executor, wanted those that stand
	// for pieces.
	queued  []graph.RunTask
	wanted  map[int]graph.RunTask
	running map[string]*attempt
	// attempts are by the names that the graph has for pieces.
	pieces map[string]cached.Piece
	result []content
	ended  bool
}

type attempt struct {
	run      graph.RunTask
	executor string
	inputs   []cached.Piece
}

const ttl = time.Hour

func newWorld(rt *rapid.T, st *stats) *world {
	w := &world{
		rt: rt, now: time.Unix(0, 0), alive: map[string]bool{"e1": true, "e2": true, "e3": true}, data: map[string]content{}, freed: map[string]bool{},
		frames: map[string]*frameModel{}, builds: map[string]*build{}, readers: map[string]*reader{}, stats: st,
		limits: cached.Limits{Frames: 3, Bytes: 40, TTL: ttl},
	}
	w.m = cached.New(w.limits)
	return w
}

func (w *world) id(prefix string) string {
	w.seq++
	return fmt.Sprintf("%s%d", prefix, w.seq)
}

func (w *world) check(ok bool, format string, args ...any) {
	w.rt.Helper()
	if !ok {
		w.rt.Fatalf(format, args...)
	}
}

func pick[T any](w *world, from []T, what string) T { return rapid.SampledFrom(from).Draw(w.rt, what) }

// apply gives an event to the machine and carries out what it answers.
func (w *world) apply(ev cached.Event) (granted bool, err error) {
	for _, a := range w.m.Apply(ev, w.now) {
		switch a := a.(type) {
		case cached.Granted:
			granted = true
		case cached.Refused:
			err = a.Err
			w.check(commit.CodeOf(err) != "", "refused without a code: %v", err)
		case cached.StartBuild:
			f := w.frames[a.Frame]
			w.check(f.repeats || len(a.Kept) == 0, "a frame that doesn't repeat keeps %v", a.Kept)
			w.check(len(f.running) == 0, "%s is built by %v already", a.Frame, f.running)
			w.asked = append(w.asked, a)
		case cached.StopBuild:
			if b := w.builds[a.Build]; b != nil {
				b.ended = true
				delete(w.frames[b.frame].running, b.id)
			}
		case cached.Give:
			w.give(a)
		case cached.Lose:
			r := w.readers[a.User]
			var lost []graph.LostInput
			for _, run := range r.g.Runs() {
				if p, ok := r.pieces[run.Attempt]; ok && slices.Contains(a.Numbers, run.Task.Task) {
					_, there := w.data[p.Attempt]
					w.check(!there || !w.alive[p.Executor], "%s is told that %s is lost", r.id, p.Attempt)
					lost = append(lost, graph.LostInput{Task: run.Task, Attempt: run.Attempt})
				}
			}
			w.told = append(w.told, toldLost{r.id, lost})
		case cached.Deny:
			w.stats.denied++
			if r := w.readers[a.User]; r != nil && !r.ended {
				w.step(r, graph.Failed{Err: a.Err})
			}
		case cached.FreeBuild:
			w.check(!w.freed[a.Build], "%s is freed twice", a.Build)
			w.freed[a.Build] = true
			w.mayFree(a.Build)
			for id, c := range w.data {
				if c.build == a.Build {
					delete(w.data, id)
				}
			}
		case cached.Keep, cached.Renew, cached.Forget:
		}
	}
	return granted, err
}

// mayFree: nobody who was given a piece of the build may still read it.
func (w *world) mayFree(b string) {
	for _, r := range w.readers {
		if r.ended {
			continue
		}
		for _, run := range r.g.Runs() {
			if p, ok := r.pieces[run.Attempt]; ok && p.Build == b {
				if c, there := w.data[p.Attempt]; there && w.alive[c.executor] {
					w.rt.Fatalf("%s is freed while %s reads %s of it", b, r.id, p.Attempt)
				}
			}
		}
	}
}

func (w *world) give(a cached.Give) {
	r := w.readers[a.User]
	w.check(r != nil && !r.ended, "%s is given something and has ended", a.User)
	w.check(r.frame.id == a.Frame, "%s is given a piece of %s", r.id, a.Frame)
	run, ok := r.wanted[a.Number]
	w.check(ok, "%s didn't want %d", r.id, a.Number)
	delete(r.wanted, a.Number)
	name := w.id("v")
	r.pieces[name] = a.Piece
	p, held := w.m.Held(a.Frame, r.id, a.Number)
	w.check(held && p == a.Piece, "%s was given %v and holds %v", r.id, a.Piece, p)
	w.step(r, graph.TaskLaunched{Task: run.Task, StageAttempt: run.StageAttempt, Attempt: name, Executor: a.Piece.Executor})
	w.step(r, graph.TaskSucceeded{
		Task: run.Task, StageAttempt: run.StageAttempt, Attempt: name, Executor: a.Piece.Executor,
		Outputs: []graph.Output{{Rows: a.Piece.Rows, Bytes: a.Piece.Bytes}}, Rows: a.Piece.Rows, Bytes: a.Piece.Bytes,
	})
}

// step gives an event to a reader's graph. What it wants of the frame is asked for
// afterwards, as the scheduler's loop does.
func (w *world) step(r *reader, ev graph.Event) {
	if r.ended {
		return
	}
	var wants, unwants []int
	for _, a := range r.g.Apply(ev, w.now) {
		switch a := a.(type) {
		case graph.RunTask:
			if a.Task.Stage == 0 {
				r.wanted[a.Task.Task] = a
				wants = append(wants, a.Task.Task)
			} else {
				r.queued = append(r.queued, a)
			}
		case graph.CancelTask:
			switch {
			case a.Attempt != "":
				delete(r.running, a.Attempt)
			case a.Task.Stage == 0:
				delete(r.wanted, a.Task.Task)
				unwants = append(unwants, a.Task.Task)
			default:
				r.queued = slices.DeleteFunc(r.queued, func(q graph.RunTask) bool { return q.Task == a.Task })
			}
		case graph.JobEnded:
			w.ended(r)
			return
		}
	}
	wants = slices.DeleteFunc(wants, func(n int) bool { _, still := r.wanted[n]; return !still })
	unwants = slices.DeleteFunc(unwants, func(n int) bool { _, again := r.wanted[n]; return again })
	if len(unwants) > 0 {
		w.apply(cached.Unwant{Frame: r.frame.id, User: r.id, Pieces: unwants})
	}
	if len(wants) > 0 && !r.ended {
		w.apply(cached.Want{Frame: r.frame.id, User: r.id, Pieces: wants, Of: r.frame.pieces})
	}
}

// ended checks the rows of a reader that has succeeded: each piece once, and of one
// run, unless the runs are alike.
func (w *world) ended(r *reader) {
	r.ended = true
	if r.g.State() == graph.Succeeded {
		w.stats.done++
		seen := map[int]bool{}
		for _, c := range r.result {
			w.check(c.frame == r.frame.id && !seen[c.piece], "%s read %v of %v", r.id, c, r.result)
			seen[c.piece] = true
			w.check(c.run == r.result[0].run, "%s has rows of two runs: %v", r.id, r.result)
		}
		w.check(len(seen) == r.frame.pieces, "%s read %d of %d pieces", r.id, len(seen), r.frame.pieces)
	}
	w.apply(cached.Done{User: r.id})
}

func (w *world) liveExecutors() []string {
	var all []string
	for _, e := range slices.Sorted(maps.Keys(w.alive)) {
		if w.alive[e] {
			all = append(all, e)
		}
	}
	return all
}

func (w *world) liveFrames() (all []*frameModel) {
	for _, id := range slices.Sorted(maps.Keys(w.frames)) {
		if f := w.frames[id]; !f.closed {
			all = append(all, f)
		}
	}
	return all
}

var owners = []string{"ann", "bob"}

// create begins a frame.
func (w *world) create() {
	f := &frameModel{
		id: w.id("f"), owner: pick(w, owners, "owner"), pieces: rapid.IntRange(1, 4).Draw(w.rt, "pieces"), repeats: rapid.Bool().Draw(w.rt, "repeats"),
		running: map[string]bool{},
	}
	have := len(w.m.List(f.owner))
	b := &build{id: w.id("b"), frame: f.id}
	granted, err := w.apply(cached.Reserve{Frame: f.id, Owner: f.owner, Build: b.id})
	w.check(granted == (have < w.limits.Frames), "with %d frames: %v", have, err)
	if granted {
		w.frames[f.id], w.builds[b.id] = f, b
		f.running[b.id] = true
	} else {
		w.stats.refused++
	}
}

// finish ends a build that runs.
func (w *world) finish(ok bool) {
	var open []*build
	for _, id := range slices.Sorted(maps.Keys(w.builds)) {
		if b := w.builds[id]; !b.ended {
			open = append(open, b)
		}
	}
	if len(open) == 0 {
		return
	}
	w.finishBuild(pick(w, open, "build"), ok)
}

func (w *world) finishBuild(b *build, ok bool) {
	f := w.frames[b.frame]
	b.ended = true
	delete(f.running, b.id)
	if !ok || len(w.liveExecutors()) == 0 {
		w.apply(cached.BuildFailed{Frame: f.id, Build: b.id, Err: errors.New("no luck")})
		f.closed = f.closed || !f.built
		return
	}
	pieces := make([]cached.Piece, f.pieces)
	for n := range pieces {
		if p, kept := b.kept[n]; kept && w.alive[p.Executor] {
			pieces[n] = p
			continue
		}
		p := cached.Piece{Build: b.id, Attempt: w.id("a"), Executor: pick(w, w.liveExecutors(), "executor"), Rows: 3, Bytes: 4}
		c := content{frame: f.id, piece: n, build: b.id, executor: p.Executor}
		if !f.repeats {
			c.run = b.id
		}
		w.data[p.Attempt], pieces[n] = c, p
	}
	first := !f.built
	w.apply(cached.Built{Frame: f.id, Build: b.id, Pieces: pieces, Repeats: f.repeats})
	_, err := w.m.Look(f.id, f.owner)
	if first {
		if f.built = err == nil; !f.built {
			f.closed = true
			w.stats.refused++
			w.check(commit.CodeOf(err) == commit.CodeFrameLimit, "after its build: %v", err)
		} else {
			var have int64
			for _, v := range w.m.List(f.owner) {
				have += int64(len(v.Pieces)) * 4
			}
			w.check(have <= w.limits.Bytes, "%s has %d bytes", f.owner, have)
		}
		f.expires = w.now.Add(ttl)
		return
	}
	w.stats.rebuilt++
	if !f.repeats && f.pieces > 1 {
		w.stats.whole++
	}
}

// read starts a job over a frame, or tries to.
func (w *world) read() {
	if len(w.frames) == 0 {
		return
	}
	f := w.frames[pick(w, slices.Sorted(maps.Keys(w.frames)), "frame")]
	who := pick(w, owners, "reader's owner")
	r := &reader{id: w.id("j"), frame: f, wanted: map[int]graph.RunTask{}, running: map[string]*attempt{}, pieces: map[string]cached.Piece{}}
	granted, err := w.apply(cached.Use{Frame: f.id, Owner: who, User: r.id})
	switch {
	case who != f.owner:
		w.check(!granted && commit.CodeOf(err) == commit.CodeFrameNotFound, "%s may read %s's frame: %v", who, f.owner, err)
		_, missing := w.apply(cached.Use{Frame: "f0", Owner: who, User: r.id})
		w.check(fmt.Sprint(errors.Unwrap(err)) == fmt.Sprint(errors.Unwrap(missing)), "the refusal tells that it is there: %v", err)
	case f.closed:
		why := commit.CodeOf(err)
		w.check(!granted && (why == commit.CodeFrameNotFound || why == commit.CodeFrameLimit), "a frame that is gone: %v", err)
	case !f.built:
		w.check(!granted && commit.CodeOf(err) == commit.CodeFrameNotBuilt, "before it is built: %v", err)
	default:
		w.check(granted, "not granted: %v", err)
	}
	if !granted {
		return
	}
	f.expires = w.now.Add(ttl)
	r.g = graph.New(graph.Spec{JobID: r.id, MaxStageAttempts: 3, Stages: []graph.StageSpec{
		{ID: 0, Tasks: f.pieces, Outputs: 1, Deterministic: f.repeats},
		{ID: 1, Tasks: 1, Inputs: []int{0}, ReadsAll: true, Outputs: 1, Deterministic: true},
	}}, w.now)
	w.readers[r.id] = r
	w.step(r, graph.Start{})
}

// work lets something happen to the tasks of a reader.
func (w *world) work() {
	var busy []*reader
	for _, id := range slices.Sorted(maps.Keys(w.readers)) {
		if r := w.readers[id]; !r.ended && len(r.queued)+len(r.running) > 0 {
			busy = append(busy, r)
		}
	}
	if len(busy) == 0 {
		return
	}
	w.workOn(pick(w, busy, "reader"))
}

func (w *world) workOn(r *reader) {
	if len(r.queued) > 0 {
		live := w.liveExecutors()
		if len(live) == 0 {
			return
		}
		run := r.queued[0]
		r.queued = r.queued[1:]
		a := &attempt{run: run, executor: pick(w, live, "executor")}
		for _, in := range run.Inputs {
			p, held := w.m.Held(r.frame.id, r.id, in.Task.Task)
			w.check(held && p == r.pieces[in.Attempt], "%s is to read %v as piece %d and holds %v, %v", r.id, r.pieces[in.Attempt], in.Task.Task, p, held)
			a.inputs = append(a.inputs, p)
		}
		id := w.id("t")
		r.running[id] = a
		w.step(r, graph.TaskLaunched{Task: run.Task, StageAttempt: run.StageAttempt, Attempt: id, Executor: a.executor})
		return
	}
	id := slices.Sorted(maps.Keys(r.running))[0]
	a := r.running[id]
	delete(r.running, id)
	var got []content
	for i, p := range a.inputs {
		c, ok := w.data[p.Attempt]
		if !ok || !w.alive[c.executor] {
			in := a.run.Inputs[i]
			w.apply(cached.PiecesLost{Frame: r.frame.id, Attempts: w.missing(r.frame.id, p.Attempt)})
			w.step(r, graph.TaskFailed{
				Task: a.run.Task, StageAttempt: a.run.StageAttempt, Attempt: id, Executor: a.executor, Class: graph.Retryable,
				Lost: &graph.LostInput{Task: in.Task, Attempt: in.Attempt, Executor: in.Executor},
			})
			w.tellLost()
			return
		}
		got = append(got, c)
	}
	r.result = got
	w.step(r, graph.TaskSucceeded{Task: a.run.Task, StageAttempt: a.run.StageAttempt, Attempt: id, Executor: a.executor, Outputs: []graph.Output{{}}})
}

// missing are the pieces of a frame that aren't there: the one named, or all.
func (w *world) missing(frame, attempt string) []string {
	all := []string{attempt}
	if v, ok := w.m.Any(frame); ok && rapid.Bool().Draw(w.rt, "looks at all") {
		for _, p := range v.Pieces {
			if c, there := w.data[p.Attempt]; !there || !w.alive[c.executor] {
				all = append(all, p.Attempt)
			}
		}
	}
	return all
}

// tellLost has readers hear what they have lost, after the event in which that was
// found out.
func (w *world) tellLost() {
	told := w.told
	w.told = nil
	for _, l := range told {
		if r := w.readers[l.user]; r != nil {
			w.step(r, graph.OutputsLost{Lost: l.lost})
		}
	}
}

// startBuild has a job carry out what was asked for.
func (w *world) startBuild() {
	if len(w.asked) == 0 {
		return
	}
	a := w.asked[0]
	w.asked = w.asked[1:]
	b := &build{id: w.id("b"), frame: a.Frame, kept: a.Kept}
	w.builds[b.id] = b
	w.frames[a.Frame].running[b.id] = true
	waiting := 0
	for _, r := range w.readers {
		if !r.ended && r.frame.id == a.Frame && len(r.wanted) > 0 {
			waiting++
		}
	}
	if waiting > 1 {
		w.stats.shared++
	}
	w.apply(cached.Building{Frame: a.Frame, Build: b.id})
	w.check(len(w.frames[a.Frame].running) <= 1, "%s is built by %v", a.Frame, w.frames[a.Frame].running)
}

// lose has an executor end, and another one come.
func (w *world) lose() {
	live := w.liveExecutors()
	if len(live) == 0 {
		return
	}
	e := pick(w, live, "lost")
	delete(w.alive, e)
	w.alive[w.id("e")] = true
	w.apply(cached.ExecutorLost{Executor: e})
	for _, id := range slices.Sorted(maps.Keys(w.readers)) {
		w.step(w.readers[id], graph.ExecutorLost{Executor: e})
	}
}

// clean deletes one file on an executor, of which nobody knows.
func (w *world) clean() {
	if len(w.data) > 0 {
		delete(w.data, pick(w, slices.Sorted(maps.Keys(w.data)), "file"))
	}
}

func (w *world) release() {
	if len(w.frames) == 0 {
		return
	}
	f := w.frames[pick(w, slices.Sorted(maps.Keys(w.frames)), "frame")]
	who := pick(w, owners, "who")
	used := w.used(f)
	granted, err := w.apply(cached.Release{Frame: f.id, Owner: who})
	w.check(granted == (who == f.owner && !f.closed), "release by %s of %+v: %v", who, f, err)
	if granted {
		f.closed = true
		if used {
			w.stats.inUse++
		}
	}
}

func (w *world) used(f *frameModel) bool {
	for _, r := range w.readers {
		if r.frame == f && !r.ended {
			return true
		}
	}
	return false
}

func (w *world) pass() {
	w.now = w.now.Add(time.Duration(rapid.IntRange(1, 90).Draw(w.rt, "minutes")) * time.Minute)
	before := w.liveFrames()
	w.apply(cached.Tick{})
	for _, f := range before {
		_, err := w.m.Look(f.id, f.owner)
		if err == nil {
			continue
		}
		w.check(f.built && !w.used(f), "%s has expired while it was built or read", f.id)
		f.closed = true
		w.stats.expired++
	}
}

func (w *world) random() {
	switch rapid.IntRange(0, 13).Draw(w.rt, "what") {
	case 0:
		w.create()
	case 1, 2:
		w.finish(true)
	case 3:
		w.finish(rapid.Bool().Draw(w.rt, "succeeds"))
	case 4, 5:
		w.read()
	case 6, 7, 8:
		w.work()
	case 9:
		w.startBuild()
	case 10:
		w.lose()
	case 11:
		w.clean()
	case 12:
		w.release()
	case 13:
		w.pass()
	}
}

// settleDown lets everything come to its end without further faults: every reader
// ends, and when all frames are released nothing is left on any executor.
func (w *world) settleDown() {
	for range 1000 {
		w.startBuild()
		w.finish(true)
		w.work()
	}
	for _, r := range w.readers {
		w.check(r.ended, "%s never ends: %s, wants %v", r.id, r.g.State(), r.wanted)
	}
	for _, f := range w.liveFrames() {
		w.apply(cached.Release{Frame: f.id, Owner: f.owner})
	}
	w.check(len(w.data) == 0, "left on executors: %v", w.data)
	n, bytes := w.m.Totals()
	w.check(n == 0 && bytes == 0, "%d frames and %d bytes are left", n, bytes)
}

// TestRowsOfTwoRunsNeverMeet: whatever is lost, released, expired or cancelled, a
// job that succeeds has read each piece of its frame once, and all of one run unless
// the frame repeats; what it was given stays until it has ended; nobody else's frame
// is ever granted; and in the end nothing is left.
func TestRowsOfTwoRunsNeverMeet(t *testing.T) {
	st := &stats{}
	for range 10 {
		rapid.Check(t, func(rt *rapid.T) {
			w := newWorld(rt, st)
			for range rapid.IntRange(0, 120).Draw(rt, "steps") {
				w.random()
			}
			w.settleDown()
		})
	}
	t.Logf("%+v", *st)
	for what, n := range map[string]int{
		"rebuilt": st.rebuilt, "shared": st.shared, "denied": st.denied, "refused": st.refused, "whole": st.whole,
		"expired": st.expired, "released in use": st.inUse, "read to the end": st.done,
	} {
		if n == 0 {
			t.Errorf("no history had a frame %s", what)
		}
	}
}

// TestPiecesOfAnotherRun: a user that holds some pieces of a frame that doesn't repeat,
// as its process ended before it had them all, is given none of another run beside
// those.
func TestPiecesOfAnotherRun(t *testing.T) {
	now := time.Unix(0, 0)
	pieces := func(build string) []cached.Piece {
		return []cached.Piece{{Build: build, Attempt: build + "0", Executor: "e1"}, {Build: build, Attempt: build + "1", Executor: "e2"}}
	}
	m := cached.New(cached.Limits{TTL: ttl}, cached.Record{ID: "f", Owner: "ann", TTL: ttl, Pieces: pieces("a")})
	for _, ev := range []cached.Event{
		cached.Use{Frame: "f", Owner: "ann", User: "j", Again: true},
		cached.Holds{Frame: "f", User: "j", Piece: 0},
		cached.ExecutorLost{Executor: "e2"},
		cached.Want{Frame: "f", User: "j", Pieces: []int{1}, Of: 2},
		cached.Building{Frame: "f", Build: "b"},
	} {
		m.Apply(ev, now)
	}
	var lost []int
	for _, a := range m.Apply(cached.Built{Frame: "f", Build: "b", Pieces: pieces("b")}, now) {
		switch a := a.(type) {
		case cached.Give:
			t.Fatalf("given %+v", a)
		case cached.Lose:
			lost = a.Numbers
		}
	}
	if !slices.Equal(lost, []int{0}) {
		t.Fatalf("lost are %v", lost)
	}
	var given []string
	for _, a := range m.Apply(cached.Want{Frame: "f", User: "j", Pieces: []int{0, 1}, Of: 2}, now) {
		if a, ok := a.(cached.Give); ok {
			given = append(given, a.Piece.Attempt)
		}
	}
	if !slices.Equal(given, []string{"b0", "b1"}) {
		t.Errorf("given are %v", given)
	}
}
