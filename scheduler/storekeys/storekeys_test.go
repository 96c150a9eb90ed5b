package storekeys_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
	"github.com/firn-project/firn/scheduler/storekeys"
)

// minter makes keys with the ids k1, k2, …
type minter struct {
	ttl     time.Duration
	warning string
	refuse  error

	mu     sync.Mutex
	scopes []objstore.Scope
	stores []storekeys.Store
}

func (m *minter) Scoping(context.Context, storekeys.Store) (bool, string, error) {
	return true, m.warning, m.refuse
}

func (m *minter) Mint(_ context.Context, s storekeys.Store, scope objstore.Scope) (objstore.Keys, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scopes, m.stores = append(m.scopes, scope), append(m.stores, s)
	return objstore.Keys{AccessKeyID: fmt.Sprintf("k%d", len(m.scopes)), Expires: time.Now().Add(m.ttl)}, nil
}

const secret = "canary-of-the-store"

func insert(files ...string) plan.Node {
	storage := map[string]string{
		objstore.KeyEndpoint: "http://127.0.0.1:9", objstore.KeyAccessKeyID: "id-" + secret, objstore.KeySecretKey: secret, objstore.KeySessionToken: secret,
		"token": secret,
	}
	src := plan.Source{Kind: plan.SourceTable, Table: commit.TableName{Catalog: "lake", Name: "in"}, Storage: storage}
	for _, f := range files {
		src.Files = append(src.Files, plan.SourceFile{Path: f, PositionDeletes: []string{"s3://b/in/deletes"}})
	}
	if len(src.Files) == 1 {
		src.Files[0].Vector = &plan.DeletionVector{File: "s3://b/in/vector"}
	}
	return &plan.Write{
		Input:   &plan.Query{Sources: []plan.Source{src}},
		Context: plan.WriteContext{Table: commit.TableName{Catalog: "lake", Name: "out"}, Prefix: "s3://b/out/data/j-1/", Storage: storage},
	}
}

// TestPlanWithoutKeys: what goes to executors has no keys, and what they ask for is
// scoped to what the job writes and reads.
func TestPlanWithoutKeys(t *testing.T) {
	m := &minter{ttl: time.Hour, warning: "not scoped"}
	top := insert("s3://b/in/a.parquet")
	scoped, job, warnings, err := storekeys.Scope(t.Context(), m, top)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := plan.Encode(scoped)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), secret) {
		t.Errorf("keys travel with the plan: %s", raw)
	}
	if before, _ := plan.Encode(top); !strings.Contains(string(before), secret) {
		t.Error("the scheduler's own plan has lost its keys")
	}
	if len(warnings) != 1 {
		t.Errorf("warnings %q; want one for both uses of the catalog", warnings)
	}
	w := scoped.(*plan.Write)
	for _, name := range []string{w.Context.Storage[objstore.KeyCredential], w.Input.(*plan.Query).Sources[0].Storage[objstore.KeyCredential]} {
		if _, err := job.Keys(t.Context(), name, ""); err != nil {
			t.Error(err)
		}
	}
	want := "[{Write:s3://b/out/data/j-1/ Read:[] List:[]} {Write: Read:[s3://b/in/a.parquet s3://b/in/deletes s3://b/in/vector] List:[]}]"
	if got := fmt.Sprintf("%+v", m.scopes); got != want {
		t.Errorf("scopes %s\nwant   %s", got, want)
	}
	if _, err := job.Keys(t.Context(), "w1", ""); err == nil {
		t.Error("keys of a name that isn't in the plan were given")
	}
}

