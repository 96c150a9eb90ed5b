package committer_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/scheduler/committer"
)

// liar says of the first requests that they were done, and does nothing.
type liar struct {
	commit.Table
	lies *int
}

func (l liar) Send(ctx context.Context, r commit.Request) commit.Answer {
	if *l.lies > 0 {
		*l.lies--
		return commit.Answer{Class: commit.AnswerOK}
	}
	return l.Table.Send(ctx, r)
}

// TestACommitThatWasSaidToBeDone: what a catalog says of a commit is compared with
// what the table shows, and a difference is reported.
func TestACommitThatWasSaidToBeDone(t *testing.T) {
	for _, lies := range []int{0, 1, 2} {
		synctest.Test(t, func(t *testing.T) {
			var log lockedBuffer
			left := lies
			l := newLab(t, func(c *committer.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			l.opened = func(t commit.Table) commit.Table { return liar{t, &left} }
			if _, err := l.com.Run(t.Context(), l.root("j", "k")); err != nil {
				t.Errorf("%d lies: %v", lies, err)
			}
			if rows := l.c.Rows(commit.MainBranch); rows != 2 {
				t.Errorf("%d lies: %d rows", lies, rows)
			}
			if n := strings.Count(log.String(), "the table doesn't show it"); n != lies {
				t.Errorf("%d lies, reported %d times:\n%s", lies, n, log.String())
			}
		})
	}
}
