package storekeys

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

// Store is where files of a job lie: those of a table, or those at locations that a
// statement names, of which Location is one.
type Store struct {
	Table    commit.TableName
	Location string
}

// Minter makes keys. The implementation has the configurations of the catalogs and
// of the stores.
type Minter interface {
	// Scoping says whether the store needs keys at all. The warning is for keys
	// that can't be narrowed, where that is allowed; where it isn't, the error.
	Scoping(ctx context.Context, s Store) (needed bool, warning string, err error)
	// Mint makes keys for the scope.
	Mint(ctx context.Context, s Store, scope objstore.Scope) (objstore.Keys, error)
}

// Scope takes the keys out of the copy of a plan that goes to executors, and gives
// what they will be asked for. The names depend on the plan alone: attempts go on
// under the next process. A nil Minter gives no keys. The warnings are for people.
func Scope(ctx context.Context, m Minter, top plan.Node) (scoped plan.Node, job *Job, warnings []string, err error) {
	job = &Job{minter: m, credentials: map[string]*credential{}}
	warned := map[string]bool{}
	add := func(storage map[string]string, name string, s Store, scope objstore.Scope) map[string]string {
		if len(storage) == 0 {
			return nil
		}
		public := objstore.FromStorage(storage).Server().Storage()
		if m == nil || err != nil {
			return public
		}
		needed, warning, serr := m.Scoping(ctx, s)
		if serr != nil {
			err = serr
			return nil
		}
		if warning != "" && !warned[warning] {
			warned[warning] = true
			warnings = append(warnings, warning)
		}
		if !needed {
			return public
		}
		if public == nil {
			public = map[string]string{}
		}
		public[objstore.KeyCredential] = name
		job.credentials[name] = newCredential(s, scope)
		return public
	}
	writes, reads := 0, 0
	scoped = plan.Rewrite(top, func(n plan.Node) {
		switch n := n.(type) {
		case *plan.Write:
			w := &n.Context
			w.Storage = add(w.Storage, fmt.Sprintf("w%d", writes), Store{Table: w.Table}, objstore.Scope{Write: w.Prefix})
			writes++
		case *plan.External:
			w := &n.Context
			w.Storage = add(w.Storage, KeysOfWrite, Store{Table: w.Table}, objstore.Scope{Write: w.Prefix})
		case *plan.Query:
			n.Sources = slices.Clone(n.Sources)
			for i := range n.Sources {
				src := &n.Sources[i]
				files := filesOf(src)
				st := Store{Table: src.Table}
				if src.Kind != plan.SourceTable && len(files) > 0 {
					st = Store{Location: files[0]}
				}
				if len(files) == 0 {
					src.Storage = nil
				}
				src.Storage = add(src.Storage, fmt.Sprintf("r%d", reads), st, objstore.Scope{Read: readable(files)})
				reads++
			}
		}
	})
	return scoped, job, warnings, err
}

// ScopeProbe gives the sources of a probe with keys in them: to list and read what
// their patterns stand for. A probe is no attempt of a job, and has no other way to
// get keys.
func ScopeProbe(ctx context.Context, m Minter, sources []plan.Source) ([]plan.Source, error) {
	sources = slices.Clone(sources)
	for i := range sources {
		src := &sources[i]
		if len(src.Storage) == 0 {
			continue
		}
		c := objstore.FromStorage(src.Storage).Server()
		scope := objstore.Scope{Read: readable(filesOf(src))}
		st := Store{Table: src.Table}
		for _, p := range src.Patterns {
			if !objstore.Remote(p) {
				continue
			}
			st.Location = p
			if cut := strings.IndexAny(p, globChars); cut >= 0 {
				p = p[:cut]
				scope.List = append(scope.List, p)
				scope.Read = append(scope.Read, p+"*")
				continue
			}
			scope.Read = append(scope.Read, p)
		}
		if m != nil && len(scope.Read) > 0 {
			needed, _, err := m.Scoping(ctx, st)
			if err != nil {
				return nil, err
			}
			if needed {
				k, err := m.Mint(ctx, st, scope)
				if err != nil {
					return nil, err
				}
				c.AccessKeyID, c.SecretAccessKey, c.SessionToken = k.AccessKeyID, k.SecretAccessKey, k.SessionToken
			}
		}
		src.Storage = c.Storage()
	}
	return sources, nil
}

const globChars = "*?["

// filesOf are the objects that a source reads, with the deletes.
func filesOf(src *plan.Source) []string {
	var all []string
	for _, f := range src.Files {
		all = append(append(all, f.Path), f.PositionDeletes...)
		for _, d := range f.EqualityDeletes {
			all = append(all, d.Path)
		}
		if f.Vector != nil {
			all = append(all, f.Vector.File)
		}
	}
	all = slices.DeleteFunc(all, func(p string) bool { return !objstore.Remote(p) })
	slices.Sort(all)
	return slices.Compact(all)
}

// maxReadable is how many bytes of names fit into a policy beside the rest.
const maxReadable = 1400

// readable is what to name in a scope so that these files, sorted, can be read: the
// files themselves, or when they are too many the directories that they are in, and
// at last the part of the path that all have in common.
func readable(files []string) []string {
	named := files
	if slices.ContainsFunc(named, func(f string) bool { return strings.ContainsAny(f, "*?$") }) || tooLong(named) {
		named = nil
		for _, f := range files {
			named = append(named, f[:strings.LastIndexByte(f, '/')+1]+"*")
		}
		slices.Sort(named)
		named = slices.Compact(named)
	}
	for tooLong(named) && len(named) > 1 {
		// One level up, for all of them.
		var up []string
		for _, d := range named {
			dir := strings.TrimSuffix(d, "/*")
			if cut := strings.LastIndexByte(dir, '/'); strings.Count(dir, "/") > 2 {
				d = dir[:cut] + "/*"
			}
			up = append(up, d)
		}
		slices.Sort(up)
		up = slices.Compact(up)
		if slices.Equal(up, named) {
			break
		}
		named = up
	}
	return named
}

func tooLong(names []string) bool {
	n := 0
	for _, s := range names {
		n += len(s) + len(`"arn:aws:s3:::",`)
	}
	return n > maxReadable
}
