package committest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

// memory is the harness of the in-memory table.
type memory struct {
	c     *committest.Catalog
	units int
}

func (h *memory) Open(testing.TB) commit.Table { return committest.NewDriver(h.c) }

func (h *memory) Unit(_ testing.TB, key string, files, rows int) commit.Unit {
	h.units++
	return committest.NewUnit(h.c, key, fmt.Sprintf("j-%d", h.units), files, rows)
}

func (h *memory) Rows(testing.TB) int64 { return h.c.Rows(commit.MainBranch) }

func (h *memory) Exists(_ testing.TB, path string) bool {
	if !strings.HasPrefix(path, "metadata/") {
		return true // data files aren't kept
	}
	return slices.Contains(h.c.MetadataFiles(), path)
}

func (h *memory) Foreign(testing.TB)    { h.c.Foreign(commit.MainBranch) }
func (h *memory) AddColumn(testing.TB)  { h.c.AddColumn() }
func (h *memory) ChangeSpec(testing.TB) { h.c.ChangeSpec() }
func (h *memory) Drop(testing.TB)       { h.c.Drop() }
func (h *memory) Recreate(testing.TB)   { h.c.Recreate() }
func (h *memory) Rollback(testing.TB) {
	h.c.SetHead(commit.MainBranch, h.c.Parent(h.c.Head(commit.MainBranch)))
}

func TestConformance(t *testing.T) {
	for name, mode := range map[string]committest.Mode{
		"seat":         {},
		"pointer":      {Pointer: true},
		"staleSeat400": {StaleSeat400: true},
	} {
		t.Run(name, func(t *testing.T) {
			committest.Run(t, func(*testing.T) committest.Harness {
				return &memory{c: committest.NewCatalog(mode)}
			})
		})
	}
}
