package scheduler

import (
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/cached"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/graph/adaptive"
	"github.com/firn-project/firn/scheduler/journal"
	"github.com/firn-project/firn/scheduler/planner"
)

// lineage is what a cached frame is made from. It is on record from the frame's
// first build on, so that lost pieces are built again by any later process: from the
// same versions of its sources, with the same now().
type lineage struct {
	SQL      string    `json:"sql"`
	Created  time.Time `json:"created"`
	Job      string    `json:"job"`
	TimeZone string    `json:"time_zone"`
	Now      time.Time `json:"now"`
	// Plan is bound, and Layouts how its stages were cut.
	Plan    json.RawMessage          `json:"plan"`
	Layouts map[int]*adaptive.Layout `json:"layouts,omitempty"`
	Columns []plan.Column            `json:"columns"`
	// Schema is an Arrow IPC stream without batches.
	Schema []byte `json:"schema,omitempty"`
	// Frames are those that it reads itself.
	Frames []string `json:"frames,omitempty"`
}

// frames are the cached frames; it belongs to the event loop.
type frames struct {
	*cached.Frames
	lineages map[string]*lineage
	// builds are the jobs that build lost pieces again and have not ended.
	builds map[string]*job
	// unread are the executors that readers of a frame couldn't reach, and when that was:
	// its next build rather runs elsewhere.
	unread map[string]map[string]time.Time
}

func newFrames(cfg Config, records ...cached.Record) frames {
	limits := cached.Limits{Frames: cfg.MaxFrames, Bytes: cfg.MaxFrameBytes, TTL: cfg.FrameTTL}
	return frames{cached.New(limits, records...), map[string]*lineage{}, map[string]*job{}, map[string]map[string]time.Time{}}
}

// frameOf is the id of the frame that a job builds.
func frameOf(jobID string) string { return "f-" + strings.TrimPrefix(jobID, "j-") }

// frameEvent gives an event to the frames and carries out what they answer. The
// error is a refusal.
func (s *Scheduler) frameEvent(ev cached.Event) (err error) {
	f := &s.state.frames
	for _, a := range f.Apply(ev, time.Now()) {
		switch a := a.(type) {
		case cached.Granted:
		case cached.Refused:
			err = a.Err
		case cached.StartBuild:
			s.rebuildFrame(a)
		case cached.StopBuild:
			if j := f.builds[a.Build]; j != nil && s.state.jobs[a.Build] == nil {
				j.unwanted = true // its admission is being recorded
			} else if j := s.state.jobs[a.Build]; j != nil && !j.hasEnded() {
				s.cancelJob(j)
			}
		case cached.Give:
			s.givePiece(a)
		case cached.Lose:
			s.losePieces(a)
		case cached.Deny:
			if j := s.state.jobs[a.User]; j != nil {
				s.failJob(j, a.Err)
			}
		case cached.FreeBuild:
			s.freeData(a.Build, nil)
		case cached.Keep:
			s.keepFrame(a.Frame)
		case cached.Renew:
			s.noted(nil, journal.Batch{Frames: []journal.Frame{{ID: a.Frame, Expires: a.Expires}}})
		case cached.Forget:
			delete(f.lineages, a.Frame)
			delete(f.unread, a.Frame)
			s.noted(nil, journal.Batch{Forgotten: []string{a.Frame}})
		}
	}
	return err
}

// keepFrame records what there is of a frame.
func (s *Scheduler) keepFrame(id string) {
	v, ok := s.state.frames.Any(id)
	if !ok {
		return
	}
	pieces, err := json.Marshal(v.Record)
	var from []byte
	if err == nil {
		from, err = json.Marshal(s.state.frames.lineages[id])
	}
	if err != nil { // numbers and texts
		s.log.Error("cached frame not recorded", slog.String("frame", id), slog.Any("error", err))
		return
	}
	s.noted(nil, journal.Batch{Frames: []journal.Frame{{ID: id, Lineage: from, Pieces: pieces, Expires: v.Expires}}})
}

// reserveFrame lets a job build a frame, if its owner may have one more.
func (s *Scheduler) reserveFrame(j *job, again bool) error {
	j.frame = frameOf(j.id)
	err := s.frameEvent(cached.Reserve{Frame: j.frame, Owner: j.namespace, Build: j.id, TTL: j.caches.ttl, Again: again})
	if err == nil {
		s.state.frames.lineages[j.frame] = &lineage{SQL: j.sql, Created: j.submitted, Job: j.id, TimeZone: j.timeZone, Now: j.now}
	}
	return err
}

// wantPiece asks for what stands for a task of a job. It is asked for after the
// event that is being handled: what the frames answer is an event of the job.
func (s *Scheduler) wantPiece(j *job, run graph.RunTask) {
	if j.wanted == nil {
		j.wanted = map[graph.TaskID]graph.RunTask{}
	}
	j.wanted[run.Task] = run
	s.askPiece(j, run.Task)
}

