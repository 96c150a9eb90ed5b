package servers

import (
	"bufio"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// installed gives the path of a file of an installed server. A server that isn't
// there fails the test, or skips it where not-had.txt has the reason.
func installed(t testing.TB, name, file string) string {
	t.Helper()
	dir := os.Getenv("FIRN_SERVERS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(cache, "firn", "servers")
	}
	path := filepath.Join(dir, name, file)
	if _, err := os.Stat(path); err != nil {
		missing(t, name, err.Error()+": run integration/scripts/servers.sh first")
	}
	return path
}

func missing(t testing.TB, name, what string) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	f, err := os.Open(filepath.Join(filepath.Dir(here), "..", "not-had.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if reason, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			t.Skipf("%s can't be had here:%s", name, reason)
		}
	}
	t.Fatal(what)
}
