package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	icerest "github.com/apache/iceberg-go/catalog/rest"

	"github.com/firn-project/firn/internal/config"
)

// tokenTimeout bounds one request for a token, its repetitions included.
const tokenTimeout = 30 * time.Second

// bearer makes the Authorization header: a fixed token, or one got with OAuth2
// client credentials. One request for a token is under way at a time, whoever
// waits for it; it is made before the old token expires, while that one is still
// used, and doesn't end with the call that it was made for. A nil bearer stands
// for a catalog without credentials. It is safe for concurrent use.
type bearer struct {
	client     *http.Client
	endpoint   string
	credential string
	form       url.Values
	// closing ends what is under way.
	closing context.Context //nolint:containedctx // the life of the bearer
	cancel  context.CancelFunc
	flights sync.WaitGroup

	mu    sync.Mutex
	token string
	// renew is when a new token is asked for, expires when the old one isn't
	// used any more; zero when the server named no time.
	renew, expires time.Time
	flight         *flight
}

// flight is a request for a token. err is valid when done is closed.
type flight struct {
	done chan struct{}
	err  error
}

var _ icerest.ContextAuthManager = (*bearer)(nil)

// newBearer gives nil when no credentials are configured.
func newBearer(props map[string]string, base *url.URL, client *http.Client) (*bearer, error) {
	if props["token"] == "" && props["credential"] == "" {
		return nil, nil
	}
	b := &bearer{client: client, token: props["token"], credential: props["credential"], form: url.Values{"grant_type": {"client_credentials"}}}
	b.closing, b.cancel = context.WithCancel(context.Background())
	if err := b.at(base, props["oauth2-server-uri"]); err != nil {
		return nil, err
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

// at sets where tokens are got: an address, relative to the catalog's, or the
// catalog itself.
func (b *bearer) at(base *url.URL, uri string) error {
	if uri == "" {
		b.endpoint = base.JoinPath("v1", "oauth", "tokens").String()
		return nil
	}
	u, err := base.Parse(uri)
	if err == nil && u.Scheme != "http" && u.Scheme != "https" {
		err = fmt.Errorf("%q: want http:// or https://", config.MaskURI(uri))
	}
	if err != nil {
		return fmt.Errorf("oauth2-server-uri: %w", err)
	}
	b.endpoint = u.String()
	return nil
}

// AuthHeader implements the library's AuthManager.
func (b *bearer) AuthHeader() (string, string, error) {
	return b.AuthHeaderWithContext(context.Background())
}

// AuthHeaderWithContext implements the library's ContextAuthManager.
func (b *bearer) AuthHeaderWithContext(ctx context.Context) (string, string, error) {
	for {
		token, f := b.current(time.Now())
		if token != "" {
			return "Authorization", "Bearer " + token, nil
		}
		select {
		case <-f.done:
			if f.err != nil {
				return "", "", f.err
			}
		case <-ctx.Done():
			return "", "", context.Cause(ctx)
		}
	}
}

// current gives the token that may be used now, or the request that will bring
// one, and starts such a request when it's time.
func (b *bearer) current(now time.Time) (string, *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	usable := b.token != "" && (b.expires.IsZero() || now.Before(b.expires))
	if usable && (b.renew.IsZero() || now.Before(b.renew)) {
		return b.token, nil
	}
	if b.flight == nil {
		b.flight = &flight{done: make(chan struct{})}
		f := b.flight
		b.flights.Go(func() { b.fly(f) })
	}
	if usable {
		return b.token, nil
	}
	return "", b.flight
}

// fly gets a token. A failure leaves the old one in use until it expires, and the
// next try a moment away.
func (b *bearer) fly(f *flight) {
	ctx, cancel := context.WithTimeout(b.closing, tokenTimeout)
	defer cancel()
	token, lifetime, err := b.fetch(ctx)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
		f.err, b.renew = err, now.Add(5*time.Second)
	case lifetime > 0:
		b.token, b.renew, b.expires = token, now.Add(lifetime*3/4), now.Add(lifetime*19/20)
	default:
		b.token, b.renew, b.expires = token, time.Time{}, time.Time{}
	}
	b.flight = nil
	close(f.done)
}

// reset forgets the token of an Authorization header that the server didn't take,
// unless another one has come meanwhile, and says whether one can be had.
func (b *bearer) reset(header string) bool {
	if b == nil || b.credential == "" {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.token == strings.TrimPrefix(header, "Bearer ") {
		b.token = ""
	}
	return true
}

// close ends what is under way and waits for it.
func (b *bearer) close() {
	if b == nil {
		return
	}
	b.cancel()
	b.flights.Wait()
}

// fetch asks for a token once. Errors hold neither the credential nor a token.
func (b *bearer) fetch(ctx context.Context) (token string, lifetime time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.endpoint, strings.NewReader(b.form.Encode()))
	if err != nil {
		return "", 0, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	resp, err := b.client.Do(r)
	if err != nil {
		return "", 0, fmt.Errorf("get a catalog token: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	var reply struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
	}
	readable := err == nil && json.Unmarshal(raw, &reply) == nil
	switch {
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		return "", 0, fmt.Errorf("get a catalog token from %s: %s", config.MaskURI(b.endpoint), resp.Status)
	case resp.StatusCode != http.StatusOK:
		return "", 0, fmt.Errorf("%w: get a catalog token from %s: %s%s", errPermission, config.MaskURI(b.endpoint), resp.Status, oauthError(reply.Error))
	case err != nil || !readable || reply.AccessToken == "":
		return "", 0, fmt.Errorf("get a catalog token from %s: no token in the reply: %w", config.MaskURI(b.endpoint), errors.Join(err, errPermission))
	}
	return reply.AccessToken, time.Duration(min(max(reply.ExpiresIn, 0), 1<<30)) * time.Second, nil
}

// oauthError shows an OAuth2 error code if it is one: anything else in the reply
// might repeat what was sent.
func oauthError(code string) string {
	if code == "" || len(code) > 40 || strings.Trim(code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return ""
	}
	return " (" + code + ")"
}
