package delta

import (
	"strings"
	"sync"
	"time"

	"github.com/firn-project/firn/commit"
)

// index finds by token what landed in a table. Views that follow one another share
// one, so that a commit costs no more the longer the table's history is: each adds
// what came since the last, and sees nothing that is newer than itself.
type index struct {
	mu sync.Mutex
	// first and last are the versions that it knows, all between them included.
	first, last int64
	landed      map[commit.Token]commit.Landed
	// ids are the versions by their snapshot ids.
	ids map[string]int64
	// kept are the tokens in the txn actions of the snapshot that it began with,
	// found when first asked for. Those of later ones are in landed too.
	kept func() map[commit.Token]commit.Landed
}

// indexOf is the index for a view of the snapshot that shows these commits: that of
// the view before, if it's of the same history.
func indexOf(s *Snapshot, commits []CommitSummary, old *View) *index {
	if old != nil && old.UUID() == s.metadata.ID && old.index.extend(commits) {
		return old.index
	}
	x := &index{
		first: s.Version(), last: s.Version(), landed: map[commit.Token]commit.Landed{}, ids: map[string]int64{},
		kept: sync.OnceValue(func() map[commit.Token]commit.Landed { return keptUnits(s) }),
	}
	if len(commits) > 0 {
		x.first = commits[0].Version
	}
	x.add(commits)
	return x
}

// extend adds the commits that it doesn't know; false when they go on from
// something else, or when most of what it knows isn't shown any more.
func (x *index) extend(commits []CommitSummary) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(commits)
	if n == 0 || commits[0].Version > x.first+keepShown {
		return false
	}
	i := min(x.last, commits[n-1].Version) - commits[0].Version
	if i < 0 {
		return false
	}
	if _, ok := x.ids[snapshotID(commits[i].Version, commits[i].Info.TxnID)]; !ok {
		return false
	}
	x.add(commits[i+1:])
	return true
}

func (x *index) add(commits []CommitSummary) {
	for _, c := range commits {
		id := snapshotID(c.Version, c.Info.TxnID)
		x.ids[id], x.last = c.Version, max(x.last, c.Version)
		for _, l := range parseUnits(c.Info.Tokens, c.Info.Units) {
			if _, ok := x.landed[l.Token]; ok {
				continue // the first landing counts
			}
			l.SnapshotID, l.InHead, l.Seat, l.CommittedAt = id, true, commit.Seat{Number: c.Version}, time.UnixMilli(c.Info.Time())
			x.landed[l.Token] = l
		}
	}
}

// find gives what landed with a token up to a version.
func (x *index) find(t commit.Token, version int64) (commit.Landed, bool) {
	x.mu.Lock()
	l, ok := x.landed[t]
	x.mu.Unlock()
	if !ok {
		l, ok = x.kept()[t]
	}
	if !ok || l.Seat.Number > version {
		return commit.Landed{}, false
	}
	return l, true
}

// has says whether the id is that of a version up to the given one.
func (x *index) has(id string, version int64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	v, ok := x.ids[id]
	return ok && v <= version
}

func keptUnits(s *Snapshot) map[commit.Token]commit.Landed {
	out := map[commit.Token]commit.Landed{}
	for app, x := range s.txns {
		text, ok := strings.CutPrefix(app, txnPrefix)
		if !ok || x.Version < 1 || x.Version > s.Version() {
			continue
		}
		tokens, counts, _ := strings.Cut(text, ";")
		for _, l := range parseUnits(tokens, counts) {
			if before, ok := out[l.Token]; ok && before.Seat.Number < x.Version {
				continue
			}
			l.SnapshotID, l.InHead, l.Seat = snapshotID(x.Version, ""), true, commit.Seat{Number: x.Version}
			if x.LastUpdated != nil {
				l.CommittedAt = time.UnixMilli(*x.LastUpdated)
			}
			out[l.Token] = l
		}
	}
	return out
}
