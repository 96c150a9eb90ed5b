package delta

import (
	"cmp"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/format/delta"
)

// View is one read of a Delta table by the driver: a snapshot, and the commits
// that it shows, which may go back further than the snapshot's own. It implements
// commit.Metadata and commit.Sight and is immutable.
//
// A version is the seat, and a commit's txnId makes the snapshot id. Tokens are
// in commitInfo; as old commits are passed over for a checkpoint or deleted, the
// ledger goes into the commitInfo of each commit of Firn's, so that the newest of
// them has all that came before.
type View struct {
	name commit.TableName
	snap *Snapshot
	// commits are the versions shown, ascending and without a gap up to the
	// snapshot's.
	commits []CommitSummary
	index   *index
	ledger  commit.Ledger
	// schemas are those that the commits shown had, by their id.
	schemas map[int]knownSchema
}

type knownSchema struct {
	schema    *delta.Struct
	partition []string
}

var (
	_ commit.Metadata = (*View)(nil)
	_ commit.Sight    = (*View)(nil)
)

// newView is the view of a snapshot. old is the one before it, or nil.
func newView(name commit.TableName, s *Snapshot, commits []CommitSummary, old *View) *View {
	v := &View{name: name, snap: s, commits: commits, index: indexOf(s, commits, old), schemas: map[int]knownSchema{}}
	v.schemas[v.SchemaID()] = knownSchema{s.definition.Schema, s.definition.Partition}
	ledger := ""
	for _, c := range commits {
		if c.Info.Ledger != "" {
			ledger = c.Info.Ledger
		}
		if c.Metadata != nil {
			if schema, err := delta.ParseSchema(c.Metadata.SchemaString); err == nil {
				v.schemas[delta.SchemaID(c.Metadata.SchemaString)] = knownSchema{schema, c.Metadata.PartitionColumns}
			}
		}
	}
	v.ledger = commit.LedgerOf(ledger, s.Version())
	return v
}

// txnPrefix begins the appId of a unit's txn. What follows is what commitInfo has
// of the unit: token and digest, then its numbers. Token and version alone
// wouldn't tell the unit from another submission of its key, whose files are to be
// deleted.
const txnPrefix = "firn:"

func txnApp(u commit.Unit) string {
	tokens, counts := formatUnits([]commit.Unit{u})
	return txnPrefix + tokens + ";" + counts
}

// snapshotID names a version for ever: another table's version of that number, or
// a request that lost the version, has another txnId.
func snapshotID(version int64, txnID string) string {
	if txnID == "" {
		return strconv.FormatInt(version, 10)
	}
	return strconv.FormatInt(version, 10) + "-" + txnID
}

// Snapshot is the version that was read.
func (v *View) Snapshot() *Snapshot { return v.snap }

// UUID implements commit.Metadata.
func (v *View) UUID() string { return v.snap.metadata.ID }

// Location implements commit.Metadata.
func (v *View) Location() string { return v.snap.log.Root() }

// Clock implements commit.Metadata.
func (v *View) Clock() commit.Seat { return commit.Seat{Number: v.snap.Version()} }

// Head implements commit.Metadata. There are no branches but the main one.
func (v *View) Head(branch string) string {
	if branch != commit.MainBranch {
		return ""
	}
	if n := len(v.commits); n > 0 {
		return snapshotID(v.commits[n-1].Version, v.commits[n-1].Info.TxnID)
	}
	return snapshotID(v.snap.Version(), "")
}

// SchemaID implements commit.Metadata.
func (v *View) SchemaID() int { return delta.SchemaID(v.snap.metadata.SchemaString) }

// SpecID implements commit.Metadata.
func (v *View) SpecID() int { return delta.PartitionID(v.snap.definition.Partition) }

// Find implements commit.Metadata. Where the commit isn't shown, its txn is, for a
// key that a user gave.
func (v *View) Find(_ string, t commit.Token) (commit.Landed, bool) {
	return v.index.find(t, v.snap.Version())
}

// HasSnapshot implements commit.Metadata.
func (v *View) HasSnapshot(id string) bool { return v.index.has(id, v.snap.Version()) }

// Window implements commit.Sight.
func (v *View) Window() int64 {
	if len(v.commits) == 0 {
		return v.snap.Version()
	}
	return max(v.commits[0].Version-1, 0)
}

// Ledger implements commit.Sight. No token landed after the commit that it was
// found in, as far as the view shows all commits since; if it shows none of
// Firn's, the ledger begins now.
func (v *View) Ledger() commit.Ledger { return v.ledger }

// SeatAt implements commit.Sight. Clocks differ, and some commits don't say when
// they were made: every version from one that was made later on counts as later.
func (v *View) SeatAt(t time.Time) int64 {
	var taken int64
	later := int64(math.MaxInt64)
	for _, c := range v.commits {
		if at := c.Info.Time(); at == 0 || at > t.UnixMilli() {
			later = min(later, c.Version)
		} else {
			taken = max(taken, c.Version)
		}
	}
	return max(min(taken, later-1), 0)
}

// CheckUnit implements commit.Metadata. Files name their columns, so that columns
// that were added meanwhile are fine, unless they must have a value.
func (v *View) CheckUnit(u commit.Unit) error {
	if err := v.checkTable(u); err != nil {
		return err
	}
	for _, f := range u.Files.All() {
		if _, err := v.checkFile(v.schemas[u.SchemaID].schema, f); err != nil {
			return commit.Misfit(u, f.Path, "the file fits the table", err.Error())
		}
	}
	return nil
}

