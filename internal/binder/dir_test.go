package binder

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A pool's directory goes with the next pool if its process was killed, and stays
// while that lives, or may just be about to lock it.
func TestDirectoriesOfDeadProcessesGo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	age := func(dir string) string {
		old := time.Now().Add(-2 * young)
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	made := func(name string) string {
		dir := filepath.Join(os.TempDir(), dirPrefix+name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	live, lock, err := makeDir()
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	age(live)
	dead, fresh, used := age(made("dead")), made("fresh"), made("used")
	if err := os.WriteFile(used+"/f", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	age(used)
	dir, own, err := makeDir()
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	for path, want := range map[string]bool{live: true, dead: false, fresh: true, used: true, dir: true} {
		if _, err := os.Stat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it there: %v", path, err, want)
		}
	}
}
