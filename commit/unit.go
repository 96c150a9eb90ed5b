package commit

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"
	"strings"
)

// TableName is the full name of a table: catalog, namespace and name.
type TableName struct {
	Catalog   string
	Namespace []string
	Name      string
}

// String joins the parts with dots. It is for people and logs; parts that hold
// dots are not quoted, but a path is, which has no namespace.
func (n TableName) String() string {
	if len(n.Namespace) == 0 && strings.Contains(n.Name, "/") {
		return n.Catalog + ".`" + n.Name + "`"
	}
	return strings.Join(slices.Concat([]string{n.Catalog}, n.Namespace, []string{n.Name}), ".")
}

// MainBranch is the branch that a unit commits to when none is named.
const MainBranch = "main"

// Operation says what a unit does to the table.
type Operation string

// Operations.
const (
	// OperationAppend adds files and removes nothing. Appends commute, so they
	// may share a table version.
	OperationAppend Operation = "append"
	// OperationOverwrite replaces the files that a condition selects.
	OperationOverwrite Operation = "overwrite"
	// OperationRowLevel deletes, updates or merges rows, by delete files or by
	// rewriting the files that hold them.
	OperationRowLevel Operation = "row_level"
	// OperationRewrite replaces files by others with the same rows
	// (compaction).
	OperationRewrite Operation = "rewrite"
	// OperationFence adds and removes nothing: its commit only takes a seat, so
	// that requests which claim that seat, or a lower one, can't land any more
	// (Options.Fence).
	OperationFence Operation = "fence"
)

// commutes: the operation doesn't mind what others commit.
func (o Operation) commutes() bool { return o == OperationAppend || o == "" }

// Unit is a commit unit: the files of one job for one table and branch.
type Unit struct {
	Token  Token
	Digest Digest
	// JobID and Key are for reports and for the snapshot's summary.
	JobID, Key string
	Table      TableName
	// TableUUID is the identity that the job was planned against.
	TableUUID string
	Branch    string
	Operation Operation
	// SchemaID and SpecID are those that the files were written with. Only
	// units of one schema and one spec share a request.
	SchemaID, SpecID int
	// Prefix is the data prefix of the job; every file lies under it. It ends
	// in a slash.
	Prefix string
	// Files is what is to be committed, sorted by path. It may be empty: a
	// statement that selects no rows commits no snapshot.
	Files Files
	// Rows and Bytes are sums over Files.
	Rows, Bytes int64
	// Tasks is how many tasks of the final stage the files came from.
	Tasks int
	// Claim is what an operation other than an append rests on.
	Claim *Claim
	// Origin is the seat of the table when the key was first accepted
	// (OriginOf, AdmitKey), journaled: the token can't have landed at it or
	// before. Unknown when zero; the machine then takes the seat of its first
	// read. Like everything that isn't content it is no part of the digest.
	Origin Seat
	// LedgerFloor is the lowest origin of the table's units that are sealed
	// and open, which the ledger isn't trimmed past; nil when that is this
	// unit's own.
	LedgerFloor *Seat
}

// Seat is the number that a commit takes in the table and that nobody can take
// again: for Iceberg version 2 and later the sequence number, and for catalogs
// that swap a pointer (SQL) also that pointer.
type Seat struct {
	// Number is the sequence number (Iceberg) or version (Delta).
	Number int64
	// Pointer is the metadata location that a pointer catalog must still have
	// for the request to be applied; empty for other catalogs. As pointers
	// have no order, another pointer than the pinned one proves that the
	// request is dead only if reads never go back in time: a driver may use
	// pointers only where each read is at least as new as all before it, in
	// any process.
	Pointer string
}

// UnitSpec is what a commit unit is made from.
type UnitSpec struct {
	// Namespace, Key and Number make the token, with the table and branch.
	Namespace, Key string
	Number         int

	JobID            string
	Table            TableName
	TableUUID        string
	Branch           string // MainBranch when empty
	Operation        Operation
	SchemaID, SpecID int
	Prefix           string
	Tasks            int
	// Files are those of the unit, or Packed are when there are none.
	Files  []File
	Packed Files
	Origin Seat
	Claim  *Claim // its lists are sorted by NewUnit
}

