package cached

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Limits are what one owner may have.
type Limits struct {
	// Frames and Bytes are of all frames of an owner together; 0 for no limit.
	Frames int
	Bytes  int64
	// TTL is how long a frame is kept without being used, unless it says otherwise.
	TTL time.Duration
}

// Piece is a part of a frame: the output of one task, on one executor.
type Piece struct {
	// Build is the job that made it, and Stage the job's stage.
	Build string `json:"build"`
	Stage int    `json:"stage"`
	// Attempt made it, on an executor in the incarnation named.
	Attempt     string `json:"attempt"`
	Executor    string `json:"executor"`
	Incarnation string `json:"incarnation"`
	Rows        int64  `json:"rows"`
	Bytes       int64  `json:"bytes"`
}

// Record is a frame as the journal keeps it.
type Record struct {
	ID      string        `json:"id"`
	Owner   string        `json:"owner"`
	TTL     time.Duration `json:"ttl"`
	Expires time.Time     `json:"-"`
	Repeats bool          `json:"repeats"`
	Pieces  []Piece       `json:"pieces"`
	// Closed is why nobody new may use it; empty while its owner may.
	Closed string `json:"closed,omitempty"`
}

// View is what can be shown of a frame.
type View struct {
	Record
	// Building is the job that builds it now; empty for none.
	Building string
	// Ready: it was built once.
	Ready bool
	// Lost is how many pieces would have to be built again, Users how many jobs and
	// frames read it.
	Lost, Users int
}

// frame is one frame.
type frame struct {
	Record
	ready    bool
	building string
	// asked: StartBuild was emitted, and no job is known yet.
	asked bool
	lost  map[int]bool
	users map[string]*use
	// builds are the jobs that may have data on executors.
	builds map[string]bool
	// renewed is the expiry that is on record.
	renewed time.Time
}

// use is what one user does with a frame.
type use struct {
	given map[int]Piece
	wants map[int]bool
	// of is how many pieces it was planned for.
	of int
}

// goneKept bounds how many frames that are gone are remembered, to say why.
const goneKept = 1000

// gone is a frame that was.
type gone struct {
	owner string
	err   error
}

// Frames is all cached frames as a state machine. It is used by one goroutine.
//
// What it guarantees, whatever the order of events:
//
//   - Only its owner, or what the owner runs, is granted the use of a frame.
//   - A frame is built by one job at a time, however many want it.
//   - What a user was given stays until the user is done: release, expiry and
//     another build free nothing that somebody may still read.
//   - The pieces that a user holds of a frame that doesn't repeat are of one build.
//   - Each build's data is freed once, when nothing of it is needed any more.
type Frames struct {
	limits Limits
	frames map[string]*frame
	gone   map[string]gone
	order  []string
	now    time.Time
	out    []Action
}

// New makes the machine; records are the frames of an earlier process. Which of
// their pieces are still there is told by PiecesLost, who goes on reading them by Use
// and Holds.
func New(limits Limits, records ...Record) *Frames {
	m := &Frames{limits: limits, frames: map[string]*frame{}, gone: map[string]gone{}}
	for _, r := range records {
		f := &frame{Record: r, ready: true, lost: map[int]bool{}, users: map[string]*use{}, builds: map[string]bool{}, renewed: r.Expires}
		for _, p := range r.Pieces {
			f.builds[p.Build] = true
		}
		m.frames[r.ID] = f
	}
	return m
}

// Apply takes in one event and returns what must be done, in this order.
func (m *Frames) Apply(ev Event, now time.Time) []Action {
	m.now, m.out = now, nil
	switch ev := ev.(type) {
	case Reserve:
		m.reserve(ev)
	case Use:
		m.use(ev)
	case Want:
		m.want(ev)
	case Unwant:
		if u := m.userOf(ev.Frame, ev.User); u != nil {
			for _, n := range ev.Pieces {
				delete(u.wants, n)
			}
			m.settle(m.frames[ev.Frame])
		}
	case Holds:
		if u := m.userOf(ev.Frame, ev.User); u != nil && ev.Piece < len(m.frames[ev.Frame].Pieces) {
			u.given[ev.Piece] = m.frames[ev.Frame].Pieces[ev.Piece]
		}
	case Done:
		m.done(ev.User)
	case Building:
		m.startedBuild(ev)
	case Built:
		m.builtFrame(ev)
	case BuildFailed:
		m.buildFailed(ev)
	case PiecesLost:
		if f := m.frames[ev.Frame]; f != nil {
			gone := make(map[string]bool, len(ev.Attempts))
			for _, a := range ev.Attempts {
				gone[a] = true
			}
			lost := func(p Piece) bool { return gone[p.Attempt] }
			m.tell(f, lost)
			m.lose(f, lost)
		}
	case ExecutorLost:
		for _, f := range m.inOrder() {
			m.lose(f, func(p Piece) bool { return p.Executor == ev.Executor })
		}
	case Release:
		m.release(ev)
	case Tick:
		m.tick()
	}
	out := m.out
	m.out = nil
	return out
}

