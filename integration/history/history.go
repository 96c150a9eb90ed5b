package history

import (
	"fmt"
	"slices"
	"sync"
)

// Told is what a unit's writer knows.
type Told string

// What writers know. A unit that was refused and is submitted again is Open
// again; one that was committed stays so.
const (
	Open      Told = "open"      // submitted, not answered yet
	Committed Told = "committed" // its rows are there
	Failed    Told = "failed"    // none of its rows are there, nor will be
	Unknown   Told = "unknown"   // not even its scheduler knows
)

// History is what all writers did. It's safe for concurrent use.
type History struct {
	mu    sync.Mutex
	units map[string]*unit
	owner map[int64]string
	lies  []string
}

type unit struct {
	rows []int64
	told Told
	// attempts counts submissions.
	attempts int
}

// New makes an empty history.
func New() *History { return &History{units: map[string]*unit{}, owner: map[int64]string{}} }

// Attempt is one submission of a unit.
type Attempt struct {
	h    *History
	name string
	n    int
	// after: the unit had been told committed before.
	after bool
}

// Invoke records that a unit is submitted, for the first time or again. The rows
// of a unit are the same each time and no other unit's.
func (h *History) Invoke(name string, rows []int64) (Attempt, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	u := h.units[name]
	switch {
	case len(rows) == 0:
		return Attempt{}, fmt.Errorf("unit %s has no rows", name)
	case u == nil:
		for _, r := range rows {
			if o, taken := h.owner[r]; taken {
				return Attempt{}, fmt.Errorf("row %d of unit %s is unit %s's", r, name, o)
			}
		}
		for _, r := range rows {
			h.owner[r] = name
		}
		u = &unit{rows: slices.Clone(rows)}
		h.units[name] = u
	case !slices.Equal(u.rows, rows):
		return Attempt{}, fmt.Errorf("unit %s is submitted with other rows", name)
	}
	u.attempts++
	a := Attempt{h: h, name: name, n: u.attempts, after: u.told == Committed}
	if !a.after {
		u.told = Open
	}
	return a, nil
}

// Tell records what the writer was told of this submission. A commit stands for
// ever. A refusal says nothing of a submission made after this one; it's a lie
// when this one was made after the commit was told.
func (a Attempt) Tell(told Told) {
	a.h.mu.Lock()
	defer a.h.mu.Unlock()
	u := a.h.units[a.name]
	switch {
	case u.told == Committed && a.after && told == Failed:
		a.h.lies = append(a.h.lies, fmt.Sprintf("unit %s was told %s after it was told committed", a.name, told))
	case u.told == Committed || told != Committed && a.n != u.attempts:
	default:
		u.told = told
	}
}

// Told is what the writer of a unit knows.
func (h *History) Told(name string) Told {
	h.mu.Lock()
	defer h.mu.Unlock()
	if u := h.units[name]; u != nil {
		return u.told
	}
	return Failed
}

// Pending are the units whose writers don't know what became of them, sorted.
func (h *History) Pending() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name, u := range h.units {
		if u.told == Open || u.told == Unknown {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Counts is how many units were told what.
func (h *History) Counts() map[Told]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[Told]int{}
	for _, u := range h.units {
		out[u.told]++
	}
	return out
}

// Check judges the history by the rows of the table: how often each row id is
// there. It gives one line for each breach, sorted.
func (h *History) Check(rows map[int64]int) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	bad := slices.Clone(h.lies)
	for name, u := range h.units {
		if b := u.check(rows); b != "" {
			bad = append(bad, fmt.Sprintf("unit %s, told %s: %s", name, u.told, b))
		}
	}
	for r, n := range rows {
		if _, known := h.owner[r]; !known && n > 0 {
			bad = append(bad, fmt.Sprintf("row %d is there %d times and nobody wrote it", r, n))
		}
	}
	slices.Sort(bad)
	return bad
}

func (u *unit) check(rows map[int64]int) string {
	present, more := 0, 0
	for _, r := range u.rows {
		switch n := rows[r]; {
		case n == 1:
			present++
		case n > 1:
			more++
		}
	}
	total := len(u.rows)
	switch {
	case more > 0:
		return fmt.Sprintf("%d of %d rows are there more than once", more, total)
	case u.told == Committed && present < total:
		return fmt.Sprintf("%d of %d rows are missing", total-present, total)
	case u.told == Failed && present > 0:
		return fmt.Sprintf("%d of %d rows are there", present, total)
	case present != 0 && present != total:
		return fmt.Sprintf("%d of %d rows are there: neither all nor none", present, total)
	}
	return ""
}
