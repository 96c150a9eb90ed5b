package objstore_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/internal/objstore/storetest"
)

// fakeS3 is gofakes3 with what it lacks: a completion that honours
// If-None-Match. It also counts requests and can lose replies.
type fakeS3 struct {
	next http.Handler
	url  string
	mu   sync.Mutex
	// lose says whether the reply to a request is lost after it was done.
	lose func(*http.Request) bool
	seen []string
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	complete := r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
	f.seen = append(f.seen, r.Method+" "+r.URL.RequestURI())
	if complete && r.Header.Get("If-None-Match") == "*" && f.exists(r) {
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = io.WriteString(w, `<Error><Code>PreconditionFailed</Code></Error>`)
		return
	}
	rec := httptest.NewRecorder()
	f.next.ServeHTTP(rec, r)
	if f.lose != nil && f.lose(r) {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), rec.Header())
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes())
}

func (f *fakeS3) exists(r *http.Request) bool {
	rec := httptest.NewRecorder()
	head := httptest.NewRequest(http.MethodHead, r.URL.EscapedPath(), nil)
	f.next.ServeHTTP(rec, head)
	return rec.Code == http.StatusOK
}

func newS3(t *testing.T) (*fakeS3, objstore.Store) {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("lake"); err != nil {
		t.Fatal(err)
	}
	f := &fakeS3{next: gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()}
	srv := httptest.NewServer(f)
	f.url = srv.URL
	t.Cleanup(srv.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	c := objstore.Config{Endpoint: srv.URL, AccessKeyID: "k", SecretAccessKey: "s"}
	s, closeIdle := objstore.NewTuned(c, time.Minute, 4)
	t.Cleanup(closeIdle)
	return f, s
}

func TestS3(t *testing.T) {
	_, s := newS3(t)
	// Two whole parts and a bit.
	storetest.Run(t, s, "s3://lake/x/", 16<<20)
}

// A reply that is lost makes the SDK send the request again; the store must then
// not take its own object for somebody else's.
func TestS3LostReplies(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
		lost func(*http.Request) bool
	}{
		{"put", 100, func(r *http.Request) bool { return r.Method == http.MethodPut }},
		{"complete", 9 << 20, func(r *http.Request) bool {
			return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, s := newS3(t)
			lost := 0
			f.lose = func(r *http.Request) bool {
				if lost > 0 || !c.lost(r) {
					return false
				}
				lost++
				return true
			}
			w, err := s.Create(t.Context(), "s3://lake/x")
			if err != nil {
				t.Fatal(err)
			}
			want := bytes.Repeat([]byte("firn"), c.size/4)
			if _, err := w.Write(want); err != nil {
				t.Fatal(err)
			}
			if err := w.Commit(t.Context()); err != nil {
				t.Fatalf("Commit: %v", err)
			}
			if lost != 1 {
				t.Fatalf("%d replies were lost", lost)
			}
			o, err := s.Open(t.Context(), "s3://lake/x")
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			if o.Size() != int64(len(want)) {
				t.Errorf("the object has %d bytes, want %d", o.Size(), len(want))
			}
		})
	}
}

// An upload that is refused or given up is aborted, so that the store doesn't
// keep parts for ever.
func TestS3AbortsUploads(t *testing.T) {
	f, s := newS3(t)
	if err := s.PutIfAbsent(t.Context(), "s3://lake/x", nil); err != nil {
		t.Fatal(err)
	}
	w, err := s.Create(t.Context(), "s3://lake/x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 9<<20)); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(t.Context()); !errors.Is(err, objstore.ErrExists) {
		t.Fatalf("Commit: %v", err)
	}
	if last := f.seen[len(f.seen)-1]; !strings.HasPrefix(last, "DELETE /lake/x?") || !strings.Contains(last, "uploadId=") {
		t.Errorf("the last request was %s", last)
	}
}

// Reading a few bytes of a large object must not fetch all of it.
func TestS3RangedRead(t *testing.T) {
	f, s := newS3(t)
	if err := s.PutIfAbsent(t.Context(), "s3://lake/x", make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	var ranges []string
	next := f.next
	f.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			ranges = append(ranges, r.Header.Get("Range"))
		}
		next.ServeHTTP(w, r)
	})
	o, err := s.Open(t.Context(), "s3://lake/x")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if _, err := o.ReadAt(make([]byte, 8), 1<<20-8); err != nil {
		t.Fatal(err)
	}
	if len(ranges) != 1 || ranges[0] != "bytes=1048568-1048575" {
		t.Errorf("asked for %v", ranges)
	}
}

