package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
)

// tokenServer gives out tokens t1, t2, … of a lifetime.
type tokenServer struct {
	*httptest.Server
	lifetime int
	n        atomic.Int64
	// busy are how many requests are answered 503 first.
	busy atomic.Int64
	mu   sync.Mutex
	form url.Values
	// gate holds replies back.
	gate chan struct{}
}

func newTokenServer(t *testing.T) *tokenServer {
	t.Helper()
	s := &tokenServer{lifetime: 3600}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.busy.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if s.gate != nil {
			<-s.gate
		}
		_ = r.ParseForm()
		s.mu.Lock()
		s.form = r.PostForm
		s.mu.Unlock()
		if r.PostFormValue("client_secret") != "SECRET" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprintf(w, `{"error":"invalid_client","error_description":"%s is wrong"}`, r.PostFormValue("client_secret"))
			return
		}
		fmt.Fprintf(w, `{"access_token":"t%d","expires_in":%d}`, s.n.Add(1), s.lifetime)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *tokenServer) bearer(t *testing.T, props map[string]string) *bearer {
	t.Helper()
	base, err := url.Parse("http://catalog.invalid/api/")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{"credential": "me:SECRET", "oauth2-server-uri": s.URL + "/login"}
	maps.Copy(all, props)
	h, err := newRESTHTTP(Config{Properties: all}, base, observer{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h.auth
}

func header(t *testing.T, b *bearer) string {
	t.Helper()
	_, v, err := b.AuthHeaderWithContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTokenRequest(t *testing.T) {
	s := newTokenServer(t)
	s.busy.Store(2)
	b := s.bearer(t, map[string]string{"scope": "a b", "audience": "lake", "resource": "https://r"})
	if got := header(t, b); got != "Bearer t1" {
		t.Errorf("got %s", got)
	}
	want := url.Values{
		"grant_type": {"client_credentials"}, "client_id": {"me"}, "client_secret": {"SECRET"},
		"scope": {"a b"}, "audience": {"lake"}, "resource": {"https://r"},
	}
	if s.form.Encode() != want.Encode() {
		t.Errorf("asked with %v", s.form)
	}
}

// However many wait, one request is made; one that gives up takes none with it.
func TestTokenSingleFlight(t *testing.T) {
	s := newTokenServer(t)
	s.gate = make(chan struct{})
	b := s.bearer(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := b.AuthHeaderWithContext(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that gave up: %v", err)
	}
	got := make([]string, 20)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = header(t, b) })
	}
	close(s.gate)
	wg.Wait()
	for _, h := range got {
		if h != "Bearer t1" {
			t.Errorf("got %s", h)
		}
	}
	// Twenty requests that were refused with t1 ask for one new token.
	for range got {
		wg.Go(func() {
			if !b.reset("Bearer t1") {
				t.Error("no token can be had")
			}
			header(t, b)
		})
	}
	wg.Wait()
	if n := s.n.Load(); n != 2 {
		t.Errorf("%d tokens were got, want 2", n)
	}
}

// A token is renewed before it expires, while the old one is still used; a
// failure to do so is no failure of the calls.
func TestTokenIsRenewedBeforeItExpires(t *testing.T) {
	s := newTokenServer(t)
	b := s.bearer(t, nil)
	header(t, b)
	now := time.Now()
	if tok, f := b.current(now.Add(44 * time.Minute)); tok != "t1" || f != nil {
		t.Errorf("at 44 minutes: %q, %v", tok, f)
	}
	s.busy.Store(100)
	if tok, _ := b.current(now.Add(46 * time.Minute)); tok != "t1" {
		t.Errorf("at 46 minutes: %q", tok)
	}
	b.flights.Wait()
	s.busy.Store(0)
	if tok, _ := b.current(now.Add(47 * time.Minute)); tok != "t1" {
		t.Errorf("at 47 minutes: %q", tok)
	}
	b.flights.Wait()
	if got := header(t, b); got != "Bearer t2" {
		t.Errorf("after the renewal: %s", got)
	}
	if tok, f := b.current(now.Add(2 * time.Hour)); tok != "" || f == nil {
		t.Errorf("an expired token: %q", tok)
	}
}

func TestTokenRefusals(t *testing.T) {
	s := newTokenServer(t)
	_, _, err := s.bearer(t, map[string]string{"credential": "me:WRONG"}).AuthHeaderWithContext(t.Context())
	if !errors.Is(err, errPermission) || !strings.Contains(err.Error(), "invalid_client") || strings.Contains(err.Error(), "WRONG") {
		t.Errorf("wrong credentials: %v", err)
	}
	s.busy.Store(100)
	_, _, err = s.bearer(t, nil).AuthHeaderWithContext(t.Context())
	if err == nil || errors.Is(err, errPermission) {
		t.Errorf("a server in trouble: %v", err)
	}
	base := &url.URL{Scheme: "http", Host: "x"}
	if _, err := newBearer(map[string]string{"credential": "c", "oauth2-server-uri": "ftp://x"}, base, nil); err == nil {
		t.Error("a strange address was taken")
	}
	fixed, err := newBearer(map[string]string{"token": "T"}, base, nil)
	if err != nil || fixed.reset("Bearer T") || header(t, fixed) != "Bearer T" {
		t.Errorf("a fixed token: %v", err)
	}
}

// The library's reads, too, get a new token when the old one isn't taken, once;
// what changes something isn't sent again.
func TestReadsGetANewTokenOnce(t *testing.T) {
	s := newTokenServer(t)
	var seen []string
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer api.Close()
	h := s.bearer(t, nil)
	base, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newRESTHTTP(Config{}, base, observer{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.transport.CloseIdleConnections()
	c.auth = h
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		r, err := c.newRequest(t.Context(), method, api.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.RoundTrip(r)
		if err != nil || resp.StatusCode != http.StatusUnauthorized {
			t.Fatalf("%v, %v", resp, err)
		}
		resp.Body.Close()
	}
	if a := c.postOnce(t.Context(), api.URL, nil, ""); a.Class != commit.AnswerAuth {
		t.Errorf("%+v", a)
	}
	if got := strings.Join(seen, ", "); got != "GET Bearer t1, GET Bearer t2, POST Bearer t2, POST Bearer t3" {
		t.Errorf("requests: %s", got)
	}
}

// A server that asks for a pause gets it: reads wait, and so does the next commit,
// before it's sent.
func TestRetryAfter(t *testing.T) {
	var wait atomic.Pointer[string]
	var status atomic.Int64
	var n atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Retry-After", *wait.Load())
		w.WriteHeader(int(status.Load()))
	}))
	defer api.Close()
	base, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	h, err := newRESTHTTP(Config{}, base, observer{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	set := func(s int, after string) { status.Store(int64(s)); wait.Store(&after) }

	set(429, "3600")
	if err := h.getJSON(t.Context(), api.URL, nil); err == nil || n.Load() != 1 {
		t.Errorf("a long pause: %v after %d requests", err, n.Load())
	}
	set(429, "30")
	if a := h.postOnce(t.Context(), api.URL, nil, ""); a.Class != commit.AnswerWait {
		t.Errorf("%+v", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := n.Load()
	if a := h.postOnce(ctx, api.URL, nil, ""); a.Class != commit.AnswerWait || !strings.Contains(fmt.Sprint(a.Err), "nothing was sent") || n.Load() != before {
		t.Errorf("during the pause: %+v", a)
	}
	h.pause.Store(0)
	set(204, "")
	if a := h.postOnce(t.Context(), api.URL, nil, ""); a.Class != commit.AnswerOK {
		t.Errorf("after the pause: %+v", a)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{"": 0, "-1": 0, "x": 0, "7": 7 * time.Second, "Fri, 02 Jan 2026 03:04:15 GMT": 10 * time.Second, "Fri, 02 Jan 2026 03:04:00 GMT": 0} {
		if got := retryAfter(&http.Response{Header: http.Header{"Retry-After": {text}}}, now); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestVendedCredentials(t *testing.T) {
	const ms = 1767323045000
	reply := loadReply{
		Config: map[string]string{
			"token": "CANARY", "s3.endpoint": "http://store", "client.region": "eu",
			"s3.access-key-id": "whole", "s3.secret-access-key": "k0", "s3.session-token": "s0",
		},
		Credentials: []vendedCredentials{
			{"s3://b/t", map[string]string{"s3.access-key-id": "part", "s3.secret-access-key": "k1", "s3.session-token-expires-at-ms": fmt.Sprint(ms), "x": "CANARY"}},
			{"gs://b", map[string]string{"gcs.oauth2.token": "CANARY"}},
		},
	}
	all := vended(reply)
	if len(all) != 2 || strings.Contains(fmt.Sprintf("%v %+v %#v", all, all, all), "k1") {
		t.Fatalf("got %v", all)
	}
	c, ok := CredentialFor(all, "s3://b/t/data/x.parquet")
	if !ok || !c.Expires.Equal(time.UnixMilli(ms)) || c.Settings["s3.access-key-id"] != "part" || c.Settings["s3.session-token"] != "" ||
		c.Settings["s3.endpoint"] != "http://store" || c.Settings["s3.region"] != "eu" {
		t.Errorf("for the table: %v", c.Settings)
	}
	if c, ok := CredentialFor(all, "s3://b/tt/x"); !ok || c.Settings["s3.access-key-id"] != "whole" || !c.Expires.IsZero() {
		t.Errorf("for another: %v", c.Settings)
	}
	if _, ok := CredentialFor(all[:1], "s3://b/tt/x"); ok {
		t.Error("a prefix was taken for another directory's")
	}
	if _, ok := CredentialFor([]StorageCredential{{Prefix: "s3"}}, "s3://b/tt/x"); !ok {
		t.Error("a scheme is no prefix")
	}
	for _, c := range all {
		for k, v := range c.Settings {
			if v == "CANARY" {
				t.Errorf("%s is given on", k)
			}
		}
	}
	s, h := restHarness(t)
	s.vend = []vendedCredentials{{"file://", map[string]string{"s3.access-key-id": "ID"}}}
	got, err := h.set.StorageCredentials(t.Context(), airT)
	if err != nil || len(got) != 1 || got[0].Settings["s3.access-key-id"] != "ID" {
		t.Errorf("asked the catalog: %v, %v", got, err)
	}
	if s.delegation != "vended-credentials" {
		t.Errorf("asked with X-Iceberg-Access-Delegation: %q", s.delegation)
	}
}

// Listings are read to their last page.
func TestListingsArePaged(t *testing.T) {
	s, h := restHarness(t)
	for i := range 5 {
		if err := h.set.CreateNamespace(t.Context(), "lake", []string{fmt.Sprintf("n%d", i)}, nil, false); err != nil {
			t.Fatal(err)
		}
		name := airT
		name.Name = fmt.Sprintf("t%d", i)
		if err := create(t, h.set, name.Name, nil); err != nil {
			t.Fatal(err)
		}
	}
	s.page = 2
	ns, err := h.set.Namespaces(t.Context(), "lake", nil)
	if err != nil || len(ns) != 6 {
		t.Errorf("namespaces %v, %v", ns, err)
	}
	tables, err := h.set.Tables(t.Context(), "lake", airT.Namespace)
	if err != nil || len(tables) != 6 || s.pages < 6 {
		t.Errorf("tables %v in %d pages, %v", tables, s.pages, err)
	}
}
