package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/wire/openwrite"
)

// WriteState is how a write is, in one word.
type WriteState string

// States of a write. The table has exactly the files of the sealed handles when it
// is committed (and, in a status without a SealDigest, what was committed under the key
// before the write could open); whether it has is open while it is committing or
// unknown; it has nothing of the write in all other states.
const (
	WriteOpen       WriteState = "open"
	WriteCommitting WriteState = "committing"
	WriteCommitted  WriteState = "committed"
	// WriteCommittedByOther: the table has another submission of the key, once. The
	// handles of that one aren't known here, and nothing counts of this write's that
	// isn't in it too.
	WriteCommittedByOther WriteState = "committed_by_other"

	WriteRefused WriteState = "refused"
	WriteUnknown WriteState = "unknown"
	WriteFailed  WriteState = "failed"
	WriteAborted WriteState = "aborted"
	WriteExpired WriteState = "expired"
	// WriteVerified is a dry run that would have been committed.
	WriteVerified WriteState = "verified"
)

// Handle stands for one manifest that was handed in. Drivers collect the handles of
// the attempts that won.
type Handle string

// WriteStatus is what is known of a write at one moment.
type WriteStatus struct {
	ID, Key string
	State   WriteState
	// Commit is the job's own field.
	Commit commit.CommitState
	// Manifests counts the attempts that handed one in while the write is open.
	Manifests int
	// Sealed are the handles that the write was sealed with, sorted; nil while it
	// isn't sealed, or another submission of the key was committed. SealDigest is
	// theirs, and empty then.
	Sealed     []Handle
	SealDigest string
	// WaitsFor is what a commit that is under way waits for, in words.
	WaitsFor string
	// Expires is when an open write expires unless it is renewed.
	Expires time.Time
	// Report is what became of the table, once that is known.
	Report *commit.Report
	// Err says why nothing was committed, or isn't known.
	Err error
}

// SealedError is the error of a Commit when other handles than its own are what the
// write's key stands for: the write was sealed with them before, or another submission
// of the key, as by another scheduler, is in the table. Nothing of this Commit's handles
// counts that isn't among those.
type SealedError struct {
	// Status has the handles that the write was sealed with, and what became of
	// them. Its Sealed is nil and its SealDigest empty when another submission of the
	// key was committed: the handles of that one aren't known here.
	Status WriteStatus
}

// Error implements error.
func (e *SealedError) Error() string {
	if e.Status.SealDigest == "" {
		return fmt.Sprintf("write %s isn't committed: another submission of its key is in the table, with handles that aren't known here", e.Status.ID)
	}
	return fmt.Sprintf("write %s was sealed with %d other handles before, and is %s", e.Status.ID, len(e.Status.Sealed), e.Status.State)
}

func writeStatusOf(s openwrite.Status) (WriteStatus, error) {
	const op = "read the status of a write"
	if s.WriteID == "" || len(s.WriteID) > maxID {
		return WriteStatus{}, badAnswer(op, errors.New("it has no id"))
	}
	out := WriteStatus{
		ID: s.WriteID, Key: s.Key, State: WriteState(s.State), Commit: commit.CommitState(s.Commit), Manifests: s.Manifests,
		SealDigest: s.SealDigest, WaitsFor: s.WaitsFor, Err: s.Error.Err(),
	}
	switch out.State {
	case WriteOpen, WriteCommitting, WriteCommitted, WriteCommittedByOther, WriteRefused, WriteUnknown, WriteFailed, WriteAborted, WriteExpired, WriteVerified:
	default:
		return out, badAnswer(op, fmt.Errorf("the state %.40q isn't known", s.State))
	}
	for _, h := range s.SealedHandles {
		out.Sealed = append(out.Sealed, Handle(h))
	}
	if s.Expires != nil {
		out.Expires = *s.Expires
	}
	if r := s.Report; r != nil {
		out.Report = &commit.Report{
			JobID: s.WriteID, Key: s.Key, Table: tableNameOf(r.Table), Format: r.Format, Operation: commit.Operation(r.Operation),
			State: commit.CommitState(r.Commit), Deduplicated: r.Deduplicated, RolledBack: r.RolledBack, OtherSubmission: r.OtherSubmission,
			Rows: r.Rows, Files: r.Files, Bytes: r.Bytes, SnapshotID: r.SnapshotID, Attempts: int(r.Attempts), Conflicts: int(r.Conflicts),
		}
		if r.Committed != "" {
			at, err := time.Parse(time.RFC3339Nano, r.Committed)
			if err != nil {
				return out, badAnswer(op, err)
			}
			out.Report.CommittedAt = at.UTC()
		}
	}
	return out, nil
}

// settled says whether there is nothing more to wait for.
func (s WriteStatus) settled() bool { return s.State != WriteCommitting }

// report is what a commit answers: that of the scheduler, or one that says no more
// than the state does.
func (s WriteStatus) report() commit.Report {
	r := commit.Report{JobID: s.ID, Key: s.Key}
	if s.Report != nil {
		r = *s.Report
	}
	switch s.State {
	case WriteCommitted, WriteCommittedByOther:
		r.State = commit.CommitCommitted
	case WriteRefused:
		r.State = commit.CommitRefused
	case WriteCommitting, WriteUnknown:
		r.State = commit.CommitUnknown
	default:
		r.State = commit.CommitNone
	}
	return r
}

// outcome is the error that a write's commit ends with: nil when it is committed,
// or when a dry run would be.
func (s WriteStatus) outcome() error {
	switch s.State {
	case WriteCommitted, WriteVerified:
		return nil
	case WriteCommittedByOther:
		return &SealedError{Status: s}
	case WriteUnknown:
		if commit.KindOf(s.Err) == commit.KindUnknown {
			return s.Err
		}
		cause := s.Err
		if cause == nil {
			cause = errors.New("the outcome of its commit isn't known yet")
		}
		return &commit.Error{
			Code: commit.CodeUnknown, Op: "commit write", Object: s.ID, Cause: cause,
			Tried: "All files are kept, and the scheduler goes on finding out.",
			Hint:  "Ask again under the same key; don't write the rows under another one.",
		}
	case WriteOpen, WriteAborted, WriteExpired:
		if s.Err != nil {
			return s.Err
		}
		return &commit.Error{
			Code: commit.CodeWriteNotOpen, Op: "commit write", Object: s.ID, Cause: fmt.Errorf("it is %s", s.State),
			Tried: "nothing was committed", Hint: "Begin the write again under the same key.",
		}
	}
	if s.Err != nil {
		return s.Err
	}
	return badAnswer("commit write "+s.ID, fmt.Errorf("it is %s and without a reason", s.State))
}
