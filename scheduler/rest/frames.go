package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobview"
)

// frame is a cached frame.
type frame struct {
	ID        string   `json:"frame_id"`
	State     string   `json:"state" enum:"building,ready,lost,rebuilding" doc:"lost: pieces of it are built again when it is used"`
	SQL       string   `json:"sql"`
	JobID     string   `json:"job_id" doc:"the job that built it first"`
	Rows      int64    `json:"rows"`
	Bytes     int64    `json:"bytes"`
	Pieces    uint32   `json:"pieces"`
	Lost      uint32   `json:"lost" doc:"pieces that aren't there"`
	Executors []string `json:"executors" doc:"those that have pieces"`
	Users     uint32   `json:"users" doc:"how many jobs, and other frames, read it"`
	TTL       int64    `json:"ttl_ms" doc:"how long it is kept without being used"`
	Created   string   `json:"created,omitempty" format:"date-time"`
	Expires   string   `json:"expires,omitempty" format:"date-time" doc:"unless it is used"`
	Repeats   bool     `json:"repeats" doc:"lost pieces are built again alone; else all of the frame is"`
}

type frameList struct {
	Frames []frame `json:"frames"`
	Next   string  `json:"next_page_token,omitempty" doc:"of the next page; none after the last"`
}

func frameOf(f *firnpb.FrameStatus) frame {
	return frame{
		ID: f.GetFrameId(), State: f.GetState(), SQL: f.GetSql(), JobID: f.GetJobId(), Rows: f.GetRows(), Bytes: f.GetBytes(),
		Pieces: f.GetPieces(), Lost: f.GetLost(), Executors: append([]string{}, f.GetExecutors()...), Users: f.GetUsers(), TTL: f.GetTtlMs(),
		Created: jobview.Time(f.GetCreatedUnixMs()), Expires: jobview.Time(f.GetExpiresUnixMs()), Repeats: f.GetRepeats(),
	}
}

func (s *Server) listFrames(ctx context.Context, in *struct{ Paging }) (*paged[frameList], error) {
	resp, err := s.cfg.Scheduler.ListFrames(ctx, &firnpb.ListFramesRequest{})
	if err != nil {
		return nil, err
	}
	all := slices.SortedFunc(slices.Values(resp.GetFrames()), func(a, b *firnpb.FrameStatus) int {
		return strings.Compare(a.GetFrameId(), b.GetFrameId())
	})
	page, next, err := named(all, (*firnpb.FrameStatus).GetFrameId, in.Paging)
	out := &paged[frameList]{Link: linkTo("/frames", in.Limit, next, nil), Body: frameList{[]frame{}, next}}
	for _, f := range page {
		out.Body.Frames = append(out.Body.Frames, frameOf(f))
	}
	return out, err
}

func (s *Server) frames(api huma.API) {
	register(api, huma.Operation{OperationID: "list-frames", Method: http.MethodGet, Path: "/frames", Summary: "List the cached frames", Tags: []string{"frames"}},
		s.listFrames)
	register(api, huma.Operation{OperationID: "release-frame", Method: http.MethodDelete, Path: "/frames/{id}", Summary: "Release a cached frame: its rows go when the jobs that read them have ended", Tags: []string{"frames"}},
		func(ctx context.Context, in *struct {
			ID string `path:"id" maxLength:"200"`
		},
		) (*body[frame], error) {
			f, err := s.cfg.Scheduler.ReleaseFrame(ctx, &firnpb.FrameRequest{FrameId: in.ID})
			return &body[frame]{frameOf(f)}, err
		})
}
