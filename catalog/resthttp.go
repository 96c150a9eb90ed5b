package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	icerest "github.com/apache/iceberg-go/catalog/rest"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/firn-project/firn/commit"
)

// maxReply bounds a reply of the catalog that is read into memory.
const maxReply = 1 << 30

// restHTTP carries requests to a REST catalog in two ways. Reads (GET, HEAD) are
// repeated with backoff. Everything else is sent once: no retry, no redirect,
// and without GetBody, so that net/http can't send a body again when a
// connection turns out to be dead.
type restHTTP struct {
	transport *http.Transport
	reads     http.RoundTripper
	once      *http.Client
	auth      *bearer
	headers   http.Header
}

var _ http.RoundTripper = (*restHTTP)(nil)

func newRESTHTTP(c Config, base *url.URL) (*restHTTP, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second,
		IdleConnTimeout:       60 * time.Second,
		MaxIdleConnsPerHost:   8,
	}
	retry := retryablehttp.NewClient()
	retry.HTTPClient = &http.Client{Transport: t, CheckRedirect: noRedirect}
	retry.Logger = nil
	retry.RetryWaitMin, retry.RetryWaitMax, retry.RetryMax = 100*time.Millisecond, 2*time.Second, 4
	retry.ErrorHandler = retryablehttp.PassthroughErrorHandler
	h := &restHTTP{
		transport: t,
		reads:     &retryablehttp.RoundTripper{Client: retry},
		once:      &http.Client{Transport: t, CheckRedirect: noRedirect},
		headers:   http.Header{},
	}
	for k, v := range c.Properties {
		if name, ok := strings.CutPrefix(k, "header."); ok {
			h.headers.Set(name, v)
		}
	}
	var err error
	h.auth, err = newBearer(c.Properties, base, h.once)
	return h, err
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// RoundTrip implements http.RoundTripper for the library.
func (h *restHTTP) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return h.reads.RoundTrip(r)
	}
	if r.GetBody != nil {
		r = r.Clone(r.Context())
		r.GetBody = nil
	}
	return h.transport.RoundTrip(r)
}

// Close closes idle connections.
func (h *restHTTP) Close() { h.transport.CloseIdleConnections() }

func (h *restHTTP) newRequest(ctx context.Context, method, url string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return nil, err
	}
	r.Header = h.headers.Clone()
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	if h.auth != nil {
		k, v, err := h.auth.AuthHeaderWithContext(ctx)
		if err != nil {
			return nil, err
		}
		r.Header.Set(k, v)
	}
	return r, nil
}

// statusError is a reply that isn't success.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the catalog answered %d %s: %s", e.status, http.StatusText(e.status), e.text)
}

// Unwrap makes what the statuses about credentials mean plain.
func (e *statusError) Unwrap() error {
	switch e.status {
	case http.StatusUnauthorized, http.StatusForbidden, 419:
		return errPermission
	}
	return nil
}

// getJSON reads a JSON reply. Credentials that the server takes for expired are
// renewed once.
func (h *restHTTP) getJSON(ctx context.Context, url string, into any) error {
	for renewed := false; ; renewed = true {
		err := h.getJSONOnce(ctx, url, into)
		s, ok := errors.AsType[*statusError](err)
		if renewed || !ok || (s.status != http.StatusUnauthorized && s.status != 419) || !h.auth.reset() {
			return err
		}
	}
}

