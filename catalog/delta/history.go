package delta

import (
	"context"
	"slices"

	"github.com/firn-project/firn/commit"
)

// History reads what the commits up to the snapshot say of themselves, the newest
// first, at most so many, and no further back than to the first that is gone.
func (s *Snapshot) History(ctx context.Context, most int) ([]CommitSummary, error) {
	out := slices.Clone(s.commits)
	slices.Reverse(out)
	next := s.Version()
	if n := len(out); n > 0 {
		next = out[n-1].Version - 1
	}
	for ; next >= 0 && len(out) < most; next-- {
		st := state{txns: map[string]Txn{}, domains: map[string]DomainMetadata{}}
		err := s.log.applyCommit(ctx, &st, next)
		if isNotFound(err) {
			break
		}
		if err != nil {
			return nil, newError(commit.CodeStorage, "read the history of", s.log.root, err)
		}
		out = append(out, st.commits...)
	}
	return out[:min(len(out), most)], nil
}