// checkTable says whether the table still is what the unit was written for.
func (v *View) checkTable(u commit.Unit) error {
	if u.TableUUID != v.UUID() {
		return v.changed(commit.ConflictRefMoved, "it was dropped and made again, or replaced: its id is %s, and the job was planned against %s", v.UUID(), u.TableUUID)
	}
	if u.Branch != "" && u.Branch != commit.MainBranch {
		return v.refused(commit.ReasonValidation, fmt.Errorf("a Delta table has no branch %.80q", u.Branch))
	}
	switch u.Operation {
	case commit.OperationAppend, commit.OperationFence, "":
	default:
		return v.refused(commit.ReasonValidation, fmt.Errorf("a Delta table is only appended to by this version, and the job wants to %s", u.Operation))
	}
	d := v.snap.definition
	if err := delta.CheckOperation(d, delta.OperationAppend); err != nil {
		return v.refused(commit.ReasonTableChanged, err)
	}
	if u.SpecID != v.SpecID() {
		return v.changed(commit.ConflictSpec, "it is partitioned by other columns than the files were written with")
	}
	written, ok := v.schemas[u.SchemaID]
	if !ok {
		return v.changed(commit.ConflictSchema, "the schema that the files were written with isn't in the part of its log that is read")
	}
	if err := compatible(written.schema, d.Schema); err != nil {
		return v.changed(commit.ConflictSchema, "%w", err)
	}
	return nil
}

// compatible says whether rows of one schema may stand in a table of another.
func compatible(written, current delta.Type) error {
	old, ok := written.(*delta.Struct)
	now, ok2 := current.(*delta.Struct)
	if !ok || !ok2 {
		if !delta.Equal(written, current) {
			return fmt.Errorf("its type is %s now, and the files hold %s", current, written)
		}
		return nil
	}
	for _, f := range old.Fields {
		i := slices.IndexFunc(now.Fields, func(g delta.Field) bool { return g.Name == f.Name })
		switch {
		case i < 0:
			return fmt.Errorf("column %.200q was dropped or renamed", f.Name)
		case f.Nullable && !now.Fields[i].Nullable:
			return fmt.Errorf("column %.200q may not be null any more, and the files were written when it might", f.Name)
		}
		if err := compatible(f.Type, now.Fields[i].Type); err != nil {
			return fmt.Errorf("column %.200q: %w", f.Name, err)
		}
	}
	for _, g := range now.Fields {
		if !g.Nullable && !slices.ContainsFunc(old.Fields, func(f delta.Field) bool { return f.Name == g.Name }) {
			return fmt.Errorf("column %.200q was added and must have a value", g.Name)
		}
	}
	return nil
}

func (v *View) changed(kind commit.Conflict, format string, args ...any) error {
	info, _ := commit.Explain(string(commit.CodeTableChanged))
	return &commit.Error{
		Code: commit.CodeTableChanged, Op: "commit to", Object: v.name.String(), Reason: commit.ReasonTableChanged, Conflict: kind,
		Cause: fmt.Errorf(format, args...), Hint: info.Hint,
	}
}

func (v *View) refused(reason commit.Reason, err error) error {
	info, _ := commit.Explain(string(commit.CodeTableUnsupported))
	e := &commit.Error{
		Code: commit.CodeTableUnsupported, Op: "commit to", Object: v.name.String(), Reason: reason, Cause: err, Hint: info.Hint,
	}
	if reason == commit.ReasonTableChanged {
		e.Conflict = commit.ConflictProtocol
	}
	return e
}

// formatUnits writes the tokens and numbers of a commit's units.
func formatUnits(units []commit.Unit) (tokens, counts string) {
	var t, c []string
	for _, u := range units {
		t = append(t, u.Token.String()+"="+u.Digest.String())
		c = append(c, fmt.Sprintf("%d/%d/%d/%s", u.Rows, u.Files.Len(), u.Bytes, url.QueryEscape(u.JobID)))
	}
	return strings.Join(t, ","), strings.Join(c, ",")
}

// parseUnits reads what formatUnits wrote. Parts that aren't of that form are left
// out: commitInfo is written by whoever may commit to the table.
func parseUnits(tokens, counts string) (out []commit.Landed) {
	if tokens == "" {
		return nil
	}
	ts, cs := strings.Split(tokens, ","), strings.Split(counts, ",")
	for i, s := range ts {
		name, digest, _ := strings.Cut(s, "=")
		token, err := commit.ParseToken(name)
		if err != nil {
			continue
		}
		l := commit.Landed{Token: token}
		if d, err := commit.ParseDigest(digest); err == nil {
			l.Digest = d
		}
		if n := strings.SplitN(cs[min(i, len(cs)-1)], "/", 4); len(cs) == len(ts) && len(n) == 4 {
			rows, err1 := strconv.ParseInt(n[0], 10, 64)
			files, err2 := strconv.ParseInt(n[1], 10, 64)
			size, err3 := strconv.ParseInt(n[2], 10, 64)
			if cmp.Or(err1, err2, err3) == nil {
				l.Rows, l.Files, l.Bytes = rows, files, size
			}
		}
		out = append(out, l)
	}
	return out
}