func (m *Frames) emit(a Action) { m.out = append(m.out, a) }

func (m *Frames) inOrder() []*frame {
	return slices.SortedFunc(maps.Values(m.frames), func(a, b *frame) int { return cmp.Compare(a.ID, b.ID) })
}

func (m *Frames) userOf(id, user string) *use {
	if f := m.frames[id]; f != nil {
		return f.users[user]
	}
	return nil
}

// List shows the frames of an owner, in the order of their ids; all for an empty
// one. Those that nobody new may use are left out.
func (m *Frames) List(owner string) (views []View) {
	for _, f := range m.inOrder() {
		if f.Closed == "" && (owner == "" || f.Owner == owner) {
			views = append(views, f.view())
		}
	}
	return views
}

// Look shows one frame of an owner, or says why there is none.
func (m *Frames) Look(id, owner string) (View, error) {
	f, err := m.find("look at cached frame", id, owner)
	if err != nil {
		return View{}, err
	}
	return f.view(), nil
}

// Any shows a frame whoever asks, also one that nobody new may use.
func (m *Frames) Any(id string) (v View, ok bool) {
	f := m.frames[id]
	if f == nil {
		return v, false
	}
	return f.view(), true
}

func (f *frame) view() View {
	v := View{Record: f.Record, Building: f.building, Ready: f.ready, Lost: len(f.lost), Users: len(f.users)}
	v.Pieces = slices.Clone(f.Pieces)
	return v
}

// Held is the piece that a user was given.
func (m *Frames) Held(id, user string, number int) (Piece, bool) {
	u := m.userOf(id, user)
	if u == nil {
		return Piece{}, false
	}
	p, ok := u.given[number]
	return p, ok
}

// HeldOn are the attempts that made what a user was given of a frame, as far as it is on
// an executor.
func (m *Frames) HeldOn(id, user, executor string) (attempts []string) {
	u := m.userOf(id, user)
	if u == nil {
		return nil
	}
	for _, p := range u.given {
		if p.Executor == executor {
			attempts = append(attempts, p.Attempt)
		}
	}
	return attempts
}

// Has says whether a piece is one of a frame's, and can be read as far as is known.
func (m *Frames) Has(id string, number int, attempt string) bool {
	f := m.frames[id]
	return f != nil && number < len(f.Pieces) && !f.lost[number] && f.Pieces[number].Attempt == attempt
}

// Keeps says whether what a job left on executors belongs to a frame.
func (m *Frames) Keeps(build string) bool {
	for _, f := range m.frames {
		if f.builds[build] {
			return true
		}
	}
	return false
}

// Totals counts the frames that are built, and their bytes.
func (m *Frames) Totals() (frames int, bytes int64) {
	for _, f := range m.frames {
		if f.ready && f.Closed == "" {
			frames, bytes = frames+1, bytes+f.bytes()
		}
	}
	return frames, bytes
}

func (f *frame) bytes() (n int64) {
	for _, p := range f.Pieces {
		n += p.Bytes
	}
	return n
}

// find looks up a frame that its owner may use.
func (m *Frames) find(op, id, owner string) (*frame, error) {
	f := m.frames[id]
	switch {
	case f != nil && f.Owner == owner && f.Closed == "":
		return f, nil
	case f != nil && f.Owner == owner:
		return nil, errGone(op, id, f.Closed)
	case f == nil && m.gone[id].err != nil && m.gone[id].owner == owner:
		return nil, m.gone[id].err
	}
	return nil, errNotFound(op, id)
}

// answer emits the answer to a question.
func (m *Frames) answer(err error) {
	if err != nil {
		m.emit(Refused{err})
		return
	}
	m.emit(Granted{})
}
