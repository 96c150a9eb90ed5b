package deltatables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// lookAgain is after how long a store that isn't fit is looked at again.
const lookAgain = 10 * time.Minute

// fit makes sure, before the first commit to a store, that it honours
// If-None-Match: where it doesn't, two writers of one version both succeed, and one
// commit is lost. What was found is kept. Local disk needs no look: link(2) either
// keeps its promise or fails.
func (t *Table) fit(ctx context.Context) error {
	if !objstore.Remote(t.Location) {
		return nil
	}
	names := t.tables.config.Names
	store := t.storeName()
	if names != nil {
		f, ok, err := names.Fitness(ctx, store)
		switch {
		case err != nil:
			return err
		case ok && f.Fit:
			return nil
		case ok && t.tables.config.Now().Sub(f.At) < lookAgain:
			return unfit(store)
		}
	}
	fits, err := t.tryTwice(ctx)
	if err != nil {
		return fmt.Errorf("look whether %s is fit for Delta tables: %w", store, err)
	}
	if names != nil {
		if err := names.KeepFitness(ctx, store, Fitness{Fit: fits, At: t.tables.config.Now()}); err != nil {
			return err
		}
	}
	if !fits {
		return unfit(store)
	}
	return nil
}

func unfit(store string) error {
	info, _ := commit.Explain(string(commit.CodeDeltaStoreUnfit))
	return &commit.Error{
		Code: commit.CodeDeltaStoreUnfit, Op: "commit to a Delta table in", Object: store, Reason: commit.ReasonValidation,
		Cause: errors.New("it takes a second object under a name that is taken"), Hint: info.Hint,
	}
}

// knownUnfit says why nothing may be written to the store, as far as that is known.
func (t *Table) knownUnfit(ctx context.Context) (string, error) {
	if t.tables.config.Names == nil || !objstore.Remote(t.Location) {
		return "", nil
	}
	f, ok, err := t.tables.config.Names.Fitness(ctx, t.storeName())
	if err != nil || !ok || f.Fit || t.tables.config.Now().Sub(f.At) >= lookAgain {
		return "", err
	}
	return "its store, " + t.storeName() + ", takes a second object under a name that is taken, so that commits would be lost", nil
}

// storeName is the table's bucket with the address of its server.
func (t *Table) storeName() string {
	_, rest, _ := strings.Cut(t.Location, "://")
	bucket, _, _ := strings.Cut(rest, "/")
	return strings.TrimRight(t.Objects.Endpoint+"/"+bucket, "/")
}

// tryTwice puts an object beside the table's files twice; the second must be
// refused. Readers pass over names that begin with an underscore.
func (t *Table) tryTwice(ctx context.Context) (fits bool, err error) {
	uri := t.Location + "/_firn_look_" + uuid.NewString()
	if err := t.store.PutIfAbsent(ctx, uri, []byte("first")); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, t.store.Delete(ctx, uri)) }()
	switch err := t.store.PutIfAbsent(ctx, uri, []byte("second")); {
	case errors.Is(err, objstore.ErrExists):
		return true, nil
	case err != nil:
		return false, err
	}
	return false, nil
}
