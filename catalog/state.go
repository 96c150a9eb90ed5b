package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/internal/config"
	"github.com/firn-project/firn/internal/durable"
	"github.com/firn-project/firn/sql"
)

// stateVersion is the form of the state file.
const stateVersion = 1

// state is what a Set keeps in a file: the catalogs that statements made, and
// what the probes of each catalog found.
type state struct {
	Version  int                   `json:"version"`
	Catalogs map[string]savedDef   `json:"catalogs"`
	Checks   map[string]savedCheck `json:"checks"`
}

// savedDef is a CREATE CATALOG. References to secrets are kept as references; a
// secret that the statement itself held stands here as it was, so that the file
// is its owner's alone.
type savedDef struct {
	Type       string            `json:"type"`
	URI        string            `json:"uri"`
	Warehouse  string            `json:"warehouse,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
}

// savedCheck is a report. It counts for a catalog of the same identity only.
type savedCheck struct {
	Identity string            `json:"identity"`
	Report   sql.CatalogReport `json:"report"`
}

// identity tells whether a catalog of a name is still the one that was probed.
func (c Config) identity() string {
	sum := sha256.New()
	for _, part := range []string{c.Type, config.MaskURI(c.URI), c.Warehouse, c.Properties["prefix"], c.Properties["catalog-name"]} {
		_, _ = fmt.Fprintf(sum, "%d:%s", len(part), part) // a hash never fails
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// loadState reads the file; a missing one is empty.
func loadState(path string) (state, error) {
	st := state{Version: stateVersion, Catalogs: map[string]savedDef{}, Checks: map[string]savedCheck{}}
	if path == "" {
		return st, nil
	}
	if err := durable.ReadState(path, stateVersion, &st); err != nil {
		return st, newError(commit.CodeCatalogConfig, "read the catalogs' state", path, err)
	}
	if st.Catalogs == nil {
		st.Catalogs = map[string]savedDef{}
	}
	if st.Checks == nil {
		st.Checks = map[string]savedCheck{}
	}
	return st, nil
}

// save replaces the file, durably.
func (st state) save(path string) error {
	if path == "" {
		return nil
	}
	if err := durable.WriteState(path, st); err != nil {
		return newError(commit.CodeCatalog, "keep the catalogs' state", path, err)
	}
	return nil
}
