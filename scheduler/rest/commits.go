package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobview"
)

// unit is one commit.
type unit struct {
	JobID         string `json:"job_id"`
	Key           string `json:"idempotency_key"`
	Table         string `json:"table"`
	TableUUID     string `json:"table_uuid"`
	Branch        string `json:"branch"`
	State         string `json:"state" doc:"sealed, sent, committed, refused or unknown"`
	Reason        string `json:"reason,omitempty" doc:"of a refusal"`
	Cause         string `json:"cause,omitempty"`
	Token         string `json:"token" doc:"what the table has of the commit when it landed"`
	Digest        string `json:"digest"`
	Rows          int64  `json:"rows"`
	Files         int64  `json:"files"`
	Bytes         int64  `json:"bytes"`
	Prefix        string `json:"prefix" doc:"where its files lie"`
	Sealed        string `json:"sealed,omitempty" format:"date-time"`
	Since         string `json:"since,omitempty" format:"date-time" doc:"when it came into its state"`
	Quarantine    bool   `json:"quarantine,omitempty" doc:"refused on the catalog's word, while a request may still land"`
	AfterDeadline string `json:"after_deadline,omitempty"`
	WaitsFor      string `json:"waits_for,omitempty"`
	Sends         []send `json:"sends,omitempty" doc:"the requests that may have been sent; only of one commit"`
}

// send is a request that may have been sent.
type send struct {
	RequestID  string `json:"request_id"`
	SnapshotID string `json:"snapshot_id"`
	Head       string `json:"head"`
	Seat       int64  `json:"seat"`
	At         string `json:"at" format:"date-time"`
}

type unitList struct {
	Commits []unit `json:"commits"`
	Next    string `json:"next_page_token,omitempty" doc:"of the next page; none after the last"`
}

func unitOf(u *firnpb.UnitStatus) unit {
	out := unit{
		JobID: u.GetJobId(), Key: u.GetIdempotencyKey(), Table: u.GetTable(), TableUUID: u.GetTableUuid(), Branch: u.GetBranch(),
		State: u.GetState(), Reason: u.GetReason(), Cause: u.GetCause(), Token: u.GetToken(), Digest: u.GetDigest(),
		Rows: u.GetRows(), Files: u.GetFiles(), Bytes: u.GetBytes(), Prefix: u.GetPrefix(),
		Sealed: jobview.Time(u.GetSealedUnixMs()), Since: jobview.Time(u.GetSinceUnixMs()),
		Quarantine: u.GetQuarantine(), AfterDeadline: u.GetAfterDeadline(), WaitsFor: u.GetWaitsFor(),
	}
	for _, r := range u.GetSends() {
		out.Sends = append(out.Sends, send{r.GetRequestId(), r.GetSnapshotId(), r.GetHead(), r.GetSeat(), jobview.Time(r.GetAtUnixMs())})
	}
	return out
}

func (s *Server) listCommits(ctx context.Context, in *struct {
	Paging
	Span
	All   bool   `query:"all" doc:"also those that ended and those of running jobs"`
	State string `query:"state" enum:"sealed,sent,committed,refused,unknown,dropped" doc:"only commits in this state"`
	Table string `query:"table" maxLength:"2000" doc:"only commits to this table, by its full name"`
},
) (*paged[unitList], error) {
	since, until := in.ms()
	resp, err := s.cfg.Scheduler.ListUnits(ctx, &firnpb.ListUnitsRequest{
		All: in.All, Limit: in.Limit, PageToken: in.Token, State: in.State, Table: in.Table, SinceUnixMs: since, UntilUnixMs: until,
	})
	next, all := resp.GetNextPageToken(), ""
	if in.All {
		all = "true"
	}
	out := &paged[unitList]{
		Link: linkTo("/commits", in.Limit, next, in.filters(map[string]string{"all": all, "state": in.State, "table": in.Table})),
		Body: unitList{[]unit{}, next},
	}
	for _, u := range resp.GetUnits() {
		out.Body.Commits = append(out.Body.Commits, unitOf(u))
	}
	return out, err
}

func (s *Server) commits(api huma.API) {
	tags := []string{"commits"}
	register(api, huma.Operation{OperationID: "list-commits", Method: http.MethodGet, Path: "/commits", Summary: "List the commits that wait to be driven, or all", Tags: tags},
		s.listCommits)
	register(api, huma.Operation{OperationID: "get-commit", Method: http.MethodGet, Path: "/commits/{id}", Summary: "Show a job's commit with its requests", Tags: tags},
		func(ctx context.Context, in *jobPath) (*body[unit], error) {
			resp, err := s.cfg.Scheduler.ListUnits(ctx, &firnpb.ListUnitsRequest{JobId: in.ID})
			if err != nil {
				return nil, err
			}
			return &body[unit]{unitOf(resp.GetUnits()[0])}, nil
		})
	register(api, huma.Operation{
		OperationID: "resolve-commit", Method: http.MethodPost, Path: "/commits/{id}/resolve", Tags: tags, Summary: "Find out what became of an unknown commit",
		Description: "Reads the table; nothing is built or sent. The answer is the job as it is known then.",
	}, func(ctx context.Context, in *jobPath) (*body[jobview.Job], error) {
		st, err := s.cfg.Scheduler.DriveUnit(ctx, &firnpb.DriveUnitRequest{JobId: in.ID, Action: "resolve"})
		return &body[jobview.Job]{jobview.JobOf(st)}, err
	})
}
