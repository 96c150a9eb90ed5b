//go:build integration

package integration_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/firn-project/firn/integration/process"
)

// landing is an object store with Parquet files of one column n, whose rows are numbered
// through. Who reads the rows of one is held until it is opened: they are one row group,
// so an attempt of a task asks once.
type landing struct {
	url     string
	store   http.Handler
	size    int64
	arrived chan int

	mu     sync.Mutex
	opened []chan struct{}
}

// perPart is how many rows a file has.
const perPart = 40_000

func newLanding(t *testing.T, parts int) *landing {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("landing"); err != nil {
		t.Fatal(err)
	}
	s := &landing{store: gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server(), arrived: make(chan int, 100*parts)}
	srv := httptest.NewServer(s)
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	s.url = srv.URL
	for part := range parts {
		path := filepath.Join(t.TempDir(), "part.parquet")
		duck(t, fmt.Sprintf("COPY (SELECT i AS n FROM range(%d, %d) t(i)) TO '%s' (COMPRESSION uncompressed, ROW_GROUP_SIZE %d)", part*perPart, (part+1)*perPart, path, perPart))
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s.size = int64(len(body))
		s.opened = append(s.opened, make(chan struct{}))
		if _, err := backend.PutObject("landing", fmt.Sprintf("part-%02d.parquet", part), nil, bytes.NewReader(body), s.size, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// open lets all go on that read a part, and those that come.
func (s *landing) open(part int) { close(s.opened[part]) }

// pass lets those go on that come from now on; who is held stays.
func (s *landing) pass(part int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opened[part] = make(chan struct{})
	close(s.opened[part])
}

// await waits until somebody who reads the part is held, or would be.
func (s *landing) await(t *testing.T, part int) {
	t.Helper()
	for timeout := time.After(20 * time.Second); ; {
		select {
		case now := <-s.arrived:
			if now == part {
				return
			}
		case <-timeout:
			t.Fatalf("nobody reads part %d", part)
		}
	}
}

// ServeHTTP implements http.Handler.
func (s *landing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var part int
	var first int64
	if n, _ := fmt.Sscanf(r.URL.Path, "/landing/part-%d.parquet", &part); n == 1 && r.Method == http.MethodGet {
		// What starts in the second half is the footer.
		if n, _ := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &first); n == 1 && first < s.size/2 {
			s.mu.Lock()
			opened := s.opened[part]
			s.mu.Unlock()
			s.arrived <- part
			select {
			case <-opened:
			case <-r.Context().Done():
				return
			}
		}
	}
	s.store.ServeHTTP(w, r)
}

// onLanding starts a scheduler that may read s, with further settings, and executors with
// so many slots each, which aren't lost for want of heartbeats.
func onLanding(t *testing.T, s *landing, settings string, slots ...int) *lakeside {
	t.Helper()
	l := &lakeside{t: t, dir: t.TempDir()}
	config := filepath.Join(l.dir, "scheduler.yaml")
	body := fmt.Sprintf(`executors: {heartbeat: 200ms, timeout: 10m}
sources:
  stores:
    - location: s3://landing
      properties: {s3.endpoint: %q, s3.region: us-east-1, s3.access-key-id: id, s3.secret-access-key: key, allow_unscoped: "true"}
%s`, s.url, settings)
	if err := os.WriteFile(config, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	l.scheduler = process.Start(t, "scheduler", "--listen", "127.0.0.1:0", "--dir", filepath.Join(l.dir, "scheduler"), "--config", config, "--log-level", "debug")
	for i, n := range slots {
		l.executors = append(l.executors, process.Start(t, "executor", "--server", l.scheduler.Address,
			"--dir", filepath.Join(l.dir, fmt.Sprintf("executor-%d", i)), "--slots", fmt.Sprint(n), "--memory", "512MB"))
	}
	l.Client = process.NewClient(t, "--server", l.scheduler.Address)
	l.Exec(nil, "CREATE NAMESPACE lake.air")
	return l
}
