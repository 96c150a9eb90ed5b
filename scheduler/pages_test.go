package scheduler

import (
	"slices"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Pages of jobs have each job once, in one order, while others come and end.
func TestPagesOfJobs(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	var want []string
	for range 5 {
		want = append(want, h.run(&firnpb.ExecuteRequest{Sql: insert}).GetJobId())
	}
	slices.Reverse(want)
	var got []string
	r := &firnpb.ListJobsRequest{Limit: 2, Table: "mem.ns.t"}
	for {
		resp, err := h.client.ListJobs(t.Context(), r)
		must(t, err)
		for _, j := range resp.GetJobs() {
			got = append(got, j.GetJobId())
		}
		if r.PageToken = resp.GetNextPageToken(); r.GetPageToken() == "" {
			break
		}
		h.run(&firnpb.ExecuteRequest{Sql: insert})
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	all, err := h.client.ListJobs(t.Context(), &firnpb.ListJobsRequest{})
	must(t, err)
	newest := all.GetJobs()[0]
	for name, c := range map[string]struct {
		r    *firnpb.ListJobsRequest
		want int
	}{
		"since the newest":   {&firnpb.ListJobsRequest{SinceUnixMs: newest.GetSubmittedUnixMs() + 1}, 0},
		"until the newest":   {&firnpb.ListJobsRequest{UntilUnixMs: newest.GetSubmittedUnixMs() + 1}, len(all.GetJobs())},
		"another table":      {&firnpb.ListJobsRequest{Table: "mem.ns.other"}, 0},
		"running":            {&firnpb.ListJobsRequest{State: "running", Limit: 1}, 0},
		"succeeded, paged":   {&firnpb.ListJobsRequest{State: "succeeded", Limit: 3}, 3},
		"exactly all a page": {&firnpb.ListJobsRequest{Limit: uint32(len(all.GetJobs()))}, len(all.GetJobs())},
	} {
		resp, err := h.client.ListJobs(t.Context(), c.r)
		if err != nil || len(resp.GetJobs()) != c.want || (resp.GetNextPageToken() != "") != (name == "succeeded, paged") {
			t.Errorf("%s: %d jobs, next %q, %v", name, len(resp.GetJobs()), resp.GetNextPageToken(), err)
		}
	}
	for _, r := range []*firnpb.ListJobsRequest{{PageToken: "x"}, {SinceUnixMs: -1}, {SinceUnixMs: 5, UntilUnixMs: 5}} {
		_, err := h.client.ListJobs(t.Context(), r)
		wantCode(t, wire.FromStatus(err), commit.CodeBadRequest, "list")
	}
}

func TestPagesOfCommits(t *testing.T) {
	h := start(t, nil)
	startExecutor(t, h.s, executorOptions{id: "e1"})
	var want, got []string
	for range 3 {
		want = append(want, h.run(&firnpb.ExecuteRequest{Sql: insert}).GetJobId())
	}
	r := &firnpb.ListUnitsRequest{All: true, Limit: 2, Table: "mem.ns.t", State: "committed"}
	for {
		resp, err := h.client.ListUnits(t.Context(), r)
		must(t, err)
		for _, u := range resp.GetUnits() {
			got = append(got, u.GetJobId())
		}
		if r.PageToken = resp.GetNextPageToken(); r.GetPageToken() == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	for _, r := range []*firnpb.ListUnitsRequest{{All: true, State: "unknown"}, {All: true, Table: "mem.ns.other"}, {All: true, UntilUnixMs: 5}, {}} {
		if resp, err := h.client.ListUnits(t.Context(), r); err != nil || len(resp.GetUnits()) != 0 {
			t.Errorf("%v: %v, %v", r, resp, err)
		}
	}
	_, err := h.client.ListUnits(t.Context(), &firnpb.ListUnitsRequest{PageToken: "x"})
	wantCode(t, wire.FromStatus(err), commit.CodeBadRequest, "list")
}
