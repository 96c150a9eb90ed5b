package delta

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/firn-project/firn/commit"
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
		u.Files[0].Path = prefix + strings.TrimPrefix(u.Files[0].Path, u.Prefix)
		u.Prefix = prefix
		u.Files[0].Size = h.dataFile(u.Files[0].Path, 3)
		if c.gone {
			if err := os.Remove(u.Files[0].Path); err != nil {
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
