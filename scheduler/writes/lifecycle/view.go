package lifecycle

import (
	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/openwrite"
)

// Job is how the job of a write is.
type Job struct {
	// Ended, Cancelled and Failed are of its state; one that ended as neither has
	// succeeded.
	Ended, Cancelled, Failed bool
	Commit                   commit.CommitState
	// Other: what is committed is another submission of the key.
	Other  bool
	DryRun bool
}

// View is a write in one word, by its record and its job. What is known of the table
// comes first: no state hides it.
func View(s State, j Job) openwrite.State {
	switch j.Commit {
	case commit.CommitCommitted:
		if j.Other && s.Phase != "" {
			return openwrite.StateCommittedByOther
		}
		return openwrite.StateCommitted // or, without a record, its key was before it began
	case commit.CommitUnknown:
		return openwrite.StateUnknown
	case commit.CommitRefused:
		if j.Ended {
			return openwrite.StateRefused
		}
	}
	switch {
	case s.Phase == Expired:
		return openwrite.StateExpired
	case s.Phase == Aborted:
		return openwrite.StateAborted
	case !j.Ended && s.Phase == Sealed:
		return openwrite.StateCommitting
	case !j.Ended:
		return openwrite.StateOpen
	case j.Cancelled:
		return openwrite.StateAborted
	case j.Failed:
		return openwrite.StateFailed
	case j.DryRun:
		return openwrite.StateVerified
	default:
		return openwrite.StateCommitted
	}
}

// Resumption is what a process does with a write whose job ran when an earlier one
// ended.
type Resumption string

// Resumptions.
const (
	// Reopen: it waits for manifests and its commit, as before.
	Reopen Resumption = "reopen"
	// Finish: what it commits is fixed; its job goes on.
	Finish Resumption = "finish"
	// End: it was given up, and its job's end isn't on record.
	End Resumption = "end"
)

// Resume says what to do with a write after a restart.
func Resume(s State) Resumption {
	switch s.Phase {
	case Open:
		return Reopen
	case Sealed:
		return Finish
	default:
		return End
	}
}
