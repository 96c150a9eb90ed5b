package rest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/firn-project/firn/internal/httpserve"
)

// checkTime bounds how long a check waits.
const checkTime = 2 * time.Second

// health says that the process runs.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	httpserve.JSON(w, http.StatusOK, map[string]any{"status": "ok"})
}

// ready says whether statements would be run, and what is missing.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), checkTime)
	defer cancel()
	status, checks := http.StatusOK, map[string]string{"scheduler": "ok"}
	n, err := s.cfg.Scheduler.Ready(ctx)
	if err != nil {
		status, checks["scheduler"] = http.StatusServiceUnavailable, err.Error()
	}
	checks["executors"] = fmt.Sprintf("%d of %d", n, s.cfg.MinExecutors)
	if n < s.cfg.MinExecutors {
		status = http.StatusServiceUnavailable
	}
	httpserve.JSON(w, status, map[string]any{"ready": status == http.StatusOK, "checks": checks})
}