// unwantPiece takes that back.
func (s *Scheduler) unwantPiece(j *job, id graph.TaskID) {
	delete(j.wanted, id)
	s.askPiece(j, id)
}

// askPiece has the frames told whether the job wants a piece: of all that change with
// an event at once, as a stage may stand for 100,000.
func (s *Scheduler) askPiece(j *job, id graph.TaskID) {
	if j.asks = append(j.asks, id); len(j.asks) > 1 {
		return
	}
	s.loop.put(func() {
		asks := j.asks
		j.asks = nil
		if j.hasEnded() {
			return
		}
		wants, unwants := map[int][]int{}, map[int][]int{}
		for _, id := range asks {
			if _, wanted := j.wanted[id]; wanted {
				wants[id.Stage] = append(wants[id.Stage], id.Task)
			} else {
				unwants[id.Stage] = append(unwants[id.Stage], id.Task)
			}
		}
		for i := range j.planned.Stages {
			st := &j.planned.Stages[i]
			if len(unwants[i]) > 0 {
				_ = s.frameEvent(cached.Unwant{Frame: st.Frame, User: j.id, Pieces: unwants[i]})
			}
			if len(wants[i]) > 0 {
				_ = s.frameEvent(cached.Want{Frame: st.Frame, User: j.id, Pieces: wants[i], Of: st.Tasks})
			}
		}
	})
}

// givePiece has a task of a job succeed with a piece of a frame. For the job the
// piece has a name of its own, so that it can be on record for several jobs.
func (s *Scheduler) givePiece(a cached.Give) {
	j := s.state.jobs[a.User]
	if j == nil || j.graph == nil || j.hasEnded() {
		return
	}
	stage := slices.IndexFunc(j.planned.Stages, func(st planner.Stage) bool { return st.Frame == a.Frame })
	id := graph.TaskID{Stage: stage, Task: a.Number}
	run, ok := j.wanted[id]
	if !ok {
		return
	}
	delete(j.wanted, id)
	st := pieceStatus(a.Piece, nameOf(a.Piece))
	st.JobId, st.Stage, st.Task, st.StageAttempt = j.id, uint32(stage), uint32(a.Number), uint32(run.StageAttempt)
	s.noted(j, journal.Batch{Started: []journal.Attempt{{
		ID: st.GetAttemptId(), JobID: j.id, Stage: stage, Task: a.Number, StageAttempt: run.StageAttempt,
		Executor: a.Piece.Executor, Incarnation: a.Piece.Incarnation, Started: time.Now(),
	}}})
	j.holdPiece(id, st.GetAttemptId())
	s.apply(j, graph.TaskLaunched{Task: id, StageAttempt: run.StageAttempt, Attempt: st.GetAttemptId(), Executor: a.Piece.Executor})
	for _, act := range s.apply(j, success(st, id, run.StageAttempt, a.Piece.Executor)) {
		if keep, ok := act.(graph.KeepOutput); ok && keep.Attempt == st.GetAttemptId() {
			s.keepSuccess(j, st)
		}
	}
}

// nameOf makes a name of its own for a piece that a job is given.
func nameOf(p cached.Piece) string { return p.Attempt + "@" + uuid.NewString() }

// isNameOf says whether a name was made for a piece.
func isNameOf(name string, p cached.Piece) bool { return strings.HasPrefix(name, p.Attempt+"@") }

func (j *job) holdPiece(id graph.TaskID, name string) {
	if j.held == nil {
		j.held = map[graph.TaskID][]string{}
	}
	j.held[id] = append(j.held[id], name)
}

// nameOfHeld is the last name that the job has, or had, for a piece that an attempt
// made; of any attempt for an empty one.
func (j *job) nameOfHeld(id graph.TaskID, attempt string) string {
	for _, name := range slices.Backward(j.held[id]) {
		if attempt == "" || isNameOf(name, cached.Piece{Attempt: attempt}) {
			return name
		}
	}
	return ""
}

// lostInput says which output of the job a task couldn't read. A piece of a frame is
// lost for everybody. The task may be one of several that tell so, and the job may have
// given the piece up, or have another one, by then: its names for it say which it was.
func (s *Scheduler) lostInput(a *attempt, lost *wire.LostInputError) *graph.LostInput {
	j := a.job
	for _, in := range j.planned.Stages[a.task.Stage].Inputs {
		id := graph.TaskID{Stage: in, Task: lost.Task}
		name := j.nameOfHeld(id, lost.Attempt)
		if name == "" {
			continue
		}
		_ = s.frameEvent(cached.PiecesLost{Frame: j.planned.Stages[in].Frame, Attempts: []string{lost.Attempt}})
		return &graph.LostInput{Task: id, Attempt: name, Executor: lost.Executor, Unreachable: lost.Unreachable}
	}
	return lostOf(lost)
}

