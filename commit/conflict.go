package commit

import (
	"bytes"
	"fmt"
	"slices"
)

// Isolation is how much of what others committed meanwhile an operation minds.
type Isolation string

// Isolation levels.
const (
	// Serializable: the table is as if the operation had begun after every
	// commit before its own. It is what an empty Isolation means.
	Serializable Isolation = "serializable"
	// SnapshotIsolation: the operation may have missed rows that others added
	// since its base. What it removes or changes must still be as it read it.
	SnapshotIsolation Isolation = "snapshot"
)

// Conflict is a kind of what somebody else did that a commit lost to.
type Conflict string

// Kinds of conflicts.
const (
	// ConflictDataAdded: rows were added where the operation read.
	ConflictDataAdded Conflict = "data_files_added"
	// ConflictDeletesAdded: rows were deleted in files that the operation changes, or
	// where it read.
	ConflictDeletesAdded Conflict = "delete_files_added"
	// ConflictFilesMissing: files that the operation changes are gone.
	ConflictFilesMissing Conflict = "files_missing"
	// ConflictSchema: the files' columns don't fit the table any more.
	ConflictSchema Conflict = "schema"
	// ConflictSpec: the table isn't partitioned any more as the files are.
	ConflictSpec Conflict = "partition_spec"
	// ConflictProtocol: the table asks for more than this version can do.
	ConflictProtocol Conflict = "protocol"
	// ConflictRefMoved: the branch isn't where it was: another commit took the seat,
	// the history was rolled back, or the table was replaced.
	ConflictRefMoved Conflict = "ref_moved"
)

// Claim is what an operation that isn't an append rests on. It is sealed with
// the unit.
type Claim struct {
	// Base is the seat of the version that the operation read: everything
	// after it is held against the claim.
	Base      Seat
	Isolation Isolation
	// Read is the part of the table on which the unit's content depends.
	Read Scope
	// Replaced are the data files that the commit removes, Amended those that
	// it adds deletes to. Both are sorted.
	Replaced, Amended []string
}

// Scope is a part of a table: all of it, some partitions, or nothing.
type Scope struct {
	All        bool
	Partitions []Partition
}

// Partition is one partition of one spec.
type Partition struct {
	SpecID int
	Values []PartitionValue
}

// Change is what one commit of somebody else did to the branch. The driver
// makes it from what the commit's snapshot or version lists.
type Change struct {
	Seat Seat
	// SnapshotID is for the message.
	SnapshotID string
	// Added are data files with rows that weren't there before. A compaction
	// adds none: its files are known rows.
	Added []File
	// Removed are data files that no longer are in the table, for whatever
	// reason, Amended those that got deletes of their own.
	Removed, Amended []string
	// Deleted is where rows were deleted that can't be told by file, as
	// equality deletes do.
	Deleted Scope
	// Opaque: what was done can't be told, or the operation's base isn't in the
	// history of the branch any more (replaced, rolled back).
	Opaque bool
}

// class is what an operation can't stand that others did since its base.
//
// # Why these rows
//
// The question is always whether the table that results is one that some order
// of the operations, one after the other, gives; at snapshot isolation, whether
// no change of the same row by two is lost or doubled.
//
// An append depends on nothing and removes nothing: every order gives the same
// rows. It has no conflicts, whatever others did, also when its base was
// replaced; whether its files fit the table is another check (CheckUnit).
//
// An overwrite removes what it read and writes anew. If one of the files that
// it removes is gone already, others put something in its place that the
// overwrite doesn't know of and would leave beside its own rows: never allowed.
// Deletes in a file that it removes anyway change nothing. Rows that others
// added where it read would survive it, which no order gives.
//
// A row-level operation rewrites files or adds deletes to them. A file that is
// gone, or in which others deleted rows meanwhile, may hold other versions of
// the same rows: never allowed, or a deleted row would come back, or an updated
// one be there twice. Rows that others added where it read should have been
// deleted or updated too: not allowed unless at snapshot isolation.
//
// A rewrite puts the same rows into other files. What others add doesn't
// concern it; what they remove or delete in its files would come back.
type class struct {
	// added: rows added where it read; minded at Serializable only.
	added bool
	// amended: deletes in files that it removes.
	amended bool
	// twice: deletes in files that it adds deletes to.
	twice bool
	// deleted: rows deleted where it read, not told by file.
	deleted bool
}

