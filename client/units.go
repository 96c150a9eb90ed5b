package client

import (
	"context"
	"fmt"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Unit is a commit unit that was refused or isn't known yet, whose files are
// kept so that it may be driven again.
type Unit struct {
	JobID string
	Table string
	// State is the outcome so far, Reason why it was refused.
	State  commit.State
	Reason commit.Reason
	// Files and Rows are what the unit holds, Prefix where its files lie.
	Files, Rows int64
	Prefix      string
	// Cause is the error that it ended with.
	Cause string
	// Key is the job's idempotency key; Token and Digest identify the unit and
	// its content in the table's snapshots.
	Key, Token, Digest string
	TableUUID, Branch  string
	Bytes              int64
	// Sealed is when its content was fixed, Since since when it is in its state.
	Sealed, Since time.Time
	// Quarantine: refused on the catalog's word, while a request may still land.
	Quarantine bool
	// LedgerOnly: committed, and known by the table's ledger alone, so that nobody
	// can tell which files the commit holds; they are kept.
	LedgerOnly bool
	// WaitsFor is what the commit waits for, in words, while it is under way.
	WaitsFor string
	// AfterDeadline is what the job was submitted with.
	AfterDeadline AfterDeadline
	// Sends are the requests that were sent for it; only Unit has them.
	Sends []Send
}

// Send is one request that was sent for a unit.
type Send struct {
	RequestID, SnapshotID string
	// Head is the snapshot that it asserted, Seat the number that it claimed.
	Head string
	Seat int64
	At   time.Time
}

func unitOf(u *firnpb.UnitStatus) Unit {
	out := Unit{
		JobID: u.GetJobId(), Table: u.GetTable(), State: commit.State(u.GetState()), Reason: commit.Reason(u.GetReason()),
		Files: u.GetFiles(), Rows: u.GetRows(), Prefix: u.GetPrefix(), Cause: u.GetCause(),
		Key: u.GetIdempotencyKey(), Token: u.GetToken(), Digest: u.GetDigest(), TableUUID: u.GetTableUuid(), Branch: u.GetBranch(),
		Bytes: u.GetBytes(), Sealed: unixMS(u.GetSealedUnixMs()), Since: unixMS(u.GetSinceUnixMs()), Quarantine: u.GetQuarantine(),
		LedgerOnly: u.GetLedgerOnly(), WaitsFor: u.GetWaitsFor(), AfterDeadline: AfterDeadline(u.GetAfterDeadline()),
	}
	for _, s := range u.GetSends() {
		out.Sends = append(out.Sends, Send{
			RequestID: s.GetRequestId(), SnapshotID: s.GetSnapshotId(), Head: s.GetHead(), Seat: s.GetSeat(), At: unixMS(s.GetAtUnixMs()),
		})
	}
	return out
}

// Unit describes the commit unit of a job.
func (c *Client) Unit(ctx context.Context, jobID string) (Unit, error) {
	resp, err := c.rpc.ListUnits(ctx, &firnpb.ListUnitsRequest{JobId: jobID})
	if err != nil {
		return Unit{}, c.fromRPC(ctx, err)
	}
	if len(resp.GetUnits()) != 1 {
		return Unit{}, fmt.Errorf("the scheduler described %d commit units of job %s", len(resp.GetUnits()), jobID)
	}
	return unitOf(resp.GetUnits()[0]), nil
}

// Units lists parked commit units, or all that the scheduler remembers.
func (c *Client) Units(ctx context.Context, all bool) ([]Unit, error) {
	resp, err := c.rpc.ListUnits(ctx, &firnpb.ListUnitsRequest{All: all})
	if err != nil {
		return nil, c.fromRPC(ctx, err)
	}
	var units []Unit
	for _, u := range resp.GetUnits() {
		units = append(units, unitOf(u))
	}
	return units, nil
}

// RetryUnit commits the parked files of a job again, to its own table or, when
// table isn't empty, to the one named: that is how files are adopted whose table
// was replaced.
func (c *Client) RetryUnit(ctx context.Context, jobID, table string) (JobStatus, error) {
	return c.driveUnit(ctx, &firnpb.DriveUnitRequest{JobId: jobID, Action: "retry", Table: table})
}

// ResolveUnit reads the table once and finds out what became of a job's commit.
// Nothing is sent.
func (c *Client) ResolveUnit(ctx context.Context, jobID string) (JobStatus, error) {
	return c.driveUnit(ctx, &firnpb.DriveUnitRequest{JobId: jobID, Action: "resolve"})
}

// FenceUnit is ResolveUnit for a commit that stays unknown because nobody commits
// to its table: it puts an empty commit on the table, so that the requests that
// were sent for the job can't land any more, and then finds out. What has landed
// is found; what hasn't is refused, and its files may be committed again or given
// up. The error says why when the table can't be fenced.
func (c *Client) FenceUnit(ctx context.Context, jobID string) (JobStatus, error) {
	return c.driveUnit(ctx, &firnpb.DriveUnitRequest{JobId: jobID, Action: "fence"})
}

// DropUnit gives the parked files of a job up: they are deleted.
func (c *Client) DropUnit(ctx context.Context, jobID string) (JobStatus, error) {
	return c.driveUnit(ctx, &firnpb.DriveUnitRequest{JobId: jobID, Action: "drop"})
}

func (c *Client) driveUnit(ctx context.Context, req *firnpb.DriveUnitRequest) (JobStatus, error) {
	p, err := c.rpc.DriveUnit(ctx, req)
	if err != nil {
		return JobStatus{}, c.fromRPC(ctx, err)
	}
	return statusOf(p)
}

// Orphans are what a job left that no version of the table can have.
type Orphans struct {
	JobID  string
	State  State
	Commit commit.CommitState
	// Files are URIs: of files that no version of the table can have, for the
	// reason Why. They are gone if Deleted is set.
	Files   []string
	Why     string
	Deleted bool
	// Kept says why the job's files stay; Files are those then.
	Kept string
	// More files are there than those that are listed.
	More int
}

// OrphansOptions say what Orphans does.
type OrphansOptions struct {
	// Delete the files; else they are only named.
	Delete bool
	// Wait until the scheduler has swept, for the last time, what ended jobs left
	// of their own. Some time after a job's end passes before it does.
	Wait bool
}

// Orphans names what the scheduler's jobs left of a table that no version of it
// can have, and what stays though it isn't in the table. It goes by the scheduler's
// record, so that files of others are no concern of it.
func (c *Client) Orphans(ctx context.Context, table string, o OrphansOptions) ([]Orphans, error) {
	resp, err := c.rpc.Orphans(ctx, &firnpb.OrphansRequest{Table: table, Delete: o.Delete, Wait: o.Wait})
	if err != nil {
		return nil, c.fromRPC(ctx, err)
	}
	var all []Orphans
	for _, o := range resp.GetJobs() {
		all = append(all, Orphans{
			JobID: o.GetJobId(), State: State(o.GetState()), Commit: commit.CommitState(o.GetCommit()),
			Files: o.GetFiles(), Why: o.GetWhy(), Deleted: o.GetDeleted(), Kept: o.GetKept(), More: int(o.GetMore()),
		})
	}
	return all, nil
}
