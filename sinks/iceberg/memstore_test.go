package iceberg

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/firn-project/firn/internal/objstore"
)

// memStore keeps objects in memory: a local disk syncs each file, and the tests
// write thousands.
type memStore struct{ objects map[string][]byte }

type memObject struct{ *bytes.Reader }

func (o memObject) Size() int64 { return o.Reader.Size() }
func (memObject) Close() error  { return nil }

func (s *memStore) Open(_ context.Context, uri string) (objstore.Object, error) {
	b, ok := s.objects[uri]
	if !ok {
		return nil, fmt.Errorf("%s: %w", uri, objstore.ErrNotFound)
	}
	return memObject{bytes.NewReader(b)}, nil
}

func (s *memStore) Create(_ context.Context, uri string) (objstore.Writer, error) {
	return &memWriter{store: s, uri: uri}, nil
}

func (s *memStore) PutIfAbsent(_ context.Context, uri string, data []byte) error {
	if _, ok := s.objects[uri]; ok {
		return fmt.Errorf("%s: %w", uri, objstore.ErrExists)
	}
	s.objects[uri] = bytes.Clone(data)
	return nil
}

func (s *memStore) Stat(_ context.Context, uri string) (int64, error) {
	b, ok := s.objects[uri]
	if !ok {
		return 0, fmt.Errorf("%s: %w", uri, objstore.ErrNotFound)
	}
	return int64(len(b)), nil
}

func (s *memStore) Delete(_ context.Context, uri string) error {
	delete(s.objects, uri)
	return nil
}

// ListUnfinished finds nothing, as RemoveUnfinished does.
func (s *memStore) ListUnfinished(context.Context, string) iter.Seq2[objstore.Info, error] {
	return func(func(objstore.Info, error) bool) {}
}

// RemoveUnfinished finds nothing: an object is there whole or not at all.
func (s *memStore) RemoveUnfinished(context.Context, string) (int, error) { return 0, nil }

func (s *memStore) List(_ context.Context, prefix string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for _, uri := range slices.Sorted(maps.Keys(s.objects)) {
			if strings.HasPrefix(uri, prefix) && !yield(objstore.Info{URI: uri, Size: int64(len(s.objects[uri]))}, nil) {
				return
			}
		}
	}
}

type memWriter struct {
	bytes.Buffer
	store *memStore
	uri   string
}

func (w *memWriter) Commit(ctx context.Context) error {
	return w.store.PutIfAbsent(ctx, w.uri, w.Bytes())
}

func (w *memWriter) Abort() { w.Reset() }
