package scenarios_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/firn-project/firn/client"
)

var requestID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-([89ab][0-9a-f]{3}-[0-9a-f]{12})`)

// A process dies while it writes a metadata file: the temporary file is listed as
// long as it runs, and the next process deletes it, and no other's.
func TestTemporaryFilesOfAProcessThatDied(t *testing.T) {
	l := newLab(t, "")
	l.must("a", 1)
	dir := filepath.Join(strings.TrimPrefix(l.table().Location(), "file://"), "metadata")
	names, err := filepath.Glob(filepath.Join(dir, "*.avro"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%v, %v", names, err)
	}
	mark := requestID.FindStringSubmatch(filepath.Base(names[0]))[1]
	half := func(id string) string {
		t.Helper()
		p := filepath.Join(dir, ".snap-1-0-"+id+".avro.XYZ.firn-tmp")
		if err := os.WriteFile(p, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	id := uuid.Must(uuid.NewV7()).String()
	own, others := half(id[:19]+mark), half(id)
	listed := func() (files []string, kept bool) {
		t.Helper()
		found, err := l.client.Orphans(t.Context(), "lake.s.t", client.OrphansOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range found {
			files, kept = append(files, o.Files...), kept || o.Kept != ""
		}
		return files, kept
	}
	if files, kept := listed(); !slices.Equal(files, []string{"file://" + own}) || !kept {
		t.Errorf("while its process runs: %v, kept %t", files, kept)
	}
	l.stop()
	l.start()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, err = os.Stat(own); err == nil; _, err = os.Stat(own) {
		<-tick.C
	}
	if files, _ := listed(); len(files) > 0 {
		t.Errorf("listed after it was deleted: %v", files)
	}
	if _, err := os.Stat(others); err != nil {
		t.Error(err)
	}
	l.holds(1)
}
