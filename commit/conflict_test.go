package commit_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

const (
	everyOperation = "append overwrite row_level rewrite"
	nothing        = ""
)

// part is a partition of spec 0.
func part(value byte) commit.Partition {
	return commit.Partition{Values: []commit.PartitionValue{{FieldID: 1000, Value: []byte{value}}}}
}

func inPart(path string, value byte) commit.File {
	return commit.File{Path: path, Partition: part(value).Values}
}

// kindOf is the kind of conflict that a change of one sort makes.
func kindOf(c commit.Change) commit.Conflict {
	switch {
	case c.Opaque:
		return commit.ConflictRefMoved
	case len(c.Added) > 0:
		return commit.ConflictDataAdded
	case len(c.Removed) > 0:
		return commit.ConflictFilesMissing
	default:
		return commit.ConflictDeletesAdded
	}
}

func TestConflictClasses(t *testing.T) {
	null := commit.Partition{Values: []commit.PartitionValue{{FieldID: 1000, Null: true, Value: []byte{1}}}}
	scope := func(ps ...commit.Partition) commit.Scope { return commit.Scope{Partitions: ps} }
	for name, c := range map[string]struct {
		change commit.Change
		read   commit.Scope
		// serializable and snapshot name the operations that mind the change.
		serializable, snapshot string
	}{
		"nothing done":               {commit.Change{}, commit.Scope{All: true}, nothing, nothing},
		"rows added where it read":   {commit.Change{Added: []commit.File{inPart("new", 1)}}, scope(part(1)), "overwrite row_level", nothing},
		"rows added, all was read":   {commit.Change{Added: []commit.File{inPart("new", 1)}}, commit.Scope{All: true}, "overwrite row_level", nothing},
		"rows added elsewhere":       {commit.Change{Added: []commit.File{inPart("new", 2)}}, scope(part(1), part(3)), nothing, nothing},
		"rows added, nothing read":   {commit.Change{Added: []commit.File{inPart("new", 1)}}, commit.Scope{}, nothing, nothing},
		"null isn't the value":       {commit.Change{Added: []commit.File{inPart("new", 1)}}, scope(null), nothing, nothing},
		"rows added, other spec":     {commit.Change{Added: []commit.File{{Path: "new", SpecID: 1}}}, scope(part(1)), "overwrite row_level", nothing},
		"a replaced file is gone":    {commit.Change{Removed: []string{"x", "r2"}}, commit.Scope{}, "overwrite row_level rewrite", "overwrite row_level rewrite"},
		"an amended file is gone":    {commit.Change{Removed: []string{"a1"}}, commit.Scope{}, "overwrite row_level rewrite", "overwrite row_level rewrite"},
		"another file is gone":       {commit.Change{Removed: []string{"x"}}, commit.Scope{All: true}, nothing, nothing},
		"deletes in a replaced file": {commit.Change{Amended: []string{"r1"}}, commit.Scope{}, "row_level rewrite", "row_level rewrite"},
		"deletes in an amended file": {commit.Change{Amended: []string{"a1"}}, commit.Scope{}, "row_level", "row_level"},
		"deletes in another file":    {commit.Change{Amended: []string{"x"}}, commit.Scope{All: true}, nothing, nothing},
		"equality deletes here":      {commit.Change{Deleted: scope(part(1))}, scope(part(1)), "row_level rewrite", "row_level rewrite"},
		"equality deletes all over":  {commit.Change{Deleted: commit.Scope{All: true}}, scope(part(1)), "row_level rewrite", "row_level rewrite"},
		"equality deletes elsewhere": {commit.Change{Deleted: scope(part(2))}, scope(part(1)), nothing, nothing},
		"nobody can tell":            {commit.Change{Opaque: true}, commit.Scope{}, "overwrite row_level rewrite", "overwrite row_level rewrite"},
	} {
		for level, want := range map[commit.Isolation]string{
			commit.Serializable: c.serializable, "": c.serializable, commit.SnapshotIsolation: c.snapshot,
		} {
			for op := range strings.FieldsSeq(everyOperation) {
				s := spec(file("1-0-a-1-0.parquet"))
				s.Operation = commit.Operation(op)
				s.Claim = &commit.Claim{
					Base: commit.Seat{Number: 5}, Isolation: level, Read: c.read,
					Replaced: []string{"r2", "r1"}, Amended: []string{"a1"},
				}
				change := c.change
				change.Seat.Number, change.SnapshotID = 6, "s6"
				quiet := commit.Change{Seat: commit.Seat{Number: 7}}
				err := commit.CheckConflicts(commit.NewUnit(s), []commit.Change{quiet, change})
				minds := strings.Contains(" "+want+" ", " "+op+" ")
				if minds != (err != nil) {
					t.Errorf("%s, %s at %q: %v", name, op, level, err)
				}
				if err != nil && (commit.ReasonOf(err) != commit.ReasonConflict || commit.CodeOf(err) != commit.CodeConflict || !strings.Contains(err.Error(), "s6")) {
					t.Errorf("%s, %s: %v", name, op, err)
				}
				if kind := kindOf(c.change); err != nil && commit.ConflictOf(fmt.Errorf("root: %w", &commit.Error{Cause: err})) != kind {
					t.Errorf("%s, %s: a conflict of kind %q, want %q", name, op, commit.ConflictOf(err), kind)
				}
				change.Seat.Number = 5
				if err := commit.CheckConflicts(commit.NewUnit(s), []commit.Change{change}); err != nil {
					t.Errorf("%s, %s: what was done at the base is a conflict: %v", name, op, err)
				}
			}
		}
	}
}

