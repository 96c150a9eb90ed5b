package journal

import (
	"os"
	"path/filepath"
	"testing"
)

// A manifest that somebody is about to name stays, though another one with the same
// content was refused.
func TestAManifestThatIsAboutToBeNamedStays(t *testing.T) {
	j, err := Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	body := make([]byte, maxRow+1)
	first, err := j.keepManifest(body)
	if err != nil {
		t.Fatal(err)
	}
	second, err := j.keepManifest(body)
	if err != nil || second.file != first.file {
		t.Fatal(second, err)
	}
	there := func() bool {
		_, err := os.Stat(filepath.Join(j.dir, manifestDir, first.file))
		return err == nil
	}
	if j.settle(t.Context(), second, false); !there() {
		t.Error("it is gone, and another one is about to be put on record")
	}
	if j.settle(t.Context(), first, false); there() || len(j.claims.files) != 0 {
		t.Errorf("it stays, and nobody names it; claims: %v", j.claims.files)
	}
}
