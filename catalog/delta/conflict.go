package delta

import (
	"fmt"
	"maps"
	"slices"

	"github.com/firn-project/firn/format/delta"
)

// Isolation says which changes of others a commit minds.
type Isolation string

// Isolation levels, as Spark has them.
const (
	// Serializable: the history is as if commits had run one after the other.
	Serializable Isolation = "Serializable"
	// WriteSerializable: blind appends of others may have come before or after.
	WriteSerializable Isolation = "WriteSerializable"
	// SnapshotIsolation: only removals of others matter. It is enough for commits
	// that change no data.
	SnapshotIsolation Isolation = "SnapshotIsolation"
)

// Attempt is a commit that lost a version to others: what it read of the table at
// its read version, and what it wants to do. A blind append read nothing.
type Attempt struct {
	// Definition is the table's at the read version; Operation is what the
	// commit does, for the check of a changed protocol.
	Definition delta.Definition
	Operation  delta.Operation
	// Metadata is the table's at the read version.
	Metadata Metadata
	// Predicates select the partitions that were read, Files are the paths of
	// the files among them, as their add actions have them.
	Predicates []delta.Predicate
	Files      []string
	// WholeTable: everything was read, whatever the predicates.
	WholeTable bool
	// AppIDs are the transactions that were looked up.
	AppIDs []string
	Commit Commit
}

// Winner is the content of one version that was committed since the read version.
type Winner struct {
	Version int64
	Commit  Commit
}

// ConflictKind names the rule that a conflict broke, by Spark's names.
type ConflictKind string

// Kinds of conflicts.
const (
	ProtocolChanged        ConflictKind = "ProtocolChanged"
	MetadataChanged        ConflictKind = "MetadataChanged"
	DomainChanged          ConflictKind = "ConcurrentDomainMetadata"
	ConcurrentTransaction  ConflictKind = "ConcurrentTransaction"
	ConcurrentAppend       ConflictKind = "ConcurrentAppend"
	ConcurrentDeleteRead   ConflictKind = "ConcurrentDeleteRead"
	ConcurrentDeleteDelete ConflictKind = "ConcurrentDeleteDelete"
)

// ConflictError says why an attempt can't be committed after a winner.
type ConflictError struct {
	Kind    ConflictKind
	Version int64
	Detail  string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("version %d of the table is in the way (%s): %s", e.Version, e.Kind, e.Detail)
}

// CheckConflict says whether an attempt may be committed after a winner, by the
// rules of Spark in their order. It is a pure function; each winner since the read
// version is checked once, the oldest first. The error is a *ConflictError, or
// says that the table isn't one any more that the operation can be done on.
func CheckConflict(a Attempt, w Winner) error {
	fail := func(k ConflictKind, format string, args ...any) error {
		return &ConflictError{k, w.Version, fmt.Sprintf(format, args...)}
	}
	if p := w.Commit.Protocol; p != nil {
		d := a.Definition
		d.Protocol = *p
		if err := delta.CheckOperation(d, a.Operation); err != nil {
			return fmt.Errorf("%w: %w", fail(ProtocolChanged, "the protocol changed"), err)
		}
		switch {
		case a.Commit.Protocol != nil:
			return fail(ProtocolChanged, "both commits change the protocol")
		case dropsFeature(a.Definition.Protocol, *p):
			return fail(ProtocolChanged, "a feature was dropped")
		}
	}
	if m := w.Commit.Metadata; m != nil && (a.Commit.Metadata != nil || !inert(a.Metadata, *m)) {
		return fail(MetadataChanged, "schema or properties of the table changed")
	}
	for _, theirs := range w.Commit.Domains {
		for _, ours := range a.Commit.Domains {
			if ours.Domain == theirs.Domain && ours.Domain != domainRowTracking {
				return fail(DomainChanged, "both commits set %.200q", ours.Domain)
			}
		}
	}
	for _, t := range w.Commit.Txns {
		if slices.Contains(a.AppIDs, t.AppID) {
			return fail(ConcurrentTransaction, "it has a transaction of %.200q too", t.AppID)
		}
	}
	if err := a.checkAdds(w, fail); err != nil {
		return err
	}
	return a.checkRemoves(w, fail)
}