func (h *restHTTP) getJSONOnce(ctx context.Context, url string, into any) error {
	r, err := h.newRequest(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := h.RoundTrip(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	defer drain(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return &statusError{resp.StatusCode, errorText(resp.Body)}
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReply)).Decode(into); err != nil {
		return fmt.Errorf("the catalog's reply is not readable: %w", err)
	}
	return nil
}

// delete sends one DELETE.
func (h *restHTTP) delete(ctx context.Context, url string) error {
	r, err := h.newRequest(ctx, http.MethodDelete, url, nil)
	if err != nil {
		return err
	}
	resp, err := h.once.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 300 {
		return &statusError{resp.StatusCode, errorText(resp.Body)}
	}
	return nil
}

// errorText is the message of an Iceberg error reply, or the start of another.
func errorText(body io.Reader) string {
	raw, _ := io.ReadAll(io.LimitReader(body, 64<<10))
	var e struct {
		Error struct{ Message, Type string }
	}
	if json.Unmarshal(raw, &e) == nil && e.Error.Message != "" {
		return strings.TrimSpace(e.Error.Type + " " + e.Error.Message)
	}
	s := strings.TrimSpace(string(raw))
	return s[:min(len(s), 200)]
}

// postOnce sends one copy of a commit, once.
func (h *restHTTP) postOnce(ctx context.Context, url string, body []byte) commit.Answer {
	// The reader is hidden, so that no GetBody is made of it.
	r, err := h.newRequest(ctx, http.MethodPost, url, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		// Nothing was sent: the credentials couldn't be had.
		return commit.Answer{Class: commit.AnswerAuth, Err: err}
	}
	r.ContentLength, r.GetBody = int64(len(body)), nil
	resp, err := h.once.Do(r)
	if err != nil {
		return commit.Answer{Class: commit.AnswerAmbiguous, Err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	a := commit.Answer{Class: classOf(resp.StatusCode), Status: resp.StatusCode}
	if a.Class == commit.AnswerAuth {
		h.auth.reset()
	}
	if a.Class != commit.AnswerOK {
		a.Err = &statusError{resp.StatusCode, errorText(resp.Body)}
		return a
	}
	// A reply that breaks off came from a server, or a proxy, in trouble.
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxReply)); err != nil {
		return commit.Answer{Class: commit.AnswerAmbiguous, Status: resp.StatusCode, Err: fmt.Errorf("the reply broke off: %w", err)}
	}
	return a
}

// classOf sorts the statuses of a commit's reply.
func classOf(status int) commit.AnswerClass {
	switch {
	case status >= 200 && status < 300:
		return commit.AnswerOK
	case status == http.StatusConflict:
		return commit.AnswerConflict
	case status == http.StatusUnauthorized, status == 419:
		return commit.AnswerAuth
	case status == http.StatusForbidden:
		return commit.AnswerPermission
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return commit.AnswerWait
	case status == http.StatusRequestTimeout, status >= 500, status < 200:
		return commit.AnswerAmbiguous
	default:
		return commit.AnswerRejected
	}
}

// bearer makes the Authorization header: a fixed token, or one got with client
// credentials and renewed before it expires.
type bearer struct {
	client     *http.Client
	endpoint   string
	credential string
	form       url.Values

	mu      sync.Mutex
	token   string
	expires time.Time
}

var _ icerest.ContextAuthManager = (*bearer)(nil)

// newBearer gives nil when no credentials are configured.
func newBearer(props map[string]string, base *url.URL, client *http.Client) (*bearer, error) {
	if props["token"] == "" && props["credential"] == "" {
		return nil, nil
	}
	b := &bearer{client: client, token: props["token"], credential: props["credential"], form: url.Values{"grant_type": {"client_credentials"}}}
	b.endpoint = base.JoinPath("v1", "oauth", "tokens").String()
	if e := props["oauth2-server-uri"]; e != "" {
		u, err := base.Parse(e)
		if err != nil {
			return nil, fmt.Errorf("oauth2-server-uri: %w", err)
		}
		b.endpoint = u.String()
	}
	b.form.Set("scope", "catalog")
	for _, k := range []string{"scope", "audience", "resource"} {
		if v := props[k]; v != "" {
			b.form.Set(k, v)
		}
	}
	if id, secret, ok := strings.Cut(b.credential, ":"); ok {
		b.form.Set("client_id", id)
		b.form.Set("client_secret", secret)
	} else {
		b.form.Set("client_secret", b.credential)
	}
	return b, nil
}

// AuthHeader implements the library's AuthManager.
func (b *bearer) AuthHeader() (string, string, error) {
	return b.AuthHeaderWithContext(context.Background())
}

// AuthHeaderWithContext implements the library's ContextAuthManager.
func (b *bearer) AuthHeaderWithContext(ctx context.Context) (string, string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.token == "" || (!b.expires.IsZero() && time.Now().After(b.expires)) {
		if err := b.fetch(ctx); err != nil {
			return "", "", err
		}
	}
	return "Authorization", "Bearer " + b.token, nil
}

// reset forgets a token that can be had again, and says whether there is such.
func (b *bearer) reset() bool {
	if b == nil || b.credential == "" {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.token = ""
	return true
}

func (b *bearer) fetch(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.endpoint, strings.NewReader(b.form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := b.client.Do(r)
	if err != nil {
		return fmt.Errorf("get a catalog token: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%w: get a catalog token from %s: status %d", errPermission, b.endpoint, resp.StatusCode)
	}
	var reply struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&reply); err != nil || reply.AccessToken == "" {
		return fmt.Errorf("get a catalog token from %s: no token in the reply (%w)", b.endpoint, errors.Join(err, errPermission))
	}
	b.token, b.expires = reply.AccessToken, time.Time{}
	if reply.ExpiresIn > 0 {
		// Renewed a little before it ends.
		b.expires = time.Now().Add(time.Duration(reply.ExpiresIn) * time.Second * 9 / 10)
	}
	return nil
}
