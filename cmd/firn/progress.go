package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/firn-project/firn/client"
)

const (
	// terminalEvery and plainEvery are how often progress is shown.
	terminalEvery = 200 * time.Millisecond
	plainEvery    = 10 * time.Second
)

// watch waits for a job and shows its progress on stderr: one line that changes
// in a terminal, else a line every ten seconds.
func (a *app) watch(ctx context.Context, job *client.Job) (client.JobStatus, error) {
	if a.quiet || a.noProgress {
		return job.Wait(ctx)
	}
	type end struct {
		status client.JobStatus
		err    error
	}
	// The waiting is in a goroutine of its own, since progress is also shown
	// while nothing changes. It ends with ctx, and watch doesn't return before.
	events, ended := make(chan client.JobStatus, 1), make(chan end, 1)
	go func() {
		status, err := job.WaitFunc(ctx, func(s client.JobStatus) {
			select {
			case <-events: // nobody has looked at the last one
			default:
			}
			events <- s
		})
		ended <- end{status, err}
	}()
	terminal := isTerminal(a.stderr)
	every := plainEvery
	if terminal {
		every = terminalEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last client.JobStatus
	for {
		select {
		case last = <-events:
		case <-tick.C:
			a.showProgress(terminal, last)
		case e := <-ended:
			if terminal {
				_, _ = fmt.Fprint(a.stderr, "\r\x1b[K")
			}
			return e.status, e.err
		}
	}
}

func (a *app) showProgress(terminal bool, s client.JobStatus) {
	switch {
	case s.ID == "":
	case terminal:
		_, _ = fmt.Fprint(a.stderr, "\r\x1b[K"+progressLine(s, time.Now()))
	default:
		_, _ = fmt.Fprintln(a.stderr, "firn: "+progressLine(s, time.Now()))
	}
}

// progressLine is a job's progress in a line.
func progressLine(s client.JobStatus, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "job %s %s %.0f%%", s.ID, s.State, s.Percent)
	for _, st := range s.Stages {
		switch {
		case st.State != "running":
		case st.ID == "scheduler":
			fmt.Fprintf(&b, " | commit: attempt %d", max(1, st.Attempts))
			if st.Conflicts > 0 {
				fmt.Fprintf(&b, " after %s", count(st.Conflicts, "conflict"))
			}
		default:
			fmt.Fprintf(&b, " | stage %s: %d/%d tasks", st.ID, st.Done, st.Tasks)
			if st.Rows > 0 {
				fmt.Fprintf(&b, ", %s rows", thousands(st.Rows))
			}
			if st.Bytes > 0 {
				fmt.Fprintf(&b, ", %s", sizeText(st.Bytes))
			}
		}
	}
	fmt.Fprintf(&b, " | %s", s.Duration(now).Truncate(100*time.Millisecond))
	return b.String()
}

// isTerminal says whether a person is at the other end.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}
