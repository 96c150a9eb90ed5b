package config

import (
	"fmt"
	"path"
	"path/filepath"
)

// CreateCatalog says what the statement CREATE CATALOG may do. Clients that send
// it make the scheduler open addresses and read secrets, so that services allow
// nothing by default.
type CreateCatalog struct {
	// Types are the types of catalogs that may be made.
	Types []string `yaml:"types"`
	// Secrets are what the properties may refer to.
	Secrets CreateCatalogSecrets `yaml:"secrets"`
}

// CreateCatalogSecrets are what the properties of CREATE CATALOG may refer to.
type CreateCatalogSecrets struct {
	// Env are patterns of names of environment variables, such as LAKE_*.
	Env []string `yaml:"env"`
	// Files are directories.
	Files []string `yaml:"files"`
	// Commands lets any command run.
	Commands bool `yaml:"commands"`
}

func (c CreateCatalog) validate() error {
	for i, t := range c.Types {
		if err := CheckCatalogType(t); err != nil {
			return fmt.Errorf("create_catalog.types[%d]: %w", i, err)
		}
	}
	for i, dir := range c.Secrets.Files {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("create_catalog.secrets.files[%d]: %q: want an absolute path", i, dir)
		}
	}
	for i, p := range c.Secrets.Env {
		if _, err := path.Match(p, ""); err != nil {
			return fmt.Errorf("create_catalog.secrets.env[%d]: %q: want a name, or a pattern such as LAKE_*", i, p)
		}
	}
	return nil
}
