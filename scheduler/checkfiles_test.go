package scheduler

import (
	"context"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

// reached is a catalog whose tables are in a store of their own.
type reached struct{ *fakeCatalogs }

func (reached) Pin(context.Context, commit.TableName) (plan.Pinned, error) {
	return plan.Pinned{Storage: map[string]string{"s3.endpoint": "asked anew"}}, nil
}

// TestFilesOfARestoredPlan: a sealed unit that comes from the journal says nothing of
// its store, so that the table is asked.
func TestFilesOfARestoredPlan(t *testing.T) {
	var endpoint string
	s := &Scheduler{cfg: Config{Catalogs: reached{}, OpenStore: func(storage map[string]string) objstore.Store {
		endpoint = storage["s3.endpoint"]
		return objstore.New(objstore.Config{})
	}}}
	for _, c := range []struct {
		prefix  string
		storage map[string]string
		want    string
	}{
		{"s3://lake/t/j-1/", nil, "asked anew"},
		{"s3://lake/t/j-1/", map[string]string{"s3.endpoint": "planned"}, "planned"},
		{"file:///lake/t/j-1/", nil, ""},
	} {
		must(t, s.checkFiles()(t.Context(), c.storage, commit.Unit{Prefix: c.prefix}))
		if endpoint != c.want {
			t.Errorf("files at %s were looked for at %q, want %q", c.prefix, endpoint, c.want)
		}
	}
}