const domainRowTracking = "delta.rowTracking"

type failure func(k ConflictKind, format string, args ...any) error

// checkAdds: files that the attempt would have read, had they been there.
func (a *Attempt) checkAdds(w Winner, fail failure) error {
	switch a.isolation() {
	case SnapshotIsolation:
		return nil
	case WriteSerializable:
		if blind := w.Commit.Info.IsBlindAppend; blind != nil && *blind && a.Commit.Metadata == nil {
			return nil
		}
	}
	for _, f := range w.Commit.Adds {
		if a.reads(f) {
			return fail(ConcurrentAppend, "it added %.300q to what this commit read", f.Path)
		}
	}
	return nil
}

// reads says whether a file is among what the attempt read, going by partitions.
func (a *Attempt) reads(f *Add) bool {
	if a.WholeTable {
		return true
	}
	for _, p := range a.Predicates {
		if p.Matches(a.Definition, f.PartitionValues) {
			return true
		}
	}
	return false
}

// checkRemoves: files that the attempt read or removes itself.
func (a *Attempt) checkRemoves(w Winner, fail failure) error {
	if len(w.Commit.Removes) == 0 {
		return nil
	}
	read := map[string]bool{}
	for _, p := range a.Files {
		read[delta.CanonicalPath(p)] = true
	}
	for _, r := range w.Commit.Removes {
		if a.WholeTable || read[delta.CanonicalPath(r.Path)] {
			return fail(ConcurrentDeleteRead, "it removed %.300q, which this commit read", r.Path)
		}
	}
	removes := map[string]bool{}
	for _, r := range a.Commit.Removes {
		removes[delta.CanonicalPath(r.Path)] = true
	}
	for _, r := range w.Commit.Removes {
		if removes[delta.CanonicalPath(r.Path)] {
			return fail(ConcurrentDeleteDelete, "it removed %.300q, which this commit removes too", r.Path)
		}
	}
	return nil
}

// isolation is the table's level, or less for a commit of nothing but files whose
// rows were in the table before.
func (a *Attempt) isolation() Isolation {
	c := &a.Commit
	files := len(c.Adds)+len(c.Removes) > 0 && c.Metadata == nil && c.Protocol == nil && len(c.Txns) == 0 && len(c.Domains) == 0
	changes := slices.ContainsFunc(c.Adds, func(f *Add) bool { return f.DataChange }) ||
		slices.ContainsFunc(c.Removes, func(r *Remove) bool { return r.DataChange })
	switch {
	case files && !changes:
		return SnapshotIsolation
	case a.Definition.Properties[delta.PropertyIsolation] == string(WriteSerializable):
		return WriteSerializable
	}
	return Serializable
}

func dropsFeature(before, after delta.Protocol) bool {
	for _, f := range slices.Concat(before.ReaderFeatures, before.WriterFeatures) {
		if !after.Supports(f) {
			return true
		}
	}
	return false
}

// inertProperties may change beside a commit that knows nothing of it. Spark has
// two more changes in its list, to mapped columns and of identity columns; tables
// with either aren't written here.
var inertProperties = []string{
	"delta.enableRowTracking", "delta.rowTracking.materializedRowIdColumnName", "delta.rowTracking.materializedRowCommitVersionColumnName",
	delta.PropertyRowTrackingSuspended, delta.PropertyDeletionVectors, "delta.checkpointPolicy", delta.PropertyInCommitTimestamps,
	"delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp", "io.unitycatalog.tableId", "ucTableId",
}

// inert says whether two metadata differ in nothing that a commit minds.
func inert(before, after Metadata) bool {
	if before.ID != after.ID || before.SchemaString != after.SchemaString || before.Format.Provider != after.Format.Provider ||
		!slices.Equal(before.PartitionColumns, after.PartitionColumns) {
		return false
	}
	a, b := maps.Clone(before.Configuration), maps.Clone(after.Configuration)
	for _, k := range inertProperties {
		delete(a, k)
		delete(b, k)
	}
	return maps.Equal(a, b)
}
