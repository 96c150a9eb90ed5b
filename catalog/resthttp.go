package catalog

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/firn-project/firn/commit"
)

// maxReply bounds a reply of the catalog that is read into memory.
const maxReply = 1 << 30

const (
	// replyTimeout bounds a whole exchange, the reading of its reply included.
	replyTimeout = 2 * time.Minute
	// maxRetryAfter is the longest wait that a server is granted. A read whose
	// server asks for a longer one fails with its answer.
	maxRetryAfter = time.Minute
)

// restHTTP carries requests to a REST catalog in two ways. Reads (GET, HEAD) are
// repeated with backoff, or when the server says so. Everything else is sent
// once: no retry, no redirect, and without GetBody, so that net/http can't send a
// body again when a connection turns out to be dead. HTTP/2 stays off: its
// transport has rules of its own for sending a request again.
type restHTTP struct {
	transport *http.Transport
	// wire is the transport with everything that goes over it counted.
	wire    http.RoundTripper
	reads   http.RoundTripper
	once    *http.Client
	auth    *bearer
	headers http.Header
	// pause is until when the server wants no commit, in Unix nanoseconds.
	pause atomic.Int64
}

var _ http.RoundTripper = (*restHTTP)(nil)

func newRESTHTTP(c Config, base *url.URL, told observer) (*restHTTP, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 60 * time.Second,
		IdleConnTimeout:       60 * time.Second,
		MaxIdleConnsPerHost:   8,
	}
	wire := observedWire{t, told}
	retry := retryablehttp.NewClient()
	retry.HTTPClient = &http.Client{Transport: wire, CheckRedirect: noRedirect}
	retry.Logger = nil
	retry.RetryWaitMin, retry.RetryWaitMax, retry.RetryMax = 100*time.Millisecond, 2*time.Second, 4
	retry.ErrorHandler = retryablehttp.PassthroughErrorHandler
	retry.CheckRetry = func(ctx context.Context, resp *http.Response, err error) (bool, error) {
		if resp != nil && retryAfter(resp, time.Now()) > maxRetryAfter {
			return false, nil
		}
		return retryablehttp.DefaultRetryPolicy(ctx, resp, err)
	}
	h := &restHTTP{
		transport: t,
		wire:      wire,
		reads:     &retryablehttp.RoundTripper{Client: retry},
		once:      &http.Client{Transport: wire, CheckRedirect: noRedirect},
		headers:   http.Header{},
	}
	// A server that vends credentials does so when it's asked to.
	h.headers.Set("X-Iceberg-Access-Delegation", "vended-credentials")
	for k, v := range c.Properties {
		if name, ok := strings.CutPrefix(k, "header."); ok {
			h.headers.Set(name, v)
		}
	}
	var err error
	// Asking for a token twice does no harm, so that these requests are
	// repeated as reads are.
	h.auth, err = newBearer(c.Properties, base, &http.Client{Transport: h.reads, CheckRedirect: noRedirect})
	return h, err
}

// retryAfter is how long a server asks to be left alone, 0 for nothing.
func retryAfter(resp *http.Response, now time.Time) time.Duration {
	text := resp.Header.Get("Retry-After")
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return time.Duration(min(n, 1<<30)) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// RoundTrip implements http.RoundTripper for the library. A read whose token the
// server doesn't take any more is repeated once with a new one.
func (h *restHTTP) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return h.read(r)
	}
	if r.GetBody != nil {
		r = r.Clone(r.Context())
		r.GetBody = nil
	}
	resp, err := h.wire.RoundTrip(r)
	if err == nil && expired(resp.StatusCode) {
		h.auth.reset(r.Header.Get("Authorization"))
	}
	return resp, err
}

func (h *restHTTP) read(r *http.Request) (*http.Response, error) {
	resp, err := h.reads.RoundTrip(r)
	if err != nil || !expired(resp.StatusCode) || !h.auth.reset(r.Header.Get("Authorization")) {
		return resp, err
	}
	drain(resp.Body)
	_ = resp.Body.Close()
	key, value, err := h.auth.AuthHeaderWithContext(r.Context())
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set(key, value)
	return h.reads.RoundTrip(r)
}

// expired says whether a status means that the token isn't taken any more.
func expired(status int) bool { return status == http.StatusUnauthorized || status == 419 }

// Close closes idle connections and waits for what is under way for the token.
func (h *restHTTP) Close() {
	h.auth.close()
	h.transport.CloseIdleConnections()
}

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

// getJSON reads a JSON reply.
func (h *restHTTP) getJSON(ctx context.Context, url string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
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
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
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

// postOnce sends one copy of a commit, once, under an idempotency key if that
// isn't empty.
func (h *restHTTP) postOnce(ctx context.Context, url string, body []byte, key string) commit.Answer {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	if err := h.rest(ctx); err != nil {
		return commit.Answer{Class: commit.AnswerWait, Err: err}
	}
	// The reader is hidden, so that no GetBody is made of it.
	r, err := h.newRequest(ctx, http.MethodPost, url, io.NopCloser(bytes.NewReader(body)))
	if err != nil {
		// Nothing was sent: the credentials couldn't be had.
		return commit.Answer{Class: commit.AnswerAuth, Err: err}
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	r.ContentLength, r.GetBody = int64(len(body)), nil
	resp, err := h.once.Do(r)
	if err != nil {
		return commit.Answer{Class: commit.AnswerAmbiguous, Err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	a := commit.Answer{Class: classOf(resp.StatusCode), Status: resp.StatusCode}
	switch a.Class {
	case commit.AnswerAuth:
		h.auth.reset(r.Header.Get("Authorization"))
	case commit.AnswerWait:
		now := time.Now()
		h.pause.Store(now.Add(min(retryAfter(resp, now), maxRetryAfter)).UnixNano())
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

// rest waits as long as the server asked for, before anything is sent.
func (h *restHTTP) rest(ctx context.Context) error {
	left := time.Until(time.Unix(0, h.pause.Load()))
	if left <= 0 {
		return nil
	}
	t := time.NewTimer(left)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nothing was sent: the catalog asked for a pause of %s more: %w", left.Round(time.Millisecond), context.Cause(ctx))
	}
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
