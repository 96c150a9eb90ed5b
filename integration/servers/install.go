package servers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/firn-project/firn/integration/process"
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
		process.NotHad(t, name, "integration/scripts/servers.sh", err.Error())
	}
	return path
}
