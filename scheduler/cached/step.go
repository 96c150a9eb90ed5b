package cached

import (
	"maps"
	"slices"

	"github.com/firn-project/firn/commit"
)

func (m *Frames) reserve(ev Reserve) {
	if m.frames[ev.Frame] == nil && !ev.Again && m.limits.Frames > 0 {
		if n := len(m.List(ev.Owner)); n >= m.limits.Frames {
			m.answer(errTooMany(n))
			return
		}
	}
	if m.frames[ev.Frame] != nil { // ids are made for one job
		m.answer(errNotFound("cache query", ev.Frame))
		return
	}
	ttl := ev.TTL
	if ttl <= 0 {
		ttl = m.limits.TTL
	}
	m.frames[ev.Frame] = &frame{
		Record: Record{ID: ev.Frame, Owner: ev.Owner, TTL: ttl}, building: ev.Build,
		lost: map[int]bool{}, users: map[string]*use{}, builds: map[string]bool{ev.Build: true},
	}
	m.answer(nil)
}

func (m *Frames) use(ev Use) {
	f := m.frames[ev.Frame]
	if !ev.Again || f == nil || f.Owner != ev.Owner {
		var err error
		if f, err = m.find("read cached frame", ev.Frame, ev.Owner); err != nil {
			m.answer(err)
			return
		}
	}
	if !f.ready {
		m.answer(errNotBuilt(f.ID, f.building))
		return
	}
	if f.users[ev.User] == nil {
		f.users[ev.User] = &use{given: map[int]Piece{}, wants: map[int]bool{}}
	}
	m.renew(f)
	m.answer(nil)
}

// renew moves the expiry away. The record follows it in steps: it is only needed
// after a restart.
func (m *Frames) renew(f *frame) {
	const steps = 10
	f.Expires = m.now.Add(f.TTL)
	if f.Closed == "" && f.ready && f.Expires.Sub(f.renewed) > f.TTL/steps {
		f.renewed = f.Expires
		m.emit(Renew{f.ID, f.Expires})
	}
}

func (m *Frames) want(ev Want) {
	f, u := m.frames[ev.Frame], m.userOf(ev.Frame, ev.User)
	switch {
	case u == nil:
		m.emit(Deny{ev.Frame, ev.User, errNotFound("read cached frame", ev.Frame)})
		return
	case ev.Of != len(f.Pieces) || slices.ContainsFunc(ev.Pieces, func(n int) bool { return n < 0 || n >= ev.Of }):
		m.emit(Deny{ev.Frame, ev.User, errShape(ev.Frame, ev.Of, len(f.Pieces))})
		return
	}
	u.of = ev.Of
	for _, n := range ev.Pieces {
		delete(u.given, n)
		u.wants[n] = true
	}
	m.settle(f)
}

func (m *Frames) done(user string) {
	for _, f := range m.inOrder() {
		if f.users[user] == nil {
			continue
		}
		delete(f.users, user)
		m.renew(f)
		m.settle(f)
	}
}

func (m *Frames) startedBuild(ev Building) {
	f := m.frames[ev.Frame]
	if f == nil || !f.asked {
		// Nobody wants it any more.
		m.emit(StopBuild{ev.Build})
		m.emit(FreeBuild{ev.Build})
		return
	}
	f.asked, f.building = false, ev.Build
	f.builds[ev.Build] = true
	m.settle(f)
}

func (m *Frames) builtFrame(ev Built) {
	f := m.frames[ev.Frame]
	if f == nil || f.building != ev.Build {
		return // it was stopped, and what it made is freed
	}
	f.building = ""
	if !f.ready {
		if err := m.tooLarge(f, ev.Pieces); err != nil {
			m.forget(f, err)
			return
		}
		f.Expires = m.now.Add(f.TTL)
	}
	// A piece that was lost meanwhile, and that the build has kept, is lost.
	lost := map[int]bool{}
	for n, p := range ev.Pieces {
		if f.lost[n] && f.Pieces[n].Attempt == p.Attempt {
			lost[n] = true
		}
	}
	f.ready, f.Repeats, f.Pieces, f.renewed, f.lost = true, ev.Repeats, slices.Clone(ev.Pieces), f.Expires, lost
	m.emit(Keep{f.ID})
	m.settle(f)
}

// tooLarge checks the bytes of an owner against the limit.
func (m *Frames) tooLarge(f *frame, pieces []Piece) error {
	if m.limits.Bytes <= 0 {
		return nil
	}
	var own, all int64
	for _, p := range pieces {
		own += p.Bytes
	}
	for _, o := range m.frames {
		if o.Owner == f.Owner && o != f {
			all += o.bytes()
		}
	}
	if all += own; all > m.limits.Bytes {
		return errTooLarge(f.ID, own, all, m.limits.Bytes)
	}
	return nil
}

func (m *Frames) buildFailed(ev BuildFailed) {
	f := m.frames[ev.Frame]
	if f == nil || f.building != ev.Build {
		return
	}
	f.building = ""
	if !f.ready {
		err := ev.Err
		if commit.CodeOf(err) == "" {
			err = errGone("read cached frame", f.ID, "the job that was to build it hasn't succeeded")
		}
		m.forget(f, err)
		return
	}
	err := errRebuild(f.ID, len(f.lost), ev.Err)
	for _, name := range slices.Sorted(maps.Keys(f.users)) {
		if u := f.users[name]; len(u.wants) > 0 {
			clear(u.wants)
			m.emit(Deny{f.ID, name, err})
		}
	}
	m.settle(f)
}

