package committer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/committer"
)

// The files themselves are looked at before the seal. What isn't as described is
// refused; a store that can't be reached is no refusal; what was sent is past it.
func TestFilesAreLookedAtBeforeTheSeal(t *testing.T) {
	var looked atomic.Int64
	var answer error
	rec := &recorder{}
	l := newLab(t, func(c *committer.Config) {
		c.Recorder = rec
		c.CheckFiles = func(_ context.Context, storage map[string]string, u commit.Unit) error {
			if looked.Add(1); len(rec.log) > 0 || storage["k"] != "v" || u.Files.Len() != 1 {
				t.Errorf("after %v, with %v, for %d files", rec.log, storage, u.Files.Len())
			}
			return answer
		}
	})
	run := func(change func(*committer.Root)) (commit.Report, error) {
		r := l.root("j1", "k")
		r.Plan.Target.Storage = map[string]string{"k": "v"}
		if change != nil {
			change(&r)
		}
		return l.com.Run(t.Context(), r)
	}
	answer = commit.Misfit(commit.Unit{}, "f", "files are there", "it isn't")
	if rep, err := run(nil); rep.State != commit.CommitRefused || commit.CodeOf(err) != commit.CodeVerification {
		t.Errorf("%+v %v", rep, err)
	}
	answer = errors.New("the store is down")
	if rep, err := run(nil); rep.State != commit.CommitNone || commit.ReasonOf(err) != "" || commit.CodeOf(err) != commit.CodeStorage {
		t.Errorf("%+v %v", rep, err)
	}
	if l.c.Sends() != 0 || looked.Load() != 2 {
		t.Errorf("%d sends, %d looks", l.c.Sends(), looked.Load())
	}
	rep, err := run(func(r *committer.Root) {
		r.Sent = []commit.Request{{ID: "r", Branch: "main", Tokens: []commit.Token{commit.NewToken(commit.TokenInput{Key: "k", TableUUID: l.c.UUID(), Branch: "main"})}}}
	})
	if err != nil || rep.State != commit.CommitCommitted || looked.Load() != 2 {
		t.Errorf("%+v %v, %d looks", rep, err, looked.Load())
	}
}
