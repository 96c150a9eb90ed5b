package objstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/firn-project/firn/commit"
)

// Keys of the settings that FromStorage reads and Config.Storage writes. They
// are the only ones that travel to executors.
const (
	KeyEndpoint     = "s3.endpoint"
	KeyRegion       = "s3.region"
	KeyPathStyle    = "s3.path-style-access"
	KeyAccessKeyID  = "s3.access-key-id"
	KeySecretKey    = "s3.secret-access-key"
	KeySessionToken = "s3.session-token"
)

// Config says how to reach object stores. Nothing is taken from the environment
// or from instance metadata. The zero Config reaches local files, and public S3
// objects in us-east-1.
type Config struct {
	// Endpoint is the URL of an S3-compatible server; empty for AWS.
	Endpoint string
	// Region is the region to sign for; us-east-1 when empty.
	Region string
	// PathStyle puts the bucket into the path. It is always on with an
	// Endpoint unless VirtualHost is set.
	PathStyle   bool
	VirtualHost bool
	// AccessKeyID, SecretAccessKey and SessionToken are static credentials.
	// Without a key, requests are anonymous.
	AccessKeyID, SecretAccessKey, SessionToken string
}

// FromStorage reads the settings of plan.Pinned.Storage. Unknown keys are left
// out.
func FromStorage(m map[string]string) Config {
	c := Config{
		Endpoint:        m[KeyEndpoint],
		Region:          m[KeyRegion],
		AccessKeyID:     m[KeyAccessKeyID],
		SecretAccessKey: m[KeySecretKey],
		SessionToken:    m[KeySessionToken],
	}
	if s, ok := m[KeyPathStyle]; ok {
		on, err := strconv.ParseBool(s)
		c.PathStyle = on
		c.VirtualHost = err == nil && !on
	}
	return c
}

// Storage is the inverse of FromStorage: nil when nothing is set.
func (c Config) Storage() map[string]string {
	m := map[string]string{}
	for k, v := range map[string]string{
		KeyEndpoint: c.Endpoint, KeyRegion: c.Region, KeyAccessKeyID: c.AccessKeyID,
		KeySecretKey: c.SecretAccessKey, KeySessionToken: c.SessionToken,
	} {
		if v != "" {
			m[k] = v
		}
	}
	switch {
	case c.PathStyle:
		m[KeyPathStyle] = "true"
	case c.VirtualHost:
		m[KeyPathStyle] = "false"
	}
	if len(m) == 0 {
		return nil
	}
	return m
}

// New makes a store that routes each URI by its scheme. It opens no connection.
func New(c Config) Store {
	return &router{s3: newS3Store(c)}
}

// router sends each call to the store of the URI's scheme.
type router struct {
	local localStore
	s3    *s3Store
}

func (r *router) route(op, uri string) (Store, error) {
	switch scheme(uri) {
	case "", "file":
		return r.local, nil
	case "s3", "s3a", "s3n":
		return r.s3, nil
	default:
		return nil, badLocation(op, uri, fmt.Errorf("no store for the scheme %q", scheme(uri)))
	}
}

// scheme is the part before the first colon, or "" for a path. A colon after a
// slash is part of a path.
func scheme(uri string) string {
	i := strings.IndexAny(uri, ":/")
	if i <= 0 || uri[i] == '/' {
		return ""
	}
	return strings.ToLower(uri[:i])
}

func (r *router) Open(ctx context.Context, uri string) (Object, error) {
	s, err := r.route("open", uri)
	if err != nil {
		return nil, err
	}
	return s.Open(ctx, uri)
}

func (r *router) Create(ctx context.Context, uri string) (Writer, error) {
	s, err := r.route("create", uri)
	if err != nil {
		return nil, err
	}
	return s.Create(ctx, uri)
}

func (r *router) PutIfAbsent(ctx context.Context, uri string, data []byte) error {
	s, err := r.route("write", uri)
	if err != nil {
		return err
	}
	return s.PutIfAbsent(ctx, uri, data)
}

func (r *router) Stat(ctx context.Context, uri string) (int64, error) {
	s, err := r.route("stat", uri)
	if err != nil {
		return 0, err
	}
	return s.Stat(ctx, uri)
}

func (r *router) Delete(ctx context.Context, uri string) error {
	s, err := r.route("delete", uri)
	if err != nil {
		return err
	}
	return s.Delete(ctx, uri)
}

func (r *router) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	s, err := r.route("list", prefix)
	if err != nil {
		return func(yield func(Info, error) bool) { yield(Info{}, err) }
	}
	return s.List(ctx, prefix)
}

// Remote says whether a location lies in an object store, so that settings are
// needed to reach it.
func Remote(uri string) bool {
	s := scheme(uri)
	return s != "" && s != "file"
}

// storageError makes the error that a person reads: it names the operation and
// the URI, and wraps the sentinel that fits beside the store's own error.
func storageError(op, uri string, sentinel, err error) error {
	code := commit.CodeStorage
	switch {
	case errors.Is(sentinel, ErrNotFound):
		code = commit.CodeStorageNotFound
	case errors.Is(sentinel, ErrExists):
		code = commit.CodeStorageExists
	case errors.Is(sentinel, ErrPermission):
		code = commit.CodeStoragePermission
	case errors.Is(sentinel, ErrFull):
		code = commit.CodeStorageFull
	}
	cause := err
	switch {
	case sentinel != nil && err != nil && !errors.Is(err, sentinel):
		cause = fmt.Errorf("%w: %w", sentinel, err)
	case sentinel != nil && err == nil:
		cause = sentinel
	}
	info, _ := commit.Explain(string(code))
	return &commit.Error{Code: code, Op: op, Object: uri, Cause: cause, Hint: info.Hint}
}

func badLocation(op, uri string, err error) error {
	info, _ := commit.Explain(string(commit.CodeStorageLocation))
	return &commit.Error{Code: commit.CodeStorageLocation, Op: op, Object: uri, Cause: err, Hint: info.Hint}
}
