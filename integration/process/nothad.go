package process

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// NotHad ends a test for which something can't be had here: it fails, or is skipped
// where integration/not-had.txt gives the reason under the name. wanted is what was
// tried, and problem what it came to.
func NotHad(t testing.TB, name, wanted, problem string) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	reasons, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", "not-had.txt"))
	if err != nil {
		t.Fatal(err)
	}
	said := fmt.Sprintf("NOT HAD: %s, %s, %s", name, wanted, problem)
	if strings.Contains("\n"+string(reasons), "\n"+name+":") {
		t.Skip(said)
	}
	t.Fatal(said)
}
