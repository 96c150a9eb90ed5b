package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobresult"
	"github.com/firn-project/firn/scheduler/jobview"
)

type jobPath struct {
	ID string `path:"id" maxLength:"100" doc:"the job's id"`
}

type jobList struct {
	Jobs []jobview.Job `json:"jobs"`
	Next string        `json:"next_page_token,omitempty" doc:"of the next page; none after the last"`
}

type stageList struct {
	Stages []jobview.Stage `json:"stages"`
}

type cancelAnswer struct {
	Answer string      `json:"answer" enum:"cancelled,commit_in_flight,already_ended" doc:"commit_in_flight: the commit is on its way, and the job goes on"`
	Job    jobview.Job `json:"job"`
}

func (s *Server) jobs(api huma.API) {
	register(api, huma.Operation{OperationID: "list-jobs", Method: http.MethodGet, Path: "/jobs", Summary: "List jobs, newest first", Tags: []string{"jobs"}}, s.listJobs)
	register(api, huma.Operation{OperationID: "get-job", Method: http.MethodGet, Path: "/jobs/{id}", Summary: "Show a job", Tags: []string{"jobs"}}, s.getJob)
	register(api, huma.Operation{OperationID: "list-stages", Method: http.MethodGet, Path: "/jobs/{id}/stages", Summary: "List a job's stages with their attempts, the scheduler's own last", Tags: []string{"jobs"}},
		func(ctx context.Context, in *jobPath) (*body[stageList], error) {
			j, err := s.jobWithTasks(ctx, in.ID)
			return &body[stageList]{stageList{j.Stages}}, err
		})
	register(api, huma.Operation{OperationID: "get-stage", Method: http.MethodGet, Path: "/jobs/{id}/stages/{stage}", Summary: "Show a stage", Tags: []string{"jobs"}}, s.getStage)
	register(api, huma.Operation{
		OperationID: "get-plan", Method: http.MethodGet, Path: "/jobs/{id}/plan", Summary: "Show a job's plan, the root on top", Tags: []string{"jobs"},
		Responses: map[string]*huma.Response{"200": {Description: "the plan", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: "string"}}}}},
	}, s.getPlan)
	register(api, huma.Operation{OperationID: "cancel-job", Method: http.MethodPost, Path: "/jobs/{id}/cancel", Summary: "Stop a job, unless its commit is on its way", Tags: []string{"jobs"}},
		func(ctx context.Context, in *jobPath) (*body[cancelAnswer], error) {
			resp, err := s.cfg.Scheduler.CancelJob(ctx, &firnpb.JobRequest{JobId: in.ID})
			return &body[cancelAnswer]{cancelAnswer{resp.GetAnswer(), jobview.JobOf(resp.GetJob())}}, err
		})
	s.events(api)
}

func (s *Server) listJobs(ctx context.Context, in *struct {
	Paging
	Span
	State string `query:"state" enum:"queued,planning,running,succeeded,failed,cancelled" doc:"only jobs in this state"`
	Table string `query:"table" maxLength:"2000" doc:"only jobs that write to this table, by its full name"`
},
) (*paged[jobList], error) {
	since, until := in.ms()
	resp, err := s.cfg.Scheduler.ListJobs(ctx, &firnpb.ListJobsRequest{
		State: in.State, Limit: in.Limit, PageToken: in.Token, Table: in.Table, SinceUnixMs: since, UntilUnixMs: until,
	})
	next := resp.GetNextPageToken()
	out := &paged[jobList]{
		Link: linkTo("/jobs", in.Limit, next, in.filters(map[string]string{"state": in.State, "table": in.Table})),
		Body: jobList{[]jobview.Job{}, next},
	}
	for _, st := range resp.GetJobs() {
		out.Body.Jobs = append(out.Body.Jobs, jobview.JobOf(st))
	}
	return out, err
}

// maxWait bounds how long a request waits for a job's end.
const maxWait = time.Minute

func (s *Server) getJob(ctx context.Context, in *struct {
	ID   string `path:"id" maxLength:"100" doc:"the job's id"`
	Wait string `query:"wait" example:"30s" doc:"wait so long for the job's end before answering, at most 1m"`
},
) (*body[jobview.Job], error) {
	wait, err := waitOf(in.Wait)
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		if err := s.awaitEnd(ctx, in.ID, wait); err != nil {
			return nil, err
		}
	}
	st, err := s.cfg.Scheduler.GetJob(context.WithoutCancel(ctx), &firnpb.JobRequest{JobId: in.ID})
	return &body[jobview.Job]{jobview.JobOf(st)}, err
}

// waitOf reads how long to wait; 0 when nothing was said.
func waitOf(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxWait {
		return 0, badRequest("wait for a job", fmt.Sprintf("wait is %.40q; want a duration of at most %s, such as 30s", text, maxWait))
	}
	return d, nil
}

// awaitEnd waits for a job's end, for a while, or until ctx ends, as it does when the
// server leaves.
func (s *Server) awaitEnd(ctx context.Context, id string, d time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	err := jobresult.Watch(limited, s.cfg.Scheduler, id, func(*firnpb.JobStatus) error { return nil })
	if limited.Err() != nil || commit.CodeOf(err) == commit.CodeSchedulerClosing {
		return nil
	}
	return err
}

func (s *Server) jobWithTasks(ctx context.Context, id string) (jobview.Job, error) {
	st, err := s.cfg.Scheduler.GetJob(ctx, &firnpb.JobRequest{JobId: id})
	if err != nil {
		return jobview.Job{}, err
	}
	tasks, err := s.cfg.Scheduler.Tasks(ctx, id)
	j := jobview.JobOf(st)
	j.WithTasks(tasks)
	return j, err
}

func (s *Server) getStage(ctx context.Context, in *struct {
	ID    string `path:"id" maxLength:"100" doc:"the job's id"`
	Stage string `path:"stage" maxLength:"20" doc:"a number, or scheduler"`
},
) (*body[jobview.Stage], error) {
	j, err := s.jobWithTasks(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	for _, st := range j.Stages {
		if st.ID == in.Stage {
			return &body[jobview.Stage]{st}, nil
		}
	}
	return nil, &commit.Error{
		Code: commit.CodeStageNotFound, Op: "show stage", Object: in.Stage, Cause: fmt.Errorf("job %s has no such stage", in.ID),
		Hint: "The list of the job's stages is at " + prefix + "/jobs/" + in.ID + "/stages.",
	}
}

type text struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (s *Server) getPlan(ctx context.Context, in *struct {
	ID     string `path:"id" maxLength:"100" doc:"the job's id"`
	Format string `query:"format" enum:"text,dot" default:"text"`
},
) (*text, error) {
	st, err := s.cfg.Scheduler.GetJob(ctx, &firnpb.JobRequest{JobId: in.ID})
	out := &text{"text/plain; charset=utf-8", []byte(st.GetPlanText())}
	if in.Format == "dot" {
		j := jobview.JobOf(st)
		out.Body = []byte(j.Dot())
	}
	return out, err
}