func TestConflictsOfWhatIsNotKnown(t *testing.T) {
	change := []commit.Change{{Seat: commit.Seat{Number: 6}}}
	s := spec(file("1-0-a-1-0.parquet"))
	for _, op := range []commit.Operation{commit.OperationOverwrite, "merge"} {
		s.Operation = op
		u := commit.NewUnit(s)
		if err := commit.CheckConflicts(u, change); commit.ReasonOf(err) != commit.ReasonConflict {
			t.Errorf("%s without a claim: %v", op, err)
		}
		if err := commit.CheckConflicts(u, nil); err != nil {
			t.Errorf("%s, and nobody did anything: %v", op, err)
		}
	}
	s.Operation, s.Claim = "merge", &commit.Claim{}
	if err := commit.CheckConflicts(commit.NewUnit(s), change); commit.ReasonOf(err) != commit.ReasonConflict {
		t.Errorf("an unknown operation: %v", err)
	}
	// A version without a number (format version 1) is never skipped.
	s.Operation, s.Claim = commit.OperationOverwrite, &commit.Claim{Base: commit.Seat{Number: 9}}
	if err := commit.CheckConflicts(commit.NewUnit(s), []commit.Change{{Opaque: true}}); err == nil {
		t.Error("a change without a seat was skipped")
	}
}

func TestTheDigestCoversTheClaim(t *testing.T) {
	s := spec(file("1-0-a-1-0.parquet"))
	s.Operation = commit.OperationOverwrite
	digests := map[commit.Digest]int{}
	for i, c := range []*commit.Claim{
		nil, {}, {Replaced: []string{"a"}}, {Amended: []string{"a"}}, {Replaced: []string{"a", "b"}}, {Replaced: []string{"ab"}},
	} {
		s.Claim = c
		d := commit.NewUnit(s).Digest
		if old, dup := digests[d]; dup {
			t.Errorf("claims %d and %d have one digest", old, i)
		}
		digests[d] = i
	}
	s.Claim = &commit.Claim{Replaced: []string{"b", "a"}}
	if u := commit.NewUnit(s); digests[u.Digest] != 4 || u.Claim.Replaced[0] != "a" || s.Claim.Replaced[0] != "b" {
		t.Errorf("the order of the paths must not matter, and the caller's stays: %v", u.Claim.Replaced)
	}
}

// TestOverwritesGoAloneAndMindWhatOthersDid drives overwrites through the machine.
func TestOverwritesGoAloneAndMindWhatOthersDid(t *testing.T) {
	overwrite := func(c *committest.Catalog, key string, claim commit.Claim) commit.Unit {
		u := committest.NewUnit(c, key, "j-"+key, 1, 1)
		claim.Base = commit.Seat{Number: c.Seat(c.Head("main"))}
		u.Operation, u.Claim = commit.OperationOverwrite, &claim
		return u
	}
	everywhere := commit.Claim{Read: commit.Scope{All: true}, Replaced: []string{"old.parquet"}}
	run := func(c *committest.Catalog, before func(*committest.Runner), units ...commit.Unit) map[commit.Token]commit.Outcome {
		r := committest.NewRunner(committest.NewDriver(c), commit.NewMachine(units, commit.Options{Deadline: committest.Epoch.Add(minute)}))
		if before != nil {
			before(r)
		}
		for r.Step() {
		}
		return r.Outcomes
	}
	fresh := func() *committest.Catalog {
		c := committest.NewCatalog(committest.Mode{})
		c.Foreign("main")
		return c
	}

	c := fresh()
	a, b := overwrite(c, "a", everywhere), overwrite(c, "b", everywhere)
	out := run(c, nil, a, b)
	if out[a.Token].State != commit.Committed || out[b.Token].Reason != commit.ReasonConflict || c.Sends() != 1 {
		t.Errorf("two overwrites of the same: %s and %s, %d sends", committest.OutcomeText(out[a.Token]), committest.OutcomeText(out[b.Token]), c.Sends())
	}

	// An append beside it is built into another request and doesn't mind.
	c = fresh()
	a = overwrite(c, "a", everywhere)
	app := committest.NewUnit(c, "app", "j-app", 1, 1)
	out = run(c, nil, a, app)
	if out[a.Token].State != commit.Committed || out[app.Token].State != commit.Committed || c.Sends() != 2 {
		t.Errorf("an overwrite and an append: %s and %s, %d sends", committest.OutcomeText(out[a.Token]), committest.OutcomeText(out[app.Token]), c.Sends())
	}

	for name, x := range map[string]struct {
		level commit.Isolation
		want  commit.State
	}{"serializable": {commit.Serializable, commit.Refused}, "snapshot": {commit.SnapshotIsolation, commit.Committed}} {
		c = fresh()
		claim := everywhere
		claim.Isolation = x.level
		a = overwrite(c, "a", claim)
		out = run(c, func(r *committest.Runner) { on[commit.Send](r, 1, func() { c.Foreign("main") }) }, a)
		if o := out[a.Token]; o.State != x.want || o.State == commit.Refused && o.Reason != commit.ReasonConflict {
			t.Errorf("rows added meanwhile, %s: %s (%v)", name, committest.OutcomeText(o), o.Err)
		}
	}

	// Its base was rolled back: what it read isn't there.
	c = fresh()
	c.Foreign("main")
	a = overwrite(c, "a", everywhere)
	c.SetHead("main", c.Parent(c.Head("main")))
	if o := run(c, nil, a)[a.Token]; o.Reason != commit.ReasonConflict {
		t.Errorf("the base was rolled back: %s (%v)", committest.OutcomeText(o), o.Err)
	}
}
