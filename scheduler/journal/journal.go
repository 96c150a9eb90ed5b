package journal

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// ErrNotFound is wrapped when there is no record of that name.
var ErrNotFound = errors.New("not in the journal")

// Journal is the durable record. It is safe for concurrent use; every method
// that writes is one transaction and durable when it returns.
//
// # Epochs
//
// Opening a journal takes its epoch: a number in the journal that grows with
// each opening. Every write compares the number in its own transaction, so a
// process that was stalled while another one took the journal over changes
// nothing any more: each of its writes fails with ErrDeposed. As nothing is
// sent to a table before its send record is written, and nothing is deleted
// before that is on record, it sends and deletes nothing either.
//
// # Incarnations
//
// A journal that was restored from a copy may have forgotten sends. Its
// incarnation is another one then, and a unit that was sealed in an earlier
// incarnation counts as sent, whatever its records say.
//
// Package journaltest holds the tests that every implementation passes.
type Journal interface {
	// Incarnation is a UUID made with the journal. It changes when a journal is
	// restored or lost, which is when earlier sends may be unknown to it.
	Incarnation() string
	// Epoch is the epoch that this opening took.
	Epoch() int64
	// Leads says whether nobody has taken the journal over since this opening.
	Leads(ctx context.Context) (bool, error)
	// Remembers is since when the journal remembers: when it was made, or the
	// end of what was pruned from it, whichever is later.
	Remembers(ctx context.Context) (time.Time, error)

	// Write makes everything of a batch durable at once, or nothing.
	Write(ctx context.Context, b Batch) error
	// PutJob is Write with one job.
	PutJob(ctx context.Context, j Job) error
	// Submission reads what the job was submitted with.
	Submission(ctx context.Context, jobID string) ([]byte, error)
	// Plan reads what Write kept of a job's plan.
	Plan(ctx context.Context, jobID string) ([]byte, error)
	// Attempts lists the attempts of a job, in the order of their start.
	Attempts(ctx context.Context, jobID string) ([]Attempt, error)
	// Executors lists the executors that are registered.
	Executors(ctx context.Context) ([]Executor, error)
	// Uploads lists the uploads that weren't freed, in the order of their opening.
	Uploads(ctx context.Context) ([]Upload, error)
	// Frames lists the cached frames that weren't forgotten.
	Frames(ctx context.Context) ([]Frame, error)
	// Origin is the seat of a table at which a token's key was first accepted.
	Origin(ctx context.Context, t commit.Token) (commit.Seat, error)
	// LowestOrigin is the lowest origin of a table's units that may be driven
	// again or are under way, except the one of a job; nil when there is none.
	LowestOrigin(ctx context.Context, tableUUID, exceptJob string) (*commit.Seat, error)
	// Job reads one job.
	Job(ctx context.Context, id string) (Job, error)
	// JobByKey reads the newest job that was submitted under a key.
	JobByKey(ctx context.Context, namespace, key string) (Job, error)
	// Jobs lists jobs, newest first.
	Jobs(ctx context.Context, f Filter) ([]Job, error)

	// Seal fixes the unit of a job for ever, with its manifest. Sealing the same
	// content again changes nothing, unless the unit was refused: it is then
	// sealed again. Other content takes the place of a unit only when that was
	// refused, so that nothing of it can land any more, or when it was never sent
	// and the new one has another token, which is that of another table. Anything
	// else is ErrSealed.
	//
	// manifest writes the manifest piece by piece, so that it needn't be in memory as a
	// whole. It may be called again when the disk was full.
	Seal(ctx context.Context, u Unit, manifest func(io.Writer) error) error
	// Send writes that a request is about to be sent. Each of its tokens must be
	// that of a sealed unit; when several jobs sealed one, the last is meant.
	Send(ctx context.Context, s Send) error
	// Lost writes that requests for the unit of a job may have been sent by an
	// earlier incarnation of the journal, of which this one has no record: s
	// stands for all of them (commit.LostSends). The unit belongs to this
	// incarnation from then on; one that was refused is unknown again. One that
	// was committed or dropped stays as it is.
	Lost(ctx context.Context, jobID string, s Send) error
	// Outcome writes how the unit of a job ended, or that it isn't known. With a
	// commit that shows which submission of the key the table has, the units that
	// other jobs sealed under the token and that were refused for good are
	// committed by another submission from then on: their files have lost.
	Outcome(ctx context.Context, jobID string, o Outcome) error
	// Drop writes that a unit's files were given up. It refuses, with
	// ErrNotDroppable, a unit that may be in a table, or may still get there.
	Drop(ctx context.Context, jobID string) error
	// Deleting writes that files of a job are about to be deleted. It must be
	// durable before the first of them is. The last state that is on record
	// decides in the same transaction: for a job that runs, and for a unit that
	// is sealed, sent or unknown, it refuses with ErrNotDroppable; for a unit that was
	// committed it does so unless the caller has compared the paths with what
	// the table holds (loser), which nobody can when only the table's ledger
	// knows the commit. Files of a job that ran when this copy of a journal was
	// made stay until its unit is sealed here.
	Deleting(ctx context.Context, jobID string, paths []string, loser bool) error
	// Deleted lists the files of a job that Deleting named.
	Deleted(ctx context.Context, jobID string) ([]string, error)
	// Sweeps lists the ended jobs whose files are still to be swept and may be by
	// what is on record of their units, in the order of their ends. A job is due
	// with its end, in the same transaction; see Sweep.
	Sweeps(ctx context.Context) ([]Sweep, error)
	// Swept writes that a job's files were swept: once, or for the last time.
	Swept(ctx context.Context, jobID string, last bool) error
	// Building writes that this process is about to write files for requests to a
	// table, before the first of them. Writing it again changes nothing.
	Building(ctx context.Context, b Build) error
	// Builds lists what Building wrote, of this process and of earlier ones, oldest
	// first.
	Builds(ctx context.Context) ([]Build, error)
	// Unsent gives those of the ids that no send record has.
	Unsent(ctx context.Context, requestIDs []string) ([]string, error)
	// DeletingBuilt writes that files of requests are about to be deleted, and is
	// durable before the first of them is. It refuses with ErrNotDroppable unless
	// the mark is that of an earlier epoch of this incarnation, no send record has
	// the id of a file, and none with the mark is of a request that may still land
	// by the clock of a read of the table (commit.FirmClock). No record of an
	// earlier epoch is ever added, so that what it finds stays so.
	DeletingBuilt(ctx context.Context, b Build, clock commit.Seat, files []commit.MarkedFile) error
	// BuildSwept forgets a build of an earlier process, whose files were swept for
	// the last time.
	BuildSwept(ctx context.Context, b Build) error
	// Strip marks a table as one that lost a commit's tokens, for as long as nobody
	// calls Unstrip. The first mark of a table stays.
	Strip(ctx context.Context, s Stripped) error
	// Unstrip takes a table's mark away, if it has one.
	Unstrip(ctx context.Context, tableUUID string) error
	// Stripped lists the tables that are marked, oldest first.
	Stripped(ctx context.Context) ([]Stripped, error)
	// Unit reads the unit of a job.
	Unit(ctx context.Context, jobID string) (Unit, error)
	// Unresolved names the job whose unit of this token was sent and may be in
	// the table, or may still get there; empty when there is none. A unit of an
	// earlier incarnation that is sealed or refused counts as sent.
	Unresolved(ctx context.Context, t commit.Token) (jobID string, err error)
	// Units lists units, oldest first: all, or those that wait to be driven.
	Units(ctx context.Context, all bool) ([]Unit, error)
	// OpenManifest reads what Seal kept of a unit's files, piece by piece. That it is
	// what was kept shows at its end: io.EOF says so.
	OpenManifest(ctx context.Context, jobID string) (io.ReadCloser, error)
	// Sends lists the send records that name a token, in the order of sending.
	Sends(ctx context.Context, t commit.Token) ([]Send, error)

	// StepWrite applies an event to the record of an external write, by
	// lifecycle.Step, and records what it comes to. The look at the record and the
	// change are one transaction. body is that of a manifest which is handed in;
	// it is durable when the verdict is lifecycle.Kept.
	StepWrite(ctx context.Context, jobID string, ev lifecycle.Event, body []byte) (lifecycle.State, lifecycle.Answer, error)
	// WriteState reads the record of an external write.
	WriteState(ctx context.Context, jobID string) (lifecycle.State, error)
	// RunningWrites lists the external writes whose jobs run, in every phase, without
	// their handles.
	RunningWrites(ctx context.Context) ([]lifecycle.State, error)
	// WriteManifests lists the manifests that were handed in for a write whose job
	// hasn't ended, by attempt; WriteManifest reads one.
	WriteManifests(ctx context.Context, jobID string) ([]lifecycle.Manifest, error)
	WriteManifest(ctx context.Context, jobID, attempt string) ([]byte, error)

	// Prune forgets the jobs that ended before a time, with everything of them,
	// except those whose unit waits to be driven and those whose files weren't
	// swept for the last time. It returns how many. A send record that was written at
	// or after Remembers is never forgotten.
	Prune(ctx context.Context, before time.Time) (int, error)

	// Close releases the journal. No other method may be called after it.
	Close() error
}

