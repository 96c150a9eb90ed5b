package objstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-project/firn/internal/objstore"
)

// signed is a store that remembers how requests were signed.
type signed struct {
	url string
	mu  sync.Mutex
	// auth and token are headers of the last request.
	auth, token string
}

func newSigned(t *testing.T) *signed {
	t.Helper()
	s := &signed{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.auth, s.token = r.Header.Get("Authorization"), r.Header.Get("X-Amz-Security-Token")
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	// The machine's own settings have no part in these tests.
	for _, name := range []string{"AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	return s
}

// ask makes one request with the configuration.
func (s *signed) ask(t *testing.T, c objstore.Config) error {
	t.Helper()
	c.Endpoint = s.url
	store, closeIdle := objstore.NewTuned(c, time.Minute, 2)
	defer closeIdle()
	_, err := store.Stat(t.Context(), "s3://b/k")
	return err
}

func (s *signed) want(t *testing.T, err error, key, region, token string) {
	t.Helper()
	if !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("Stat: %v", err)
	}
	if !strings.Contains(s.auth, "Credential="+key+"/") || !strings.Contains(s.auth, "/"+region+"/s3/") || s.token != token {
		t.Errorf("signed as %q with token %q, want %s in %s with %q", s.auth, s.token, key, region, token)
	}
}

func TestS3Profile(t *testing.T) {
	s := newSigned(t)
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[lake]\naws_access_key_id = PROFILED\naws_secret_access_key = x\nregion = eu-west-3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	s.want(t, s.ask(t, objstore.FromStorage(map[string]string{"s3.profile": "lake"})), "PROFILED", "eu-west-3", "")
	s.want(t, s.ask(t, objstore.Config{Profile: "lake", Region: "eu-north-1"}), "PROFILED", "eu-north-1", "")
	err := s.ask(t, objstore.Config{Profile: "missing"})
	if !errors.Is(err, objstore.ErrPermission) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a profile that isn't there: %v", err)
	}
}

const assumed = `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>
<Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>x</SecretAccessKey><SessionToken>T</SessionToken><Expiration>%s</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`

