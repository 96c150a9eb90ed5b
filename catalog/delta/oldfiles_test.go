package delta

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
	"github.com/firn-project/firn/commit/committest"
)

// TestOldFiles: a unit of a job older than half of what the table keeps removed files
// for is committed only if its files are there.
func TestOldFiles(t *testing.T) {
	h := newHarness(t)
	table := h.open()
	defer table.Close()
	v := h.view()
	for name, c := range map[string]struct {
		age     time.Duration
		gone    bool
		refused bool
	}{
		"young":          {time.Hour, true, false},
		"old":            {4 * 24 * time.Hour, false, false},
		"old, file gone": {4 * 24 * time.Hour, true, true},
	} {
		u := h.Unit(t, "key "+name, 1, 3)
		id := uuid.Must(uuid.NewV7())
		prefix := h.dir + "/j-" + id.String() + "/"
		committest.EditFile(&u, 0, func(f *commit.File) {
			f.Path = prefix + strings.TrimPrefix(f.Path, u.Prefix)
			f.Size = h.dataFile(f.Path, 3)
		})
		u.Prefix = prefix
		if c.gone {
			if err := os.Remove(u.Files.Path(0)); err != nil {
				t.Fatal(err)
			}
		}
		table.now = func() time.Time { return time.Now().Add(c.age) }
		_, err := table.Build(t.Context(), v, []commit.Unit{u})
		if (err != nil) != c.refused || c.refused && commit.ReasonOf(err) != commit.ReasonValidation {
			t.Errorf("%s: %v", name, err)
		}
	}
}
