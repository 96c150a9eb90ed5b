package cluster

import (
	"context"

	"github.com/firn-project/firn/catalog"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/scheduler/storekeys"
)

// storeKeys mint executors' keys from what is configured for the catalogs and for
// the stores that statements read from.
type storeKeys struct {
	catalogs *catalog.Set
	sources  sourceStores
	// oneProcess: executors could take the keys anyway.
	oneProcess bool
}

// Scoping implements storekeys.Minter.
func (k storeKeys) Scoping(ctx context.Context, s storekeys.Store) (needed bool, warning string, err error) {
	if s.Table.Name != "" {
		return k.catalogs.Scoping(ctx, s.Table)
	}
	st := k.sources.find(s.Location)
	switch {
	case st == nil:
		return false, "", nil
	case objstore.FromStorage(st.Properties).Narrows():
		return true, "", nil
	}
	return catalog.Unscoped("sources.stores, "+st.Location, st.Properties, k.oneProcess)
}

// Mint implements storekeys.Minter.
func (k storeKeys) Mint(ctx context.Context, s storekeys.Store, scope objstore.Scope) (objstore.Keys, error) {
	if s.Table.Name != "" {
		return k.catalogs.Mint(ctx, s.Table, scope)
	}
	st := k.sources.find(s.Location)
	if st == nil {
		return objstore.Keys{}, nil
	}
	c := objstore.FromStorage(st.Properties)
	if c.Narrows() {
		return c.Narrow(ctx, scope)
	}
	if _, _, err := catalog.Unscoped("sources.stores, "+st.Location, st.Properties, k.oneProcess); err != nil {
		return objstore.Keys{}, err
	}
	c, expires, err := c.Resolve(ctx)
	return objstore.Keys{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken, Expires: expires}, err
}
