package client

import (
	"context"

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
}

// Units lists parked commit units, or all that the scheduler remembers.
func (c *Client) Units(ctx context.Context, all bool) ([]Unit, error) {
	resp, err := c.rpc.ListUnits(ctx, &firnpb.ListUnitsRequest{All: all})
	if err != nil {
		return nil, c.fromRPC(ctx, err)
	}
	var units []Unit
	for _, u := range resp.GetUnits() {
		units = append(units, Unit{
			JobID: u.GetJobId(), Table: u.GetTable(), State: commit.State(u.GetState()), Reason: commit.Reason(u.GetReason()),
			Files: u.GetFiles(), Rows: u.GetRows(), Prefix: u.GetPrefix(), Cause: u.GetCause(),
		})
	}
	return units, nil
}

// RetryUnit commits the parked files of a job again, to its own table or, when
// table isn't empty, to the one named: that is how files are adopted whose table
// was replaced.
func (c *Client) RetryUnit(ctx context.Context, jobID, table string) (JobStatus, error) {
	return c.driveUnit(ctx, &firnpb.DriveUnitRequest{JobId: jobID, Action: "retry", Table: table})
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