var classes = map[Operation]class{
	OperationOverwrite: {added: true},
	OperationRowLevel:  {added: true, amended: true, twice: true, deleted: true},
	OperationRewrite:   {amended: true, deleted: true},
}

// CheckConflicts holds a unit against what others committed to its branch since
// its base (Claim.Base), oldest first; changes at that seat or before are
// skipped. A driver's Build calls it, as it is there that what others did is
// read; the machine takes the error, a *Error with ReasonConflict, for a refusal.
//
// An operation that this version doesn't know, or one without a claim, is
// refused as soon as there is any change: it can't be told what it rests on.
func CheckConflicts(u Unit, since []Change) error {
	if u.Operation.commutes() {
		return nil
	}
	c, known := classes[u.Operation]
	for _, ch := range since {
		if u.Claim != nil && ch.Seat.Number != 0 && ch.Seat.Number <= u.Claim.Base.Number {
			continue
		}
		kind, why := ConflictRefMoved, "what it did can't be told apart from what this operation read"
		if known && u.Claim != nil && !ch.Opaque {
			kind, why = c.conflict(*u.Claim, ch)
		}
		if why != "" {
			return errConflict(u, ch, kind, why)
		}
	}
	return nil
}

// conflict says how and why a change and a claim exclude each other; both are empty
// when they don't.
func (c class) conflict(claim Claim, ch Change) (kind Conflict, why string) {
	if f, ok := common(ch.Removed, claim.Replaced); ok {
		return ConflictFilesMissing, "it removed " + f + ", which this operation replaces"
	}
	if f, ok := common(ch.Removed, claim.Amended); ok {
		return ConflictFilesMissing, "it removed " + f + ", in which this operation deletes rows"
	}
	if f, ok := common(ch.Amended, claim.Replaced); ok && c.amended {
		return ConflictDeletesAdded, "it deleted rows in " + f + ", which this operation replaces"
	}
	if f, ok := common(ch.Amended, claim.Amended); ok && c.twice {
		return ConflictDeletesAdded, "it deleted rows in " + f + ", in which this operation deletes rows too"
	}
	if c.deleted && claim.Read.overlaps(ch.Deleted) {
		return ConflictDeletesAdded, "it deleted rows where this operation read"
	}
	if c.added && claim.Isolation != SnapshotIsolation {
		for _, f := range ch.Added {
			if claim.Read.holds(f) {
				return ConflictDataAdded, "it added " + f.Path + " where this operation read"
			}
		}
	}
	return "", ""
}

// common is a path in both lists, of which the second is sorted.
func common(paths, sorted []string) (string, bool) {
	for _, p := range paths {
		if _, ok := slices.BinarySearch(sorted, p); ok {
			return p, true
		}
	}
	return "", false
}

// holds says whether a file may have rows of the scope.
func (s Scope) holds(f File) bool {
	return s.overlaps(Scope{Partitions: []Partition{{f.SpecID, f.Partition}}})
}

// overlaps says whether two scopes may have a row in common. Partitions of
// different specs can't be compared and count as overlapping.
func (s Scope) overlaps(o Scope) bool {
	switch {
	case !s.All && len(s.Partitions) == 0, !o.All && len(o.Partitions) == 0:
		return false
	case s.All, o.All:
		return true
	}
	for _, a := range s.Partitions {
		for _, b := range o.Partitions {
			if a.SpecID != b.SpecID || slices.EqualFunc(a.Values, b.Values, samePartition) {
				return true
			}
		}
	}
	return false
}

func samePartition(a, b PartitionValue) bool {
	return a.FieldID == b.FieldID && a.Null == b.Null && (a.Null || bytes.Equal(a.Value, b.Value))
}

func errConflict(u Unit, ch Change, kind Conflict, why string) error {
	return &Error{
		Code: CodeConflict, Op: "commit to", Object: u.Table.String(), Reason: ReasonConflict, Conflict: kind,
		Cause: fmt.Errorf("snapshot %s was committed to branch %s since this %s operation read it: %s", ch.SnapshotID, u.Branch, u.Operation, why),
		Hint:  "Run the statement again, so that it reads the table as it is now.",
	}
}
