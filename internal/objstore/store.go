package objstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/firn-project/firn/commit"
)

// New makes a store that routes each URI by its scheme. It opens no connection.
func New(c Config) Store {
	return &router{s3: newS3Store(c, defaultTuning)}
}

// router sends each call to the store of the URI's scheme.
type router struct {
	local localStore
	s3    Store
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
	case errors.Is(sentinel, ErrUncertain):
		code = commit.CodeStorageUncertain
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

// WriteFile writes a whole object under a name that nobody else uses, durably. In
// an object store it's repeated until it's there, unlike PutIfAbsent; a name that
// is taken is ErrExists all the same.
func WriteFile(ctx context.Context, s Store, uri string, data []byte) error {
	if !Remote(uri) {
		return s.PutIfAbsent(ctx, uri, data)
	}
	w, err := s.Create(ctx, uri)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Commit(ctx)
}
