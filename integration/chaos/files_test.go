//go:build chaos

package chaos_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/firn-project/firn/client"
	"github.com/firn-project/firn/integration/history"
)

const (
	// sweepDelay is how long after a job's end an executor may still write: as
	// long as one is frozen.
	sweepDelay = 2 * executorTimeout
	// sweeping bounds the wait for the last sweeps.
	sweeping = time.Minute
)

// leftovers are what the schedulers say of what isn't in the table.
type leftovers struct {
	// kept is why the files of a job stay, by job.
	kept map[string]string
	bad  []string
}

// swept waits until each scheduler has swept what its ended jobs left, and asks
// what must stay.
func (l *lab) swept() leftovers {
	out := leftovers{kept: map[string]string{}}
	ctx, cancel := context.WithTimeout(l.t.Context(), sweeping)
	defer cancel()
	for i, c := range l.clients {
		found, err := c.Orphans(ctx, "lake.c.t", client.OrphansOptions{Wait: true})
		if err != nil {
			out.bad = append(out.bad, fmt.Sprintf("scheduler %d hasn't swept: %v", i, err))
			continue
		}
		for _, o := range found {
			if o.Kept != "" {
				out.kept[o.JobID] = o.Kept
				continue
			}
			out.bad = append(out.bad, fmt.Sprintf("job %s (%s, commit %s) left %v after its last sweep: %s", o.JobID, o.State, o.Commit, o.Files, o.Why))
		}
	}
	return out
}

// firns is in the name of each metadata file that Firn writes for a request: a
// UUIDv7. The other writers here use random ones.
var firns = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)

// unreferenced counts the files of the table that no snapshot names. Those
// of a job that must stay by the record are kept, and so are those of requests as
// long as any job or request must; those of other writers are no
// concern of Firn's. Each other one is a leftover, and so are unfinished files and
// empty directories.
func (l *lab) unreferenced(dir string, audit history.Report, left leftovers) (kept int, bad []string) {
	bad = left.bad
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if filepath.Base(filepath.Dir(path)) == "metadata" && firns.MatchString(d.Name()) && !audit.Metadata[path] {
			if len(left.kept) > 0 {
				kept++
			} else {
				bad = append(bad, path+" is in no snapshot, and no request keeps it")
			}
			return nil
		}
		job := jobOf(path)
		if job == "" || audit.Files[path] {
			return nil
		}
		if d.IsDir() {
			entries, err := os.ReadDir(path)
			if err != nil || len(entries) > 0 {
				return err
			}
		}
		if left.kept[job] != "" {
			kept++
			return nil
		}
		bad = append(bad, path+" is in no snapshot, and nothing keeps it")
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return kept, bad
}

// jobOf is the job below whose prefix a path lies, empty for none.
func jobOf(path string) string {
	for part := range strings.SplitSeq(filepath.ToSlash(path), "/") {
		if strings.HasPrefix(part, "j-") {
			return part
		}
	}
	return ""
}