// tell tells the users that hold pieces which are gone. Without it each would find
// that out piece by piece, and give up.
func (m *Frames) tell(f *frame, is func(Piece) bool) {
	for _, name := range slices.Sorted(maps.Keys(f.users)) {
		var lost []int
		for n, p := range f.users[name].given {
			if is(p) {
				lost = append(lost, n)
			}
		}
		if slices.Sort(lost); len(lost) > 0 {
			m.emit(Lose{f.ID, name, lost})
		}
	}
}

// lose marks pieces that are gone.
func (m *Frames) lose(f *frame, is func(Piece) bool) {
	for n, p := range f.Pieces {
		if is(p) {
			f.lost[n] = true
		}
	}
	m.settle(f)
}

func (m *Frames) release(ev Release) {
	f, err := m.find("release cached frame", ev.Frame, ev.Owner)
	if err != nil {
		m.answer(err)
		return
	}
	m.close(f, released)
	m.answer(nil)
}

// close lets nobody new use a frame. It is forgotten when the last user is done.
func (m *Frames) close(f *frame, why string) {
	f.Closed = why
	if f.ready {
		m.emit(Keep{f.ID})
	}
	m.settle(f)
}

func (m *Frames) tick() {
	for _, f := range m.inOrder() {
		if f.Closed == "" && f.ready && len(f.users) == 0 && m.now.After(f.Expires) {
			m.close(f, expired(f.TTL))
		} else if f.Closed != "" {
			m.settle(f) // its readers ended with an earlier process
		}
	}
}

// settle makes a frame consistent after any change: gives what can be given, has
// built what is wanted and lost, stops what nobody waits for, and frees what is of
// no use any more.
func (m *Frames) settle(f *frame) {
	if m.frames[f.ID] != f {
		return
	}
	if f.Closed != "" && len(f.users) == 0 {
		m.forget(f, errGone("read cached frame", f.ID, f.Closed))
		return
	}
	if f.ready {
		m.give(f)
	}
	wanted := false
	for _, u := range f.users {
		wanted = wanted || len(u.wants) > 0
	}
	switch {
	case !f.ready:
	case wanted && f.building == "" && !f.asked:
		f.asked = true
		m.emit(StartBuild{Frame: f.ID, Kept: f.kept()})
	case !wanted:
		f.asked = false
		if f.building != "" {
			m.emit(StopBuild{f.building})
			f.building = ""
		}
	}
	m.freeBuilds(f)
}

// give answers the wants for pieces that are there. Nothing of a frame that doesn't
// repeat is given while any of it is lost: it will all be another one.
func (m *Frames) give(f *frame) {
	if !f.Repeats && len(f.lost) > 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(f.users)) {
		u := f.users[name]
		if len(u.wants) > 0 && u.of != len(f.Pieces) {
			clear(u.wants)
			m.emit(Deny{f.ID, name, errShape(f.ID, u.of, len(f.Pieces))})
		}
		if old := u.otherRun(f); len(u.wants) > 0 && len(old) > 0 {
			// As of a process that ended between its gifts. The user gives up all.
			for _, n := range old {
				delete(u.given, n)
			}
			m.emit(Lose{f.ID, name, old})
			continue
		}
		for _, n := range slices.Sorted(maps.Keys(u.wants)) {
			if f.lost[n] {
				continue
			}
			delete(u.wants, n)
			u.given[n] = f.Pieces[n]
			m.emit(Give{f.ID, name, n, f.Pieces[n]})
		}
	}
}

// otherRun are the pieces that the user holds of a frame that doesn't repeat, and that
// are of another run than those there are now.
func (u *use) otherRun(f *frame) (numbers []int) {
	for n, p := range u.given {
		if !f.Repeats && (n >= len(f.Pieces) || f.Pieces[n].Attempt != p.Attempt) {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// kept are the pieces that a build leaves as they are.
func (f *frame) kept() map[int]Piece {
	kept := map[int]Piece{}
	for n, p := range f.Pieces {
		if f.Repeats && !f.lost[n] {
			kept[n] = p
		}
	}
	return kept
}

// freeBuilds frees the data of the builds of which nothing is needed.
func (m *Frames) freeBuilds(f *frame) {
	needed := map[string]bool{f.building: true}
	for _, p := range f.Pieces {
		needed[p.Build] = true
	}
	for _, u := range f.users {
		for _, p := range u.given {
			needed[p.Build] = true
		}
	}
	for _, b := range slices.Sorted(maps.Keys(f.builds)) {
		if !needed[b] {
			delete(f.builds, b)
			m.emit(FreeBuild{b})
		}
	}
}

// forget takes a frame away, frees what is on executors of it, and ends its own use
// of others.
func (m *Frames) forget(f *frame, why error) {
	delete(m.frames, f.ID)
	m.emit(Forget{f.ID})
	if f.building != "" {
		m.emit(StopBuild{f.building})
	}
	for _, b := range slices.Sorted(maps.Keys(f.builds)) {
		m.emit(FreeBuild{b})
	}
	m.gone[f.ID] = gone{f.Owner, why}
	if m.order = append(m.order, f.ID); len(m.order) > goneKept {
		delete(m.gone, m.order[0])
		m.order = m.order[1:]
	}
	m.done(f.ID)
}
