package answers

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/firnpb"
)

// Limits on what executors send. They are far above what Firn's own send: what is
// kept of a call, in memory and in the journal, must not grow with its sender's ill
// will.
const (
	// MaxExecutors is how many executors may be registered at the same time.
	MaxExecutors = 4096

	maxSlots   = 4096
	maxName    = 512
	maxRunning = 64 << 10
	maxBatch   = 4096

	maxText    = 8 << 10
	maxRejects = 10
	maxReject  = 1 << 10
	// maxCopy is how large the copy of a manifest in a status may be; executors send
	// none above 64 KiB.
	maxCopy = 128 << 10
)

// Registration checks what an executor says of itself.
func Registration(r *firnpb.RegisterRequest) error {
	for what, s := range map[string]string{
		"id": r.GetExecutorId(), "incarnation": r.GetIncarnation(),
		"control address": r.GetControlAddress(), "flight address": r.GetFlightAddress(),
	} {
		if s == "" || len(s) > maxName || !utf8.ValidString(s) {
			return refuse("register executor", r.GetExecutorId(), fmt.Errorf("its %s has %d bytes; want 1 to %d", what, len(s), maxName))
		}
	}
	if r.GetSlots() < 1 || r.GetSlots() > maxSlots || r.GetMemoryBytes() < 0 {
		return refuse("register executor", r.GetExecutorId(), fmt.Errorf("want 1 to %d slots; got %d, and %d bytes of memory", maxSlots, r.GetSlots(), r.GetMemoryBytes()))
	}
	return nil
}

// Heartbeat checks the size of a heartbeat.
func Heartbeat(r *firnpb.HeartbeatRequest) error {
	if n := len(r.GetRunningAttempts()); n > maxRunning {
		return refuse("take the heartbeat of", r.GetExecutorId(), fmt.Errorf("it lists %d attempts; at most %d are taken", n, maxRunning))
	}
	return nil
}

// Statuses checks how many statuses there are, and cuts their texts to what is kept.
// A copy of a manifest that is too large to be one is taken away: the manifest
// itself is read all the same.
func Statuses(r *firnpb.ReportStatusRequest) error {
	if n := len(r.GetStatuses()); n > maxBatch {
		return refuse("take the statuses of", r.GetExecutorId(), fmt.Errorf("%d came at once; at most %d are taken", n, maxBatch))
	}
	for _, s := range r.GetStatuses() {
		if len(s.GetManifestIpc()) > maxCopy {
			s.ManifestIpc = nil
		}
		s.Rejects = s.GetRejects()[:min(len(s.GetRejects()), maxRejects)]
		for i := range s.Rejects {
			s.Rejects[i] = Cut(s.Rejects[i], maxReject)
		}
		if e := s.GetError(); e != nil {
			for _, text := range []*string{&e.Class, &e.Code, &e.Op, &e.Object, &e.Cause, &e.Hint, &e.Tried, &e.Reason} {
				*text = Cut(*text, maxText)
			}
			if l := e.GetLostInput(); l != nil {
				l.AttemptId, l.ExecutorId = Cut(l.GetAttemptId(), maxName), Cut(l.GetExecutorId(), maxName)
			}
		}
	}
	return nil
}

// Cut gives a text of at most most bytes, and says when it was longer.
func Cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + fmt.Sprintf("… (%d bytes more)", len(s)-most)
}

func refuse(op, executor string, cause error) error {
	return &commit.Error{Code: commit.CodeBadRequest, Op: op, Object: Cut(executor, maxName), Cause: cause}
}
