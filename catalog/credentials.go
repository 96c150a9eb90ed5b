package catalog

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// StorageCredential is what a catalog vended to reach the files below a prefix.
type StorageCredential struct {
	// Prefix is a location, such as s3://bucket/path; empty when the catalog
	// named none.
	Prefix string
	// Settings are storage settings in objstore's names, by an allow-list.
	// They hold secrets.
	Settings map[string]string
	// Expires is when the credential ends; zero when the catalog didn't say.
	Expires time.Time
}

// String keeps the secrets out of logs.
func (c StorageCredential) String() string { return "storage credential for " + c.Prefix }

// GoString is String, for %#v.
func (c StorageCredential) GoString() string { return c.String() }

// vendedCredentials is a storage credential in a REST catalog's reply.
type vendedCredentials struct {
	Prefix string            `json:"prefix"`
	Config map[string]string `json:"config"`
}

// expiryKeys are where catalogs write when a credential ends, in milliseconds.
var expiryKeys = []string{"s3.session-token-expires-at-ms", "expiration-time"}

// vended reads what a reply to a load holds: the credentials by prefix, and those
// in the table's configuration, which older servers use alone. Everything that
// isn't a storage setting is left out, the table's own catalog token too.
func vended(reply loadReply) []StorageCredential {
	var out []StorageCredential
	for _, v := range append(slices.Clone(reply.Credentials), vendedCredentials{Config: reply.Config}) {
		if v.Config[objstore.KeyAccessKeyID] == "" {
			continue
		}
		// Where the store is stands often in the table's configuration only;
		// keys of two credentials are never mixed.
		all := maps.Clone(v.Config)
		for _, k := range []string{objstore.KeyEndpoint, objstore.KeyRegion, "client.region", objstore.KeyPathStyle} {
			if all[k] == "" && reply.Config[k] != "" {
				all[k] = reply.Config[k]
			}
		}
		c := StorageCredential{Prefix: v.Prefix, Settings: Config{Properties: all}.storage()}
		for _, k := range expiryKeys {
			if ms, err := strconv.ParseInt(v.Config[k], 10, 64); err == nil && ms > 0 && c.Expires.IsZero() {
				c.Expires = time.UnixMilli(ms)
			}
		}
		out = append(out, c)
	}
	return out
}

// vendor is a backend that gives storage credentials for a table.
type vendor interface {
	Vend(ctx context.Context, name commit.TableName) ([]StorageCredential, error)
}

// Vend implements vendor. It asks afresh each time.
func (r *restCatalog) Vend(ctx context.Context, name commit.TableName) ([]StorageCredential, error) {
	reply, err := r.load(ctx, name, "refs")
	if err != nil {
		return nil, err
	}
	return vended(reply), nil
}

// StorageCredentials asks the table's catalog for storage credentials, afresh.
// There are none when the catalog vends none, or is of a kind that can't. Callers
// keep them until shortly before they expire, and never give on more than
// Settings.
func (s *Set) StorageCredentials(ctx context.Context, name commit.TableName) ([]StorageCredential, error) {
	e, err := s.entry("get storage credentials for", name.Catalog)
	if err != nil {
		return nil, err
	}
	return e.vend(ctx, name)
}

// CredentialFor picks the credential with the longest prefix that holds the
// location.
func CredentialFor(all []StorageCredential, location string) (StorageCredential, bool) {
	best, found := StorageCredential{}, false
	for _, c := range all {
		p := strings.TrimRight(c.Prefix, "/")
		// A prefix with a path ends where a part of the path does; one without,
		// such as s3, holds all of its kind.
		if strings.Contains(p, "://") && location != p && !strings.HasPrefix(location, p+"/") || !strings.HasPrefix(location, p) {
			continue
		}
		if !found || len(p) > len(strings.TrimRight(best.Prefix, "/")) {
			best, found = c, true
		}
	}
	return best, found
}