// Errors that are wrapped.
var (
	// ErrNotDroppable: a unit's files may be in a table.
	ErrNotDroppable = errors.New("the unit's files may be in the table")
	// ErrSealed: the job has sealed another content.
	ErrSealed = errors.New("another content was sealed before")
	// ErrDeposed: another process has taken the journal over.
	ErrDeposed = errors.New("another process has taken the journal over")
)

// Batch is what becomes durable together. Within one batch the order is that
// of the fields.
type Batch struct {
	// Jobs replace what was there under their ids.
	Jobs []Job
	// Plans are bound plans, by job.
	Plans []Plan
	// Origins are those of tokens; the first one of a token counts.
	Origins []Origin
	// Gone are executors that were lost, Executors those that have registered.
	Gone      []Executor
	Executors []Executor
	// Started are attempts that are about to be handed out, Accepted those that
	// succeeded and count, Ended those that don't: they failed, were stopped, or
	// their output was lost.
	Started  []Attempt
	Accepted []Accepted
	Ended    []string
	// Uploads are those that were opened, Freed the ids of those that are gone.
	Uploads []Upload
	Freed   []string
	// Frames are cached frames, Forgotten the ids of those that are gone.
	Frames    []Frame
	Forgotten []string
	// Writes are external writes that were begun.
	Writes []lifecycle.State
}