// NewUnit makes the commit unit: sorts the files, sums them up and derives token and
// digest. It doesn't verify them; see Verify.
func NewUnit(s UnitSpec) Unit {
	if s.Branch == "" {
		s.Branch = MainBranch
	}
	u := Unit{
		Token: NewToken(TokenInput{Namespace: s.Namespace, Key: s.Key, TableUUID: s.TableUUID, Branch: s.Branch, Unit: s.Number}),
		JobID: s.JobID, Key: s.Key, Table: s.Table, TableUUID: s.TableUUID, Branch: s.Branch, Operation: s.Operation,
		SchemaID: s.SchemaID, SpecID: s.SpecID, Prefix: s.Prefix, Tasks: s.Tasks, Files: s.Packed,
		Origin: s.Origin,
	}
	if s.Claim != nil {
		c := *s.Claim
		c.Replaced, c.Amended = slices.Sorted(slices.Values(c.Replaced)), slices.Sorted(slices.Values(c.Amended))
		u.Claim = &c
	}
	if len(s.Files) > 0 {
		u.Files = PackFiles(s.Files...)
	}
	u.Digest = digestOf(&u)
	return u
}

// digestOf hashes everything of the unit that the commit puts into the table.
// Every value is preceded by its length or is of fixed length, and maps go in
// by ascending key, so that equal content has equal bytes and nothing else has. On
// the way the files are summed up.
func digestOf(u *Unit) Digest {
	d := digester{sha256.New()}
	d.str("firn.digest.v1")
	d.str(u.TableUUID)
	d.str(u.Branch)
	d.str(string(u.Operation))
	d.num(int64(u.SchemaID))
	d.num(int64(u.SpecID))
	d.num(int64(u.Files.Len()))
	for _, f := range u.Files.All() {
		u.Rows += f.Rows
		u.Bytes += f.Size
		d.file(f)
	}
	if u.Claim != nil {
		for _, paths := range [][]string{u.Claim.Replaced, u.Claim.Amended} {
			d.num(int64(len(paths)))
			for _, p := range paths {
				d.str(p)
			}
		}
	}
	var out Digest
	copy(out[:], d.h.Sum(nil))
	return out
}

type digester struct{ h hash.Hash }

func (d digester) num(n int64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(n))
	d.h.Write(b[:])
}

func (d digester) bytes(b []byte) {
	d.num(int64(len(b)))
	d.h.Write(b)
}

func (d digester) str(s string) { d.bytes([]byte(s)) }

func (d digester) counts(m map[int]int64) {
	d.num(int64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		d.num(int64(k))
		d.num(m[k])
	}
}

func (d digester) bounds(m map[int][]byte) {
	d.num(int64(len(m)))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		d.num(int64(k))
		d.bytes(m[k])
	}
}

func (d digester) file(f File) {
	d.str(f.Path)
	d.str(f.Format)
	d.str(f.Attempt)
	d.num(int64(f.SchemaID))
	d.num(int64(f.SpecID))
	d.num(int64(f.SortOrderID))
	d.num(int64(len(f.Partition)))
	for _, p := range f.Partition {
		d.num(int64(p.FieldID))
		if p.Null {
			d.num(1)
			continue
		}
		d.num(0)
		d.bytes(p.Value)
	}
	d.num(f.Rows)
	d.num(f.Size)
	for _, m := range []map[int]int64{f.ColumnSizes, f.ValueCounts, f.NullCounts, f.NaNCounts} {
		d.counts(m)
	}
	d.bounds(f.Lower)
	d.bounds(f.Upper)
	d.num(int64(len(f.SplitOffsets)))
	for _, o := range f.SplitOffsets {
		d.num(o)
	}
}