// losePiecesOn gives up what a job was given of frames on an executor that it couldn't
// reach: of all frames at once, or it would be given the next of them that can't be read.
func (s *Scheduler) losePiecesOn(j *job, executor string) {
	for _, frame := range framesOf(j.planned) {
		attempts := s.state.frames.HeldOn(frame, j.id, executor)
		if len(attempts) == 0 {
			continue
		}
		if s.state.frames.unread[frame] == nil {
			s.state.frames.unread[frame] = map[string]time.Time{}
		}
		s.state.frames.unread[frame][executor] = time.Now()
		_ = s.frameEvent(cached.PiecesLost{Frame: frame, Attempts: attempts})
	}
}

// losePieces tells a job that pieces which it was given are lost: after the event that
// is being handled, which may tell it itself.
func (s *Scheduler) losePieces(a cached.Lose) {
	j := s.state.jobs[a.User]
	if j == nil || j.graph == nil {
		return
	}
	var lost []graph.LostInput
	stage := slices.IndexFunc(j.planned.Stages, func(st planner.Stage) bool { return st.Frame == a.Frame })
	for _, n := range a.Numbers {
		id := graph.TaskID{Stage: stage, Task: n}
		lost = append(lost, graph.LostInput{Task: id, Attempt: j.nameOfHeld(id, "")})
	}
	s.loop.put(func() { s.apply(j, graph.OutputsLost{Lost: lost}) })
}

// rebuildFrame starts the job that builds lost pieces of a frame. It is one that
// goes on from the pieces that are left.
func (s *Scheduler) rebuildFrame(a cached.StartBuild) {
	l := s.state.frames.lineages[a.Frame]
	v, ok := s.state.frames.Any(a.Frame)
	if l == nil || !ok {
		return // it is being forgotten
	}
	j := newJob(submission{
		namespace: v.Owner, key: newID(""), newKey: true, statement: statementCache, sql: l.SQL, mode: plan.ModeCached, timeZone: l.TimeZone,
		caches: &caching{again: true},
	}, time.Now())
	j.frame, j.now, j.layouts = a.Frame, l.Now, maps.Clone(l.Layouts)
	j.resume = &resume{plan: l.Plan}
	var locations []plan.ShuffleLocation
	for n, p := range a.Kept {
		locations = append(locations, s.locationOf(p, n))
		raw, err := proto.Marshal(pieceStatus(p, p.Attempt))
		if err != nil { // numbers and ids
			continue
		}
		j.resume.attempts = append(j.resume.attempts, journal.Attempt{
			ID: p.Attempt, JobID: j.id, Stage: p.Stage, Task: n, StageAttempt: 1, Executor: p.Executor, Incarnation: p.Incarnation,
			State: journal.AttemptAccepted, Status: raw,
		})
	}
	j.kept = a.Kept
	s.state.frames.builds[j.id] = j
	for e, at := range s.state.frames.unread[a.Frame] {
		s.placement.Unreachable(j.id, e, s.up(), at)
	}
	delete(s.state.frames.unread, a.Frame)
	_ = s.frameEvent(cached.Building{Frame: a.Frame, Build: j.id})
	s.log.Info("cached frame is built again", slog.String("frame", a.Frame), slog.String("job_id", j.id), slog.Int("lost", v.Lost), slog.Int("pieces", len(v.Pieces)))
	s.wg.Go(func() {
		gone := s.unreadable(locations)
		s.loop.put(func() {
			_ = s.frameEvent(cached.PiecesLost{Frame: j.frame, Attempts: gone})
		})
		lost := map[string]bool{}
		for _, id := range gone {
			lost[id] = true
		}
		j.resume.attempts = slices.DeleteFunc(j.resume.attempts, func(a journal.Attempt) bool { return lost[a.ID] })
		if _, err := s.begin(s.life, j); err != nil {
			s.loop.put(func() {
				delete(s.state.frames.builds, j.id)
				s.placement.EndJob(j.id)
				_ = s.frameEvent(cached.BuildFailed{Frame: j.frame, Build: j.id, Err: err})
			})
		}
	})
}

// locationOf says where a piece can be read.
func (s *Scheduler) locationOf(p cached.Piece, n int) plan.ShuffleLocation {
	l := plan.ShuffleLocation{Job: p.Build, Stage: p.Stage, Task: n, Attempt: p.Attempt, Executor: p.Executor, Rows: p.Rows, Bytes: p.Bytes}
	if e := s.state.executors[p.Executor]; e != nil {
		l.Address = e.flight
	}
	return l
}