// Empty says whether there is nothing to write.
func (b *Batch) Empty() bool {
	return len(b.Jobs)+len(b.Plans)+len(b.Origins)+len(b.Gone)+len(b.Executors)+len(b.Started)+len(b.Accepted)+len(b.Ended)+len(b.Uploads)+len(b.Freed)+len(b.Frames)+len(b.Forgotten)+len(b.Writes) == 0
}

// Add appends another batch. What it writes comes after what b writes, except
// that an executor which is lost in it and registered in b stays: a lost
// executor is named with its incarnation, so the order between the two doesn't
// matter.
func (b *Batch) Add(o Batch) {
	b.Jobs = append(b.Jobs, o.Jobs...)
	b.Plans = append(b.Plans, o.Plans...)
	b.Origins = append(b.Origins, o.Origins...)
	b.Gone = append(b.Gone, o.Gone...)
	b.Executors = append(b.Executors, o.Executors...)
	b.Started = append(b.Started, o.Started...)
	b.Accepted = append(b.Accepted, o.Accepted...)
	b.Ended = append(b.Ended, o.Ended...)
	b.Uploads = append(b.Uploads, o.Uploads...)
	b.Freed = append(b.Freed, o.Freed...)
	b.Frames = append(b.Frames, o.Frames...)
	b.Forgotten = append(b.Forgotten, o.Forgotten...)
	b.Writes = append(b.Writes, o.Writes...)
}

// Plan is the bound plan of a job. Its bytes are the scheduler's own; they hold
// no credentials.
type Plan struct {
	JobID string
	Body  []byte
}

// Origin is where the key of a token was first accepted.
type Origin struct {
	Token commit.Token
	Seat  commit.Seat
}

// Executor is a registered executor.
type Executor struct {
	ID, Incarnation string
	// Control and Flight are its addresses.
	Control, Flight string
	Slots           int
	Memory          int64
}

// AttemptState is what the journal knows of an attempt.
type AttemptState string

// States of an attempt.
const (
	AttemptStarted  AttemptState = "started"
	AttemptAccepted AttemptState = "accepted"
	AttemptEnded    AttemptState = "ended"
)

// Attempt is one attempt of a task.
type Attempt struct {
	ID, JobID                 string
	Stage, Task, StageAttempt int
	// Executor runs it, in the incarnation named.
	Executor, Incarnation string
	// Prefix is where it writes data files; empty when it writes none. Files of
	// other attempts may lie there too: theirs are told apart by the attempt's
	// id, which is in each name.
	Prefix  string
	Started time.Time

	// State and Status are the journal's.
	State AttemptState
	// Status is what it was accepted with.
	Status []byte
}

// Accepted is an attempt that counts, with the status that it succeeded with.
type Accepted struct {
	ID     string
	Status []byte
}

