package commit

import "time"

// State is how a commit unit ended, or that it is not known. The three are
// never mixed: committed and refused are final and proven, unknown is neither.
type State string

// The three outcomes.
const (
	// Committed: the unit's rows are in the table's history, exactly once.
	Committed State = "committed"
	// Refused: nothing changed, and nothing of this unit can change the table
	// any more.
	Refused State = "refused"
	// Unknown: not proven either way. Files are kept.
	Unknown State = "unknown"
)

// Reason says why a unit was refused.
type Reason string

// Reasons for a refusal. All but ReasonValidation and ReasonLimit park the
// unit: its files are kept and it may be driven again.
const (
	ReasonConflict     Reason = "conflict"
	ReasonValidation   Reason = "validation"
	ReasonPermission   Reason = "permission"
	ReasonTableChanged Reason = "table_changed"
	ReasonBudget       Reason = "budget"
	ReasonLimit        Reason = "limit"
)

// Parks says whether a unit refused for this reason is parked, so that its
// files stay and it may be driven again.
func (r Reason) Parks() bool {
	return r != ReasonValidation && r != ReasonLimit && r != ""
}

// Outcome is the end of one commit unit.
type Outcome struct {
	State State
	// Reason is set when State is Refused, except for a unit that was stopped
	// by a cancel before anything of it was sent: that has none.
	Reason Reason
	// Err explains a refusal or an unknown outcome; nil when committed.
	Err error
	// Landed is set when State is Committed.
	Landed Landed
	// Deduplicated: the token was in the table before this unit sent
	// anything, or another submission put it there.
	Deduplicated bool
	// OtherSubmission: the token is in the table with another digest, so the
	// unit's own files are losers.
	OtherSubmission bool
	// RolledBack: committed, but no longer in the history of its branch.
	RolledBack bool
	// Quarantine: told as refused on the word of the catalog while a request
	// isn't dead yet. The unit's files and the request's must be kept until it
	// is.
	Quarantine bool
	// TokenStripped: committed, known by the snapshot id alone, because the
	// catalog doesn't keep what Firn writes into the summary. Such a table
	// must not be written to again.
	TokenStripped bool
	// LedgerOnly: committed, known by the table's ledger alone, because the
	// snapshot isn't shown any more. Which files it holds can't be told, so the
	// unit's own must be kept; nor whose submission it was, if the unit sent a
	// request for the seat that the ledger has.
	LedgerOnly bool
	// Attempts is the number of requests sent for the unit.
	Attempts int
	// Conflicts is the number of requests that lost their seat to somebody
	// else's commit.
	Conflicts int
}

// ByOthers says whether what the table has under the token isn't this unit: it shows
// other content, or only the ledger has it and the unit didn't put it there.
func (o Outcome) ByOthers() bool {
	return o.OtherSubmission || o.LedgerOnly && o.Deduplicated
}

// Landed is what a table shows of a committed unit.
type Landed struct {
	Token  Token
	Digest Digest
	// SnapshotID is the snapshot or version that holds the unit's files. It
	// is a string because it is a 64-bit number that JSON readers truncate.
	// Empty for a unit without files.
	SnapshotID string
	// Seat is the number that the commit took.
	Seat Seat
	// InHead says whether that snapshot is in the history of the branch.
	InHead bool
	// Rows, Files and Bytes are the unit's own numbers as kept beside the
	// token, not those of a snapshot that it shares with others.
	Rows, Files, Bytes int64
	CommittedAt        time.Time
}