// unreadable names the attempts whose output isn't there. Where one piece is lost
// others may be, as when a disk was cleaned, and one build is for all of them.
func (s *Scheduler) unreadable(locations []plan.ShuffleLocation) (attempts []string) {
	const atOnce = 16
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, l := range s.sign(locations, time.Now().Add(ticketTTL)) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			r := s.flight.Open(s.life, sourceOf(l))
			defer r.Close()
			_, err := r.Schema()
			if _, lost := errors.AsType[*wire.LostInputError](err); lost {
				mu.Lock()
				attempts = append(attempts, l.Attempt)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return attempts
}

// pieceStatus is the success that a piece stands for.
func pieceStatus(p cached.Piece, attempt string) *firnpb.TaskStatus {
	return &firnpb.TaskStatus{
		AttemptId: attempt, State: "succeeded", RowsOut: p.Rows, BytesOut: p.Bytes,
		Outputs: []*firnpb.TaskOutput{{Rows: p.Rows, Bytes: p.Bytes}},
	}
}

// frameEnded takes in how a job ended: what it read is released, and if it built a
// frame, that is there now or isn't.
func (s *Scheduler) frameEnded(j *job) {
	delete(s.state.frames.builds, j.id)
	clear(j.wanted)
	clear(j.held)
	switch {
	case j.frame == "":
	case j.state() != graph.Succeeded:
		_ = s.frameEvent(cached.BuildFailed{Frame: j.frame, Build: j.id, Err: j.err()})
	case j.caches.again:
		s.frameBuilt(j, s.piecesOf(j), nil)
	default:
		// The schema is in the data; see jobEnded.
		pieces, locations := s.piecesOf(j), s.sign(s.locations(j, j.graph.Accepted()), j.expires)
		for _, id := range framesOf(j.planned) {
			// The frame reads others for as long as it may be built again.
			_ = s.frameEvent(cached.Use{Frame: id, Owner: j.namespace, User: j.frame, Again: true})
		}
		s.wg.Go(func() {
			schema := s.resultSchema(locations)
			s.loop.put(func() {
				s.frameBuilt(j, pieces, schema)
				j.schema = schema
				s.publish(j)
			})
		})
	}
	_ = s.frameEvent(cached.Done{User: j.id})
}

// piecesOf are the pieces of the frame that a job has built.
func (s *Scheduler) piecesOf(j *job) []cached.Piece {
	var all []cached.Piece
	for _, a := range j.graph.Accepted() {
		if p, kept := j.kept[a.Task.Task]; kept && p.Attempt == a.Attempt {
			all = append(all, p)
			continue
		}
		p := cached.Piece{Build: j.id, Stage: a.Task.Stage, Attempt: a.Attempt, Executor: a.Executor, Rows: a.Output.Rows, Bytes: a.Output.Bytes}
		if e := s.state.executors[a.Executor]; e != nil {
			p.Incarnation = e.incarnation
		}
		all = append(all, p)
	}
	return all
}

// frameBuilt makes pieces a frame's.
func (s *Scheduler) frameBuilt(j *job, pieces []cached.Piece, schema []byte) {
	l := s.state.frames.lineages[j.frame]
	if l == nil {
		return // it was released meanwhile
	}
	if l.Layouts = j.layouts; !j.caches.again {
		l.Plan, l.Columns, l.Schema, l.Frames = j.planBody, j.planned.ResultColumns, schema, framesOf(j.planned)
		if err := checkReadable(schema); err != nil {
			_ = s.frameEvent(cached.BuildFailed{Frame: j.frame, Build: j.id, Err: err})
			return
		}
	}
	_ = s.frameEvent(cached.Built{Frame: j.frame, Build: j.id, Pieces: pieces, Repeats: j.planned.Repeats()})
	s.checkPieces(j.frame)
}

// checkReadable refuses columns of types that tasks can't load again.
func checkReadable(schema []byte) error {
	if len(schema) == 0 {
		return nil // its executor is gone; whoever reads it finds out
	}
	if _, err := uploadColumns(schema); err != nil {
		return &commit.Error{
			Code: commit.CodeFrameQuery, Op: "cache query", Cause: err, Tried: "what was built of it is deleted",
			Hint: "Cast the column to another type in the query.",
		}
	}
	return nil
}

// framesOf are the frames that a job reads.
func framesOf(p *planner.Job) (ids []string) {
	for _, st := range p.Stages {
		if st.Frame != "" {
			ids = append(ids, st.Frame)
		}
	}
	return ids
}

// checkPieces counts the pieces as lost whose executor isn't there any more.
func (s *Scheduler) checkPieces(id string) {
	v, _ := s.state.frames.Any(id)
	var gone []string
	for _, p := range v.Pieces {
		if e := s.state.executors[p.Executor]; e == nil || e.incarnation != p.Incarnation {
			gone = append(gone, p.Attempt)
		}
	}
	_ = s.frameEvent(cached.PiecesLost{Frame: id, Attempts: gone})
}
