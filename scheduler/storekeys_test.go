package scheduler

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/wire"
	"github.com/firn-project/firn/internal/wire/firnpb"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/graph"
	"github.com/firn-project/firn/scheduler/storekeys"
)

type fakeMinter struct{}

func (fakeMinter) Scoping(context.Context, storekeys.Store) (bool, string, error) {
	return true, "keys of this store aren't scoped", nil
}

func (fakeMinter) Mint(_ context.Context, _ storekeys.Store, scope objstore.Scope) (objstore.Keys, error) {
	return objstore.Keys{AccessKeyID: "for " + scope.Write, SecretAccessKey: "s", SessionToken: "t", Expires: time.Now().Add(time.Hour)}, nil
}

// TestStoreKeysAreForWhoRunsTheJob: an executor gets a job's keys while it runs an
// attempt of it; not another one, not for what the plan doesn't name, not after the
// attempts have ended or were cancelled.
func TestStoreKeysAreForWhoRunsTheJob(t *testing.T) {
	const secret = "secret-of-the-catalogs-store"
	h := start(t, func(c *Config) { c.StoreKeys = fakeMinter{} })
	h.catalogs.set(func() {
		h.catalogs.storage = map[string]string{objstore.KeyEndpoint: "http://127.0.0.1:9", objstore.KeyAccessKeyID: "id", objstore.KeySecretKey: secret}
	})
	hold := newStop()
	var e1 *fakeExecutor
	e1 = startExecutor(t, h.s, executorOptions{id: "e1", slots: parts, task: func(d *firnpb.TaskDefinition, n plan.Node) *firnpb.TaskStatus {
		hold.wait()
		return e1.succeed(d, n)
	}})
	id := h.submit(&firnpb.ExecuteRequest{Sql: insert})
	d := receive(t, e1.launched, "task")
	e2 := startExecutor(t, h.s, executorOptions{id: "e2"})
	ask := func(e *fakeExecutor, job, name string) (*firnpb.StoreKeysResponse, error) {
		return e.sched.StoreKeys(t.Context(), &firnpb.StoreKeysRequest{ExecutorId: e.id, Incarnation: e.incarnation, JobId: job, Credential: name})
	}
	if strings.Contains(string(d.GetFragment()), secret) {
		t.Errorf("the catalog's keys travel with the task: %s", d.GetFragment())
	}
	got, err := ask(e1, id, "w0")
	must(t, err)
	if got.GetAccessKeyId() != "for mem://t/data/"+id+"/" || got.GetTtlMs() < 3590*1000 || got.GetTtlMs() > 3600*1000 {
		t.Errorf("%v", got)
	}
	if text := h.get(id).GetPlanText(); !strings.Contains(text, "warning: keys of this store aren't scoped") {
		t.Errorf("no warning in the plan: %s", text)
	}
	refused := func(what string, e *fakeExecutor, job, name string) {
		t.Helper()
		if got, err := ask(e, job, name); commit.CodeOf(wire.FromStatus(err)) != commit.CodeStoreKeysRefused {
			t.Errorf("%s: %v %v", what, got, err)
		}
	}
	refused("an executor without an attempt", e2, id, "w0")
	refused("a job that isn't there", e1, "j-none", "w0")
	refused("a name that isn't in the plan", e1, id, "w1")
	got, err = e1.sched.StoreKeys(t.Context(), &firnpb.StoreKeysRequest{ExecutorId: "e1", Incarnation: "another", JobId: id, Credential: "w0"})
	if err != nil || got.GetKnown() || got.GetAccessKeyId() != "" {
		t.Errorf("another incarnation: %v %v", got, err)
	}
	close(hold.release)
	wantState(t, h.wait(id), graph.Succeeded, commit.CommitCommitted)
	refused("after the end", e1, id, "w0")
}