// TestNoMinterNoKeys: without one nothing secret travels either.
func TestNoMinterNoKeys(t *testing.T) {
	scoped, job, _, err := storekeys.Scope(t.Context(), nil, insert("s3://b/in/a.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := plan.Encode(scoped); strings.Contains(string(raw), secret) {
		t.Errorf("keys travel with the plan: %s", raw)
	}
	if _, err := job.Keys(t.Context(), "w0", ""); err == nil {
		t.Error("keys were given")
	}
}

func TestStoreThatCantScope(t *testing.T) {
	no := errors.New("neither STS nor vended")
	if _, _, _, err := storekeys.Scope(t.Context(), &minter{refuse: no}, insert("s3://b/in/a")); !errors.Is(err, no) {
		t.Errorf("planned all the same: %v", err)
	}
}

// TestManyInputs: a policy has little room; what it names holds all the files, and
// no more than the directories that they're in where these fit.
func TestManyInputs(t *testing.T) {
	for _, c := range []struct {
		files int
		dir   func(int) string
		want  string
	}{
		{5, func(int) string { return "s3://b/in/data" }, "s3://b/in/data/f-0"},
		{5000, func(int) string { return "s3://b/in/data" }, "s3://b/in/data/*"},
		{5000, func(i int) string { return fmt.Sprintf("s3://b/in/data/day=%04d", i) }, "s3://b/in/data/*"},
	} {
		var files []string
		for i := range c.files {
			files = append(files, fmt.Sprintf("%s/f-%d", c.dir(i), i))
		}
		m := &minter{ttl: time.Hour}
		src := insert(files...)
		src.(*plan.Write).Input.(*plan.Query).Sources[0].Files[0].PositionDeletes = nil
		for i := range src.(*plan.Write).Input.(*plan.Query).Sources[0].Files {
			src.(*plan.Write).Input.(*plan.Query).Sources[0].Files[i].PositionDeletes = nil
		}
		_, job, _, err := storekeys.Scope(t.Context(), m, src)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Keys(t.Context(), "r0", ""); err != nil {
			t.Fatal(err)
		}
		if got := m.scopes[0].Read; got[0] != c.want || len(got) > 5 {
			t.Errorf("%d files: %d names, the first is %s; want %s", c.files, len(got), got[0], c.want)
		}
	}
}

// TestKeysAreShared: keys are made once for all executors that ask, and again when
// half of their time has gone or the store has ended them; but not without end for
// one that says so again and again.
func TestKeysAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &minter{ttl: 15 * time.Minute}
		_, job, _, err := storekeys.Scope(t.Context(), m, insert("s3://b/in/a"))
		if err != nil {
			t.Fatal(err)
		}
		want := func(expired, id string) {
			t.Helper()
			if k, err := job.Keys(t.Context(), "w0", expired); err != nil || k.AccessKeyID != id {
				t.Errorf("keys %s, %v; want %s", k.AccessKeyID, err, id)
			}
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { want("", "k1") })
		}
		wg.Wait()
		time.Sleep(7 * time.Minute)
		want("", "k1")
		time.Sleep(time.Minute)
		want("", "k2")
		want("k1", "k2")
		for range 100 {
			want("k2", "k2") // as new as that they can't have ended
		}
		time.Sleep(2 * time.Second)
		want("k2", "k3")
	})
}

// TestProbe: the look at files gets keys for what its patterns stand for.
func TestProbe(t *testing.T) {
	m := &minter{ttl: time.Hour}
	src := plan.Source{Kind: plan.SourceParquet, Patterns: []string{"s3://b/landing/2026-*.parquet", "s3://b/landing/one.parquet"}, Storage: map[string]string{
		objstore.KeyEndpoint: "http://127.0.0.1:9", objstore.KeyAccessKeyID: "id", objstore.KeySecretKey: secret,
	}}
	got, err := storekeys.ScopeProbe(t.Context(), m, []plan.Source{src})
	if err != nil {
		t.Fatal(err)
	}
	if s := got[0].Storage; s[objstore.KeySecretKey] == secret || s[objstore.KeyAccessKeyID] != "k1" {
		t.Errorf("the probe has the keys of %q", s[objstore.KeyAccessKeyID])
	}
	want := "[{Write: Read:[s3://b/landing/2026-* s3://b/landing/one.parquet] List:[s3://b/landing/2026-]}]"
	if s := fmt.Sprintf("%+v", m.scopes); s != want {
		t.Errorf("scopes %s\nwant   %s", s, want)
	}
}
