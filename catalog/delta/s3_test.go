package delta

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/firn-project/firn/internal/objstore"
)

// lossyS3 is an S3 server that applies the first copy of a named put and then
// breaks the connection.
type lossyS3 struct {
	next http.Handler
	mu   sync.Mutex
	lose string
	puts map[string]int
}

func (s *lossyS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	lose := false
	if r.Method == http.MethodPut {
		name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
		s.puts[name]++
		lose = name == s.lose && s.puts[name] == 1
	}
	s.mu.Unlock()
	if lose {
		s.next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	s.next.ServeHTTP(w, r)
}

// TestOnS3: the log in an object store, by If-None-Match, with lost replies,
// checkpoints, and two writers.
func TestOnS3(t *testing.T) {
	backend := s3mem.New()
	if err := backend.CreateBucket("lake"); err != nil {
		t.Fatal(err)
	}
	s3 := &lossyS3{next: gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server(), puts: map[string]int{}, lose: commitName(3)}
	srv := httptest.NewServer(s3)
	defer srv.Close()
	defer srv.CloseClientConnections()
	store := objstore.New(objstore.Config{Endpoint: srv.URL, AccessKeyID: "id", SecretAccessKey: "key"})
	tt := &testTable{t: t, store: &faultStore{Store: store}}
	tt.log = NewLog(tt.store, "s3://lake/air/t/")
	c, err := NewTable(TableSpec{ID: uuid.NewString(), TxnID: uuid.NewString(), Schema: testSchema(), Partition: []string{"p"}, Now: testTime, Engine: "Firn/test"})
	if err != nil {
		t.Fatal(err)
	}
	tt.put(0, *c)
	tt.fill(7) // the third put's reply is lost on the way, and the write is known for ours
	want := shown(t, tt.snapshot(Latest))
	if err := tt.snapshot(5).Checkpoint(t.Context(), CheckpointOptions{Now: testTime, TempDir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	s := tt.snapshot(Latest)
	if got := shown(t, s); got != want || s.seg.checkpoint == nil {
		t.Errorf("with a checkpoint:\n%s\nwant:\n%s", got, want)
	}
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			s := s
			for n := 0; n < 5; {
				c := Commit{Info: CommitInfo{TxnID: uuid.NewString(), Operation: "WRITE"}, Adds: []*Add{plainAdd(fmt.Sprintf("w%d-%d", w, n))}}
				b, err := c.Encode()
				if err == nil {
					err = tt.log.Put(t.Context(), s.Version()+1, b)
				}
				settled, serr := tt.log.Settle(t.Context(), s.Version()+1, c.Info.TxnID)
				if serr != nil || (err == nil) != (settled == Ours) {
					t.Errorf("put: %v; settled: %v, %v", err, settled, serr)
					return
				}
				if settled == Ours {
					n++
				}
				if s, err = s.Update(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if s = tt.snapshot(Latest); s.Version() != 17 {
		t.Errorf("version %d, want 17", s.Version())
	}
}
