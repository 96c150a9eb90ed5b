package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// PropertyAllowUnscoped is the property of a catalog that lets executors have keys
// which are good for more than their job, where the store has none that are less.
const PropertyAllowUnscoped = "allow_unscoped"

// Scoping says whether executors need keys to the table's files, and how far these
// can be narrowed: what isn't right about that, but allowed, is the warning.
func (s *Set) Scoping(ctx context.Context, name commit.TableName) (needed bool, warning string, err error) {
	if d, ok, err := s.delta.Find(ctx, "get storage credentials for", name); err != nil {
		return false, "", err
	} else if ok {
		return s.deltaScoping(d)
	}
	e, err := s.entry("get storage credentials for", name.Catalog)
	if err != nil {
		return false, "", err
	}
	own := e.config.objects()
	if own.Narrows() {
		return true, "", nil
	}
	vended, err := e.vend(ctx, name)
	if err != nil || len(vended) > 0 {
		return true, "", err
	}
	return Unscoped("catalog "+name.Catalog, e.config.Properties, s.options.AllowUnscoped)
}

// Unscoped says what it means that a store's keys can't be narrowed: nothing where
// there are no keys, an error where that isn't allowed, else the warning.
func Unscoped(of string, properties map[string]string, allowed bool) (needed bool, warning string, err error) {
	switch c := objstore.FromStorage(properties); {
	case c.AccessKeyID == "" && !c.Dynamic():
		return false, "", nil
	case allowed:
		return true, "", nil
	case properties[PropertyAllowUnscoped] == "true":
		return true, fmt.Sprintf("executors get the scheduler's own storage keys of %s, which aren't scoped to a job (allow_unscoped)", of), nil
	}
	return false, "", &commit.Error{
		Code: commit.CodeStorageUnscoped, Op: "give executors access to the store of", Object: of,
		Cause: errors.New("no STS is configured for it, and the catalog vends no credentials"),
	}
}

// UnscopedWarning is what to say at start of a store with such properties: empty where
// its keys are narrowed, or where executors don't get them.
func UnscopedWarning(of string, properties map[string]string) string {
	if objstore.FromStorage(properties).Narrows() {
		return ""
	}
	_, warning, _ := Unscoped(of, properties, false) // that it isn't allowed is told by statements
	return warning
}

// Mint makes keys for a scope of a table's files: STS narrows the configured keys, or those
// that the catalog vends, to the scope. Without STS the catalog's are given as they
// are, and the configured ones where Scoping allows that.
func (s *Set) Mint(ctx context.Context, name commit.TableName, scope objstore.Scope) (objstore.Keys, error) {
	if d, ok, err := s.delta.Find(ctx, "get storage credentials for", name); err != nil {
		return objstore.Keys{}, err
	} else if ok {
		return s.deltaMint(ctx, d, scope)
	}
	e, err := s.entry("get storage credentials for", name.Catalog)
	if err != nil {
		return objstore.Keys{}, err
	}
	own := e.config.objects()
	if !own.Narrows() || own.AccessKeyID == "" && !own.Dynamic() {
		vended, err := e.vend(ctx, name)
		if err != nil {
			return objstore.Keys{}, err
		}
		if c, ok := CredentialFor(vended, scopeLocation(scope)); ok {
			theirs := objstore.FromStorage(c.Settings)
			if theirs.STSEndpoint, theirs.RoleARN = own.STSEndpoint, own.RoleARN; !theirs.Narrows() {
				return keysOf(theirs, c.Expires), nil
			}
			own = theirs
		}
	}
	if !own.Narrows() {
		if _, _, err := s.Scoping(ctx, name); err != nil {
			return objstore.Keys{}, err
		}
		c, expires, err := own.Resolve(ctx)
		return keysOf(c, expires), err
	}
	return own.Narrow(ctx, scope)
}

// scopeLocation is a location in the scope.
func scopeLocation(s objstore.Scope) string {
	if s.Write != "" || len(s.Read) == 0 {
		return s.Write
	}
	return s.Read[0]
}

func keysOf(c objstore.Config, expires time.Time) objstore.Keys {
	return objstore.Keys{AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey, SessionToken: c.SessionToken, Expires: expires}
}

// vend asks the catalog for storage credentials; there are none where it's of a
// kind that has none.
func (e *entry) vend(ctx context.Context, name commit.TableName) ([]StorageCredential, error) {
	v, ok := e.backend.(vendor)
	if !ok {
		return nil, nil
	}
	c, err := v.Vend(ctx, name)
	return c, e.explain(ctx, "get storage credentials for", name, err)
}
