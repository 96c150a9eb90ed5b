package catalog

import (
	"errors"
	"maps"
	"strings"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/objstore"
)

// Config names one catalog and says how to reach it.
type Config struct {
	// Name is the first part of the names of its tables.
	Name string
	// Type is "sql" (SQLite or PostgreSQL) or "rest".
	Type string
	// URI is a path, sqlite:///path or postgresql://user@host/database for
	// "sql", and http(s)://… for "rest".
	URI string
	// Warehouse is where new tables are put: a URI or an absolute path for
	// "sql", the server's name for it for "rest".
	Warehouse string
	// Properties are the catalog's own, in Iceberg's names: s3.endpoint,
	// s3.access-key-id, …; for "rest" also credential, token, scope,
	// oauth2-server-uri, prefix. They hold secrets.
	Properties map[string]string
}

// objects is how the tables' files are reached: storage settings by an allow-list,
// and nothing of the catalog.
func (c Config) objects() objstore.Config {
	m := maps.Clone(c.Properties)
	if m == nil {
		m = map[string]string{}
	}
	if m[objstore.KeyRegion] == "" {
		m[objstore.KeyRegion] = m["client.region"]
	}
	return objstore.FromStorage(m)
}

// storage is what of objects may travel to executors.
func (c Config) storage() map[string]string { return c.objects().Storage() }

func (c Config) check() error {
	switch {
	case c.Name == "":
		return configError(c.Name, errors.New("it has no name"))
	case strings.ContainsAny(c.Name, "./\x00"):
		return configError(c.Name, errors.New("a name can't hold a dot or a slash"))
	case c.URI == "":
		return configError(c.Name, errors.New("it has no uri"))
	}
	return nil
}

func configError(name string, cause error) error {
	return newError(commit.CodeCatalogConfig, "configure catalog", name, cause)
}
