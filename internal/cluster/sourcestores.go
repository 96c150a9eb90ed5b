package cluster

import (
	"context"
	"strings"

	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/objstore"
)

// sourceStores are the object stores that statements may read from.
type sourceStores []config.SourceStore

// find gives the store with the longest location above the object; nil for none.
func (s sourceStores) find(uri string) *config.SourceStore {
	var best *config.SourceStore
	for i, st := range s {
		below := strings.TrimRight(st.Location, "/") + "/"
		if strings.HasPrefix(uri, below) && (best == nil || len(best.Location) < len(st.Location)) {
			best = &s[i]
		}
	}
	return best
}

// reach gives the settings of the store of an object; nil if there is none, and the
// object is read anonymously.
func (s sourceStores) reach(ctx context.Context, uri string) (map[string]string, error) {
	best := s.find(uri)
	if best == nil {
		return nil, nil
	}
	c, _, err := objstore.FromStorage(best.Properties).Resolve(ctx)
	return c.Storage(), err
}