func TestStorageRoundTrip(t *testing.T) {
	in := map[string]string{
		"s3.endpoint": "http://e", "s3.region": "r", "s3.path-style-access": "false",
		"s3.access-key-id": "a", "s3.secret-access-key": "s", "s3.session-token": "t",
		"token": "CATALOG", "credential": "CATALOG",
	}
	out := objstore.FromStorage(in).Storage()
	if len(out) != 6 {
		t.Errorf("%v", out)
	}
	for k, v := range out {
		if in[k] != v {
			t.Errorf("%s = %q, want %q", k, v, in[k])
		}
	}
	if got := (objstore.Config{}).Storage(); got != nil {
		t.Errorf("the zero Config gives %v", got)
	}
}

// Nothing may be taken from the environment: the scheduler's own credentials
// must not leak into a store that was given none.
func TestS3IgnoresEnvironment(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "CANARY")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "CANARY")
	var auth string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		auth = r.Header.Get("Authorization")
		w.WriteHeader(http.StatusNotFound)
	}))
	defer srv.Close()
	s, closeIdle := objstore.NewTuned(objstore.Config{Endpoint: srv.URL}, time.Minute, 4)
	defer closeIdle()
	if _, err := s.Stat(t.Context(), "s3://b/k"); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("Stat: %v", err)
	}
	if auth != "" {
		t.Errorf("signed as %q", auth)
	}
}

// Four parts are on their way at a time, and no more: with the one that fills, that's
// the writer's memory.
func TestS3PartsInFlight(t *testing.T) {
	const part, parts = 8 << 20, 12
	f, _ := newS3(t)
	var inFlight, most atomic.Int32
	gate := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			n := inFlight.Add(1)
			defer inFlight.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-gate
		}
		f.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s, closeIdle := objstore.NewTuned(objstore.Config{Endpoint: server.URL, AccessKeyID: "k", SecretAccessKey: "s"}, time.Minute, 4)
	t.Cleanup(closeIdle)
	w, err := s.Create(t.Context(), "s3://lake/x")
	if err != nil {
		t.Fatal(err)
	}
	var taken atomic.Int64
	written := make(chan error, 1)
	go func() {
		piece := make([]byte, part/8)
		for range 8 * parts {
			if _, err := w.Write(piece); err != nil {
				written <- err
				return
			}
			taken.Add(int64(len(piece)))
		}
		written <- w.Commit(t.Context())
	}()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); taken.Load() < 5*part || inFlight.Load() < 4; <-tick.C {
		if time.Now().After(end) {
			t.Errorf("%d bytes were taken and %d parts are on their way", taken.Load(), inFlight.Load())
			break
		}
	}
	close(gate)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if most.Load() != 4 {
		t.Errorf("%d parts were on their way at a time", most.Load())
	}
}

// Each part and each object goes with the CRC-32C of its bytes, and the completion
// with those of all parts.
func TestS3Checksums(t *testing.T) {
	f, s := newS3(t)
	sums, puts := map[string]bool{}, 0
	var completion string
	next := f.next
	f.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		switch q := r.URL.Query(); {
		case r.Method == http.MethodPut:
			sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
			want := base64.StdEncoding.EncodeToString(sum)
			if got := r.Header.Get("X-Amz-Checksum-Crc32c"); got != want {
				t.Errorf("%s goes with the checksum %q, want %s", r.URL, got, want)
			}
			sums[want] = q.Has("uploadId")
			puts++
		case r.Method == http.MethodPost && q.Has("uploadId"):
			completion = string(body)
		}
		next.ServeHTTP(w, r)
	})
	for _, n := range []int{100, 20 << 20} {
		if err := objstore.WriteFile(t.Context(), s, fmt.Sprintf("s3://lake/%d", n), bytesOf(n)); err != nil {
			t.Fatal(err)
		}
	}
	if puts != 4 || completion == "" {
		t.Errorf("%d PUTs of one object and three parts", puts)
	}
	for sum, part := range sums {
		if part && !strings.Contains(completion, sum) {
			t.Errorf("the completion lacks the part's checksum %s", sum)
		}
	}
}