// Job is what is kept of a job.
type Job struct {
	ID string
	// Namespace and Key are the principal's namespace and idempotency key;
	// Fingerprint identifies the statement that the key belongs to.
	Namespace, Key, Fingerprint string
	// Statement is the kind of statement, SQL its text.
	Statement, SQL string
	// Table is the target's name, empty for a SELECT.
	Table string
	// State is the job's state, Commit what is known of the table.
	State  string
	Commit commit.CommitState
	// Error is what went wrong, as a line; empty when nothing did.
	Error string
	// Status is the whole status as clients get it.
	Status []byte
	// Submission is what the job was submitted with, as the scheduler wrote it;
	// see Journal.Submission. It is written only, and nil leaves what was there.
	Submission []byte
	// Ended is zero while the job runs.
	Submitted, Ended time.Time
	// Lost is the journal's: the job ran when the copy was made that this journal
	// goes on from, so that its unit may have been sealed and sent since.
	Lost bool
	// Seq is the journal's: its jobs have it in the order in which they were first put.
	Seq int64
}

// Filter picks jobs.
type Filter struct {
	// State is a job state; empty for all.
	State string
	// Running picks the jobs that have not ended.
	Running bool
	// Table picks the jobs that write to it.
	Table string
	// Before picks the jobs with a lower Seq; 0 for all.
	Before int64
	// Since and Until bound the time of submission, Until excluded; zero for no bound.
	Since, Until time.Time
	// Limit is the most jobs to return; 0 for all.
	Limit int
}

// UnitState is what the journal knows of a unit.
type UnitState string

// States of a unit.
const (
	// UnitSealed: fixed, and not sent.
	UnitSealed UnitState = "sealed"
	// UnitSent: a request that names it may have been sent.
	UnitSent      UnitState = "sent"
	UnitCommitted UnitState = "committed"
	UnitRefused   UnitState = "refused"
	UnitUnknown   UnitState = "unknown"
	// UnitDropped: refused, and its files were given up.
	UnitDropped UnitState = "dropped"
)

// Unit is a sealed commit unit without its files, which are in its manifest.
type Unit struct {
	JobID, Namespace, Key string
	Token                 commit.Token
	Digest                commit.Digest
	Table                 commit.TableName
	TableUUID, Branch     string
	Operation             commit.Operation
	SchemaID, SpecID      int
	// SchemaJSON and SpecJSON are what the files were written with.
	SchemaJSON, SpecJSON []byte
	Prefix               string
	Files, Rows, Bytes   int64
	Tasks                int
	Sealed               time.Time
	// Origin is commit.Unit's.
	Origin commit.Seat
	// AfterDeadline is what may be done for the unit once it was told as unknown.
	AfterDeadline AfterDeadline

	// State and what follows are the journal's: Seal ignores them.
	State  UnitState
	Reason commit.Reason
	Cause  string
	// Quarantine, Other and LedgerOnly are those of its outcome.
	Quarantine, Other, LedgerOnly bool
	// Sends is the number of send records that name the token.
	Sends int
	// Incarnation is the journal's at the time of the seal.
	Incarnation string
	// Since is when it came into its state.
	Since time.Time
}

// Waits says whether the unit waits to be driven: what became of it is unknown,
// or it was refused for a reason that may pass.
func (u Unit) Waits() bool {
	switch u.State {
	case UnitSealed, UnitSent, UnitUnknown:
		return true
	case UnitRefused:
		return u.Reason.Parks()
	default:
		return false
	}
}

// Send is one send record: written before a request is sent.
type Send struct {
	RequestID  string
	SnapshotID string
	Head       string
	Seat       commit.Seat
	// Tokens are those of the units that the request would commit.
	Tokens []commit.Token
	// MetadataFiles are the files that were written for the request.
	MetadataFiles []string
	At            time.Time
}

// Outcome is how a unit ended.
type Outcome struct {
	State  commit.State
	Reason commit.Reason
	Cause  string
	// Quarantine: refused, but a request of it isn't dead yet, so that its files
	// stay.
	Quarantine bool
	// Other: committed by another submission of the same key, so that the
	// unit's own files are losers.
	Other bool
	// LedgerOnly: committed, and known by the table's ledger alone, so that nobody
	// can tell which files the commit holds: the unit's own stay.
	LedgerOnly bool
}

// AfterDeadline is what the scheduler may do by itself for a unit that was told
// as unknown, besides looking for it.
type AfterDeadline string

// Policies. The zero value only looks.
const (
	// AfterDeadlineLook only finds out: whoever was told that the outcome isn't
	// known may have done something about it since.
	AfterDeadlineLook AfterDeadline = ""
	// AfterDeadlineFence puts an empty commit on the table, once it can be
	// reached, so that the unit's requests are dead.
	AfterDeadlineFence AfterDeadline = "fence"
	// AfterDeadlineRetry builds and sends again.
	AfterDeadlineRetry AfterDeadline = "retry"
)
