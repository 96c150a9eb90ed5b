package scheduler

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/plan"
)

// Objects that a statement names are reached by the scheduler's own settings, those
// of one source all alike, and never by what came with the plan.
func TestObjectsAreReachedByTheConfiguration(t *testing.T) {
	h := start(t, nil)
	h.s.cfg.ReachSource = func(_ context.Context, uri string) (map[string]string, error) {
		if strings.HasPrefix(uri, "s3://land/") {
			return map[string]string{"s3.region": "r"}, nil
		}
		return nil, nil
	}
	forged := map[string]string{"s3.endpoint": "http://elsewhere"}
	for _, c := range []struct {
		src  plan.Source
		want map[string]string
		code commit.Code
	}{
		{src: plan.Source{Kind: plan.SourceParquet, Patterns: []string{"s3://land/a", "s3://land/b"}}, want: map[string]string{"s3.region": "r"}},
		{src: plan.Source{Kind: plan.SourceCSV, Storage: forged, Files: []plan.SourceFile{{Path: "s3://public/a.csv"}}}},
		{src: plan.Source{Kind: plan.SourceJSON, Storage: forged, Patterns: []string{"/data/a.json"}}},
		{src: plan.Source{Kind: plan.SourceParquet, Patterns: []string{"s3://land/a", "s3://public/b"}}, code: commit.CodeSourceNotAllowed},
	} {
		err := h.s.reachFiles(t.Context(), &c.src)
		if commit.CodeOf(err) != c.code || (c.code == "" && !maps.Equal(c.src.Storage, c.want)) {
			t.Errorf("%v: %v, %v", c.src.Patterns, c.src.Storage, err)
		}
	}
}
