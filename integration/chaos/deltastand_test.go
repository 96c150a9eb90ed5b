//go:build chaos

package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/duckdb/duckdb-go/v2" // writes the foreign writer's files
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/firn-project/firn/integration/history"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// deltaStand is a Delta table in a directory, or on an S3 server behind a proxy of
// faults.
type deltaStand struct {
	t   *testing.T
	dir string
	s3  *s3Stand // nil for a directory

	mu struct {
		sync.Mutex
		happened map[string]int
		sent     int
		foreign  int
	}
}

// s3Stand is the server. Conditional writes are done one after the other: the
// library's backend looks and writes in two steps. And unlike S3 it answers 404
// when a bucket has no unfinished uploads.
type s3Stand struct {
	backend gofakes3.Backend
	url     string
	proxy   *storetest.Proxy
}

const bucket = "lake"

func newDeltaStand(t *testing.T, dir string, s3 bool) *deltaStand {
	t.Helper()
	s := &deltaStand{t: t, dir: dir}
	s.mu.happened = map[string]int{}
	if !s3 {
		return s
	}
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	next := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	var conditional sync.Mutex
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Query().Has("uploads") {
			answer := httptest.NewRecorder()
			if next.ServeHTTP(answer, r); answer.Code == http.StatusNotFound {
				_, _ = io.WriteString(w, "<ListMultipartUploadsResult/>")
				return
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
			return
		}
		if r.Header.Get("If-None-Match") != "" {
			conditional.Lock()
			defer conditional.Unlock()
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	s.s3 = &s3Stand{backend: backend, url: srv.URL, proxy: storetest.NewProxy(t, srv.URL)}
	return s
}

// root is the table's location.
func (s *deltaStand) root() string {
	if s.s3 != nil {
		return "s3://" + bucket + "/tables/t"
	}
	return filepath.Join(s.dir, "tables", "t")
}

func (s *deltaStand) config() string {
	place := "location: " + filepath.Dir(s.root())
	if s.s3 != nil {
		place = fmt.Sprintf("location: 's3://%s/tables', properties: {s3.endpoint: %q, s3.region: us-east-1, s3.access-key-id: id, s3.secret-access-key: key, allow_unscoped: 'true'}", bucket, s.s3.proxy.URL)
	}
	return fmt.Sprintf("catalogs: {lake: {type: sql, uri: 'sqlite://%[1]s/catalog.db', warehouse: '%[1]s/warehouse'}}\ndelta: {paths: [{%[2]s}]}\n", s.dir, place)
}

// create makes the table by the first scheduler, and gives it a name at the others:
// the names of Delta tables are each scheduler's own.
func (s *deltaStand) create(l *lab, partitioned bool) {
	by := ""
	if partitioned {
		by = " PARTITIONED BY (w)"
	}
	location := fmt.Sprintf(" LOCATION '%s'", s.root())
	execute(l.t, l.clients[0], "CREATE NAMESPACE lake.c")
	execute(l.t, l.clients[0], "CREATE TABLE lake.c.t (id bigint, w string) USING delta"+location+by+" TBLPROPERTIES ('delta.checkpointInterval' = '3')")
	for _, c := range l.clients[1:] {
		execute(l.t, c, "CREATE TABLE lake.c.t USING delta"+location)
	}
}

func (s *deltaStand) begin(l *lab) {
	if s.s3 == nil {
		return
	}
	s.s3.proxy.Begin(func(r storetest.Request) storetest.Fault {
		if r.Op != storetest.Put || !strings.Contains(r.Path, "/_delta_log/0") || !strings.HasSuffix(r.Path, ".json") {
			return storetest.None
		}
		s.mu.Lock()
		s.mu.sent++
		n := s.mu.sent
		s.mu.Unlock()
		f, ok := l.nextPut(n)
		if !ok {
			return storetest.None
		}
		if f.before != nil {
			f.before(l)
			return storetest.None // it counts itself
		}
		s.mu.Lock()
		s.mu.happened[f.name]++
		s.mu.Unlock()
		if f.store == storetest.LostLate {
			l.repairs.Go(func() {
				pause(700 * time.Millisecond)
				s.s3.proxy.Release()
			})
		}
		return f.store
	})
}

func (s *deltaStand) calm() int {
	if s.s3 != nil {
		s.s3.proxy.Begin(nil)
		s.s3.proxy.Release()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.sent
}

func (s *deltaStand) fired() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.mu.happened)
}

// foreign writes a file and puts the version after the newest, again and again
// until nobody else has taken it. It goes past the proxy.
func (s *deltaStand) foreign(ctx context.Context, row int64) (err error) {
	s.mu.Lock()
	s.mu.foreign++
	name := fmt.Sprintf("foreign-%d.parquet", s.mu.foreign)
	s.mu.Unlock()
	file := filepath.Join(s.dir, name)
	db, err := sql.Open("duckdb", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if _, err := db.ExecContext(ctx, fmt.Sprintf("COPY (SELECT %d::BIGINT AS id, 'other' AS w) TO '%s' (FORMAT parquet)", row, file)); err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if taken, err := s.put(ctx, name, data); err != nil || taken {
		return fmt.Errorf("%s: taken %t, %w", name, taken, err)
	}
	commit := fmt.Sprintf(`{"commitInfo":{"timestamp":%d,"operation":"WRITE","isBlindAppend":true}}
{"add":{"path":%q,"partitionValues":%s,"size":%d,"modificationTime":%[1]d,"dataChange":true}}
`, time.Now().UnixMilli(), name, s.partition(ctx), len(data))
	for v := 1; ; v++ {
		if taken, err := s.put(ctx, fmt.Sprintf("_delta_log/%020d.json", v), []byte(commit)); err != nil || !taken {
			return err
		}
	}
}

// partition is the foreign row's, in the form of a log.
func (s *deltaStand) partition(ctx context.Context) string {
	first, err := s.get(ctx, "_delta_log/00000000000000000000.json")
	if err == nil && strings.Contains(string(first), `"partitionColumns":["w"]`) {
		return `{"w":"other"}`
	}
	return "{}"
}

// put writes an object of the table if it's absent.
func (s *deltaStand) put(ctx context.Context, name string, data []byte) (taken bool, err error) {
	if s.s3 == nil {
		temp := filepath.Join(s.dir, "putting-"+filepath.Base(name))
		if err := os.WriteFile(temp, data, 0o600); err != nil {
			return false, err
		}
		err := os.Link(temp, filepath.Join(s.root(), name))
		return errors.Is(err, fs.ErrExist), errors.Join(ignore(err, fs.ErrExist), os.Remove(temp))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, s.object(name), strings.NewReader(string(data)))
	if err != nil {
		return false, err
	}
	r.Header.Set("If-None-Match", "*")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		return false, nil
	case http.StatusPreconditionFailed:
		return true, nil
	}
	return false, fmt.Errorf("put %s: %s", name, res.Status)
}

func ignore(err, target error) error {
	if errors.Is(err, target) {
		return nil
	}
	return err
}

func (s *deltaStand) object(name string) string { return s.s3.url + "/" + bucket + "/tables/t/" + name }

func (s *deltaStand) get(ctx context.Context, name string) ([]byte, error) {
	if s.s3 == nil {
		return os.ReadFile(filepath.Join(s.root(), name))
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.object(name), http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	return io.ReadAll(res.Body)
}

func (s *deltaStand) judge(l *lab) (v verdict, dir string) {
	dir = s.root()
	if s.s3 != nil {
		dir = filepath.Join(s.dir, "copy")
		s.download(dir)
	}
	d, err := history.ReadDelta(l.t.Context(), dir, "id", tokensKey)
	if err != nil {
		l.t.Fatalf("the log can't be read: %v", err)
	}
	return verdict{rows: d.Rows, versions: d.Versions, audit: d.Report}, dir
}

// download copies the table from the server's memory.
func (s *deltaStand) download(dir string) {
	prefix := gofakes3.NewFolderPrefix("tables/t")
	prefix.HasDelimiter = false
	list, err := s.s3.backend.ListBucket(bucket, &prefix, gofakes3.ListBucketPage{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range list.Contents {
		content, err := s.s3.backend.GetObject(bucket, o.Key, nil)
		if err != nil {
			s.t.Fatal(err)
		}
		raw, err := io.ReadAll(content.Contents)
		path := filepath.Join(dir, strings.TrimPrefix(o.Key, "tables/t/"))
		if err = errors.Join(err, content.Contents.Close(), os.MkdirAll(filepath.Dir(path), 0o755)); err == nil {
			err = os.WriteFile(path, raw, 0o600)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}
