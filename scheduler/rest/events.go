package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/scheduler/jobresult"
	"github.com/firn-project/firn/scheduler/jobview"
)

const (
	// keepAlive is how often a stream without news says that it lives.
	keepAlive = 15 * time.Second
	// sendTime bounds one write to a stream by default.
	sendTime = 10 * time.Second
)

func (s *Server) events(api huma.API) {
	register(api, huma.Operation{
		OperationID: "watch-job", Method: http.MethodGet, Path: "/jobs/{id}/events", Tags: []string{"jobs"}, Summary: "Watch a job until it has ended",
		Description: "Server-sent events. Each event `status` has the job as get-job shows it, with its revision as id; changes that come fast are told together. The event `end` is the last one and has no data. " +
			"Who comes again with Last-Event-ID gets what is newer than that.",
		Responses: map[string]*huma.Response{"200": {
			Description: "the stream", Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: "string"}}},
		}},
	}, func(ctx context.Context, in *struct {
		ID   string `path:"id" maxLength:"100" doc:"the job's id"`
		Last string `header:"Last-Event-ID" maxLength:"40" doc:"the id of the last event that the caller has; browsers send it when they connect again"`
	},
	) (*huma.StreamResponse, error) {
		// So that an unknown job is an answer and not a stream.
		if _, err := s.cfg.Scheduler.GetJob(ctx, &firnpb.JobRequest{JobId: in.ID}); err != nil {
			return nil, err
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			r, w := humago.Unwrap(hc)
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Cache-Control", "no-store")
			s.stream(r.Context(), w, in.ID, in.Last)
		}}, nil
	})
}

// stream writes a job's changes until it has ended or somebody leaves. Each status is
// whole, so that going on after the one with the id last is leaving that one out.
func (s *Server) stream(ctx context.Context, w http.ResponseWriter, id, last string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	statuses := make(chan *firnpb.JobStatus)
	watched := make(chan error, 1)
	go func() {
		watched <- jobresult.Watch(ctx, s.cfg.Scheduler, id, func(st *firnpb.JobStatus) error {
			if strconv.FormatUint(st.GetRevision(), 10) == last {
				return nil
			}
			select {
			case statuses <- st:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		close(statuses)
	}()
	rc := http.NewResponseController(w)
	write := func(text string) bool {
		if rc.SetWriteDeadline(time.Now().Add(s.cfg.sendTime())) != nil {
			return false
		}
		_, err := fmt.Fprint(w, text)
		return err == nil && rc.Flush() == nil
	}
	t := time.NewTicker(keepAlive)
	defer t.Stop()
	// The head goes out at once, also when there's no news.
	for open := write("retry: 2000\n\n"); open; {
		select {
		case st, more := <-statuses:
			if !more {
				if <-watched == nil {
					write("event: end\ndata: {}\n\n")
				}
				return
			}
			raw, err := json.Marshal(jobview.JobOf(st))
			open = err == nil && write(fmt.Sprintf("id: %d\nevent: status\ndata: %s\n\n", st.GetRevision(), raw))
		case <-t.C:
			open = write(": alive\n\n")
		}
	}
	cancel()
	for range statuses { // until the watcher has left
	}
}
