//go:build integration

package integration_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/firn-project/firn/integration/process"
	"github.com/firn-project/firn/integration/servers"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// lifetime is how old keys of executors may get at the store, whatever STS said.
const lifetime = 1200 * time.Millisecond

// slowness is what the store takes for each request of executors, so that the INSERT
// takes several lifetimes on a fast machine too.
const slowness = 60 * time.Millisecond

// keyAges refuses keys that were first used longer ago than lifetime, all but the
// scheduler's own and those of the look at the files, which are for that alone: in S3's
// words and in MinIO's by turns.
type keyAges struct {
	own string

	mu      sync.Mutex
	look    string
	first   map[string]time.Time
	expired map[string]int
}

func (k *keyAges) fault(r storetest.Request) storetest.Fault {
	if r.Key == k.own || r.Key == "" {
		return storetest.None
	}
	if k.isLook(r.Key) {
		return storetest.None
	}
	<-time.After(slowness)
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.first[r.Key]; !ok {
		k.first[r.Key] = time.Now()
	}
	if time.Since(k.first[r.Key]) < lifetime {
		return storetest.None
	}
	k.expired[r.Key]++
	if len(k.expired)%2 == 0 {
		return storetest.Forgotten
	}
	return storetest.Expired
}

// isLook says whether a key is the first that was used: files are looked at first.
func (k *keyAges) isLook(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.look == "" {
		k.look = key
	}
	return k.look == key
}

// TestInsertOutlivesItsKeys: the store ends the executors' keys again and again while
// an INSERT runs. It succeeds, with new keys each time: made once for all executors,
// and not more often than they end.
func TestInsertOutlivesItsKeys(t *testing.T) {
	in := input(t)
	direct := servers.StartMinIO(t)
	direct.MakeBucket(t, "lake")
	const copies = 2
	for i := range copies {
		upload(t, direct, in.path, fmt.Sprintf("s3://lake/landing/flights-%d.parquet", i))
	}
	store, sts := storetest.NewProxy(t, direct.Endpoint), storetest.NewProxy(t, direct.Endpoint)
	through := direct
	through.Endpoint = store.URL
	catalog := map[string]any{"type": "sql", "uri": "sqlite://" + filepath.Join(t.TempDir(), "catalog.db"), "warehouse": "s3://lake/warehouse"}
	settings := with(through.Storage(), map[string]string{objstore.KeySTSEndpoint: sts.URL})
	catalog["properties"] = settings
	c := process.NewClient(t, "--server", startOn(t, lakeOf(catalog, "s3://lake/landing", settings)))
	c.Exec(nil, "CREATE NAMESPACE lake.air")
	c.Exec(nil, createFlights)

	ages := &keyAges{own: direct.AccessKey, first: map[string]time.Time{}, expired: map[string]int{}}
	store.Begin(ages.fault)
	sts.Begin(nil)
	began := time.Now()
	var w process.Write
	c.Exec(&w, "INSERT INTO lake.air.flights SELECT * FROM read_parquet('s3://lake/landing/*.parquet')", "--idempotency-key", "main")
	took := time.Since(began)
	minted := sts.Requests()[storetest.Other]
	store.Begin(nil)
	if w.State != "succeeded" || w.Commit != "committed" || w.Rows != copies*in.rows {
		t.Fatalf("insert: %+v", w)
	}
	sums := c.Row("SELECT count(*) AS rows, sum(distance) AS distance FROM lake.air.flights")
	for name, want := range map[string]int64{"rows": copies * in.rows, "distance": copies * in.distance} {
		if n, err := process.Int(sums[name]); err != nil || n != want {
			t.Errorf("%s are %d, want %d: %v", name, n, want, err)
		}
	}

	ages.mu.Lock()
	defer ages.mu.Unlock()
	t.Logf("%.1f s with keys of %v: %d were made, %d used, %d ended: %v", took.Seconds(), lifetime, minted, len(ages.first), len(ages.expired), maps.Clone(ages.expired))
	if took < 3*lifetime || len(ages.expired) < 2 {
		t.Errorf("the INSERT took %v, and %d keys ended while they were in use: not several lifetimes", took, len(ages.expired))
	}
	// One for the look at the files, and for reading and for writing one for each
	// lifetime that has begun.
	if most := 1 + 2*(int(took/lifetime)+1); minted > most {
		t.Errorf("keys were made %d times; at most %d lifetimes have begun", minted, most)
	}
}
