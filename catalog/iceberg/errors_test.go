package iceberg_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

func errorAs[T error](err error, to *T) bool { return errors.As(err, to) }

// forbidding is a store in which nothing can be written.
type forbidding struct{ objstore.Store }

func (forbidding) Create(context.Context, string) (objstore.Writer, error) {
	return nil, fmt.Errorf("create: %w", objstore.ErrPermission)
}

func (forbidding) PutIfAbsent(context.Context, string, []byte) error {
	return fmt.Errorf("put: %w", objstore.ErrPermission)
}

// TestNoPermissionToBuild: what another try can't change is a reason to refuse at
// once, and to keep the files.
func TestNoPermissionToBuild(t *testing.T) {
	f := newFixture(t, idKV(), byK(), nil)
	k := "a"
	u := f.unit("k", f.file(false, rows(&k, 1)))
	f.store = forbidding{f.store}
	f.reopen()
	_, err := f.driver.Build(t.Context(), f.read(), []commit.Unit{u})
	if commit.ReasonOf(err) != commit.ReasonPermission || commit.KindOf(err) != commit.KindPermission || !errors.Is(err, objstore.ErrPermission) {
		t.Errorf("reason %q, kind %s: %v", commit.ReasonOf(err), commit.KindOf(err), err)
	}
}