func TestS3WebIdentity(t *testing.T) {
	s := newSigned(t)
	var asked []string
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		asked = append(asked, r.Form.Get("Action")+" "+r.Form.Get("RoleArn")+" "+r.Form.Get("WebIdentityToken"))
		_, _ = fmt.Fprintf(w, assumed, "WEB", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer sts.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("jwt"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := objstore.FromStorage(map[string]string{
		"s3.web-identity-token-file": token, "s3.role-arn": "arn:aws:iam::1:role/r", "s3.sts-endpoint": sts.URL, "s3.region": "eu-west-1",
	})
	s.want(t, s.ask(t, c), "WEB", "eu-west-1", "T")
	if len(asked) != 1 || asked[0] != "AssumeRoleWithWebIdentity arn:aws:iam::1:role/r jwt" {
		t.Errorf("STS was asked %q", asked)
	}
	// What travels to executors has keys, and no way to get others.
	got, ends, err := c.Resolve(t.Context())
	if err != nil || ends.Before(time.Now()) {
		t.Errorf("Resolve: until %v, %v", ends, err)
	}
	if m := got.Storage(); m["s3.access-key-id"] != "WEB" || m["s3.session-token"] != "T" || len(m) != 4 {
		t.Errorf("resolved: %v", m)
	}
	if m := c.Storage(); len(m) != 1 || m["s3.region"] == "" {
		t.Errorf("unresolved: %v", m)
	}
	c.RoleARN = ""
	if err := s.ask(t, c); err == nil || !strings.Contains(err.Error(), "s3.role-arn") {
		t.Errorf("without a role: %v", err)
	}
}

// TestNarrowWithWebIdentity: the role is assumed once, by the identity and under the
// scope as its policy; the file is read anew each time, and nothing of it is in what
// comes out. Without what it takes, or with an answer that holds nothing, it's an error.
func TestNarrowWithWebIdentity(t *testing.T) {
	var asked []url.Values
	answer := func() string {
		return fmt.Sprintf(assumed, "WEB", time.Now().Add(15*time.Minute).UTC().Format(time.RFC3339))
	}
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		asked = append(asked, r.Form)
		if r.Header.Get("Authorization") != "" {
			t.Error("the question is signed")
		}
		_, _ = io.WriteString(w, answer())
	}))
	defer sts.Close()
	defer objstore.CloseIdleConnections()
	token := filepath.Join(t.TempDir(), "token")
	c := objstore.FromStorage(map[string]string{"s3.web-identity-token-file": token, "s3.role-arn": "arn:aws:iam::1:role/r", "s3.sts-endpoint": sts.URL})
	scope := objstore.Scope{Write: "s3://lake/t/data/j-1/"}
	if !c.Narrows() {
		t.Error("an identity with a role can't be narrowed")
	}
	if _, err := c.Narrow(t.Context(), scope); err == nil || len(asked) > 0 {
		t.Errorf("without a token: %v, asked %d times", err, len(asked))
	}
	for i, jwt := range []string{"jwt-1", "jwt-2"} {
		if err := os.WriteFile(token, []byte(jwt), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := c.Narrow(t.Context(), scope)
		if err != nil || k.AccessKeyID != "WEB" || k.SessionToken != "T" || time.Until(k.Expires) < 14*time.Minute {
			t.Fatalf("%s until %v: %v", k.AccessKeyID, k.Expires, err)
		}
		q := asked[i]
		if q.Get("Action") != "AssumeRoleWithWebIdentity" || q.Get("WebIdentityToken") != jwt || q.Get("DurationSeconds") != "900" ||
			!strings.Contains(q.Get("Policy"), `"arn:aws:s3:::lake/t/data/j-1/*"`) || strings.Contains(q.Get("Policy"), "DeleteObject") {
			t.Errorf("STS was asked %v", q)
		}
	}
	if _, err := c.Narrow(t.Context(), objstore.Scope{}); err == nil || len(asked) != 2 {
		t.Errorf("an empty scope: %v", err)
	}
	answer = func() string { return "<AssumeRoleWithWebIdentityResponse/>" }
	if k, err := c.Narrow(t.Context(), scope); err == nil {
		t.Errorf("an empty answer gives %q", k.AccessKeyID)
	}
}

// Instance metadata are asked for by the default chain alone, and not where the
// environment forbids it.
func TestS3DefaultChain(t *testing.T) {
	s := newSigned(t)
	var asked atomic.Int32
	imds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
	}))
	defer imds.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.URL)
	chain := objstore.FromStorage(map[string]string{"s3.credentials": "default", "s3.region": "eu-west-2"})

	if err := s.ask(t, chain); !strings.Contains(fmt.Sprint(err), "credentials") || asked.Load() != 0 {
		t.Errorf("disabled: %v, asked %d times", err, asked.Load())
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
	if err := s.ask(t, objstore.Config{}); !errors.Is(err, objstore.ErrNotFound) || asked.Load() != 0 || s.auth != "" {
		t.Errorf("anonymous: %v, asked %d times, signed %q", err, asked.Load(), s.auth)
	}
	if err := s.ask(t, chain); err == nil || asked.Load() == 0 {
		t.Errorf("enabled: %v, asked %d times", err, asked.Load())
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "ENV")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	t.Setenv("AWS_SESSION_TOKEN", "ST")
	s.want(t, s.ask(t, chain), "ENV", "eu-west-2", "ST")
}

func TestS3Provider(t *testing.T) {
	s := newSigned(t)
	calls := 0
	c := objstore.Config{Provider: func(context.Context) (objstore.Keys, error) {
		calls++
		return objstore.Keys{AccessKeyID: "GIVEN", SecretAccessKey: "x", SessionToken: "P", Expires: time.Now().Add(time.Hour)}, nil
	}}
	s.want(t, s.ask(t, c), "GIVEN", "us-east-1", "P")
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
	c.Provider = func(context.Context) (objstore.Keys, error) { return objstore.Keys{}, errors.New("no renewal") }
	if err := s.ask(t, c); err == nil || !strings.Contains(err.Error(), "no renewal") {
		t.Errorf("error %v", err)
	}
}
