package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// numbered gives the keys k1, and after each that has expired the next.
type numbered struct{ n atomic.Int32 }

func (r *numbered) Keys(context.Context) (Keys, error) {
	return Keys{AccessKeyID: fmt.Sprintf("k%d", r.n.Load()+1), SecretAccessKey: "s"}, nil
}

func (r *numbered) Expired(id string) {
	if id == fmt.Sprintf("k%d", r.n.Load()+1) {
		r.n.Add(1)
	}
}

// TestExpiredKeysAreRenewed: a store that says that keys have ended is asked again
// with others, for reads and for data files alike; a write that decides who wins is
// sent once.
func TestExpiredKeysAreRenewed(t *testing.T) {
	for code, status := range map[string]int{"ExpiredToken": http.StatusBadRequest, "InvalidAccessKeyId": http.StatusForbidden} {
		t.Run(code, func(t *testing.T) { expiredKeysAreRenewed(t, code, status) })
	}
}

func expiredKeysAreRenewed(t *testing.T, code string, status int) {
	var puts atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if a := r.Header.Get("Authorization"); strings.Contains(a, "Credential=k1/") || r.Method == http.MethodGet && strings.Contains(a, "Credential=k2/") {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code><Message>gone</Message></Error>")
			return
		}
		if r.Method == http.MethodPut {
			puts.Add(1)
			return
		}
		_, _ = io.WriteString(w, "<ListBucketResult></ListBucketResult>")
	}))
	defer srv.Close()
	defer CloseIdleConnections()
	keys := &numbered{}
	s := New(Config{Endpoint: srv.URL, Renewer: keys})
	if err := WriteFile(t.Context(), s, "s3://b/k", []byte("x")); err != nil || puts.Load() != 1 {
		t.Errorf("%d writes: %v", puts.Load(), err)
	}
	for _, err := range s.List(t.Context(), "s3://b/") {
		if err != nil {
			t.Error(err)
		}
	}
	if n := keys.n.Load(); n != 2 {
		t.Errorf("%d keys expired, want 2", n)
	}
	keys.n.Store(0)
	err := s.PutIfAbsent(t.Context(), "s3://b/k", []byte("x"))
	if !errors.Is(err, ErrPermission) || errors.Is(err, ErrUncertain) || puts.Load() != 1 || keys.n.Load() != 1 {
		t.Errorf("PutIfAbsent with keys that have ended: %d writes, %d keys expired: %v", puts.Load()-1, keys.n.Load(), err)
	}
}

// TestHeadSaysNotWhy: the refusal of a HEAD has no body; whether it's for keys that
// have ended is found out, once, and other refusals stay what they are.
func TestHeadSaysNotWhy(t *testing.T) {
	for _, status := range []int{http.StatusBadRequest, http.StatusForbidden} {
		var requests atomic.Int32
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			old := strings.Contains(r.Header.Get("Authorization"), "Credential=k1/")
			refuse := func(code string) {
				w.WriteHeader(status)
				_, _ = io.WriteString(w, "<Error><Code>"+code+"</Code></Error>")
			}
			switch {
			case old:
				refuse("ExpiredToken")
			case r.URL.Path == "/b/forbidden":
				refuse("AccessDenied")
			case r.URL.Path == "/b/missing":
				w.WriteHeader(http.StatusNotFound)
			case r.URL.Path == "/b/empty" && r.Method == http.MethodGet:
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			case r.Method == http.MethodHead:
				w.Header().Set("Content-Length", "7")
			default:
				_, _ = io.WriteString(w, "x")
			}
		}))
		for name, want := range map[string]error{"there": nil, "empty": nil, "missing": ErrNotFound, "forbidden": ErrPermission} {
			keys := &numbered{}
			requests.Store(0)
			size, err := New(Config{Endpoint: srv.URL, Renewer: keys}).Stat(t.Context(), "s3://b/"+name)
			if status == http.StatusBadRequest && name == "forbidden" {
				want = nil // no sentinel for that one
				if err == nil {
					t.Errorf("%d %s: no error", status, name)
				}
			}
			if want == nil && name != "forbidden" && (err != nil || size != 7) || want != nil && !errors.Is(err, want) {
				t.Errorf("%d %s: %d bytes, %v; want %v", status, name, size, err, want)
			}
			if keys.n.Load() != 1 || requests.Load() > 4 {
				t.Errorf("%d %s: %d keys expired, %d requests", status, name, keys.n.Load(), requests.Load())
			}
		}
		srv.Close()
	}
	CloseIdleConnections()
}
