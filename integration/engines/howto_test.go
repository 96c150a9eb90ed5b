//go:build interop

package engines_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// block is a block of a page: its language, what else its first line says, its text.
var block = regexp.MustCompile("(?ms)^```(\\w+)([^\\n]*)\\n(.*?)^```$")

// TestHowToPages follows the pages about Spark and Ray: it saves their programs, and
// runs their commands in the repository with a directory and a port of its own.
func TestHowToPages(t *testing.T) {
	for page, want := range map[string][]int{"spark.md": {2}, "ray.md": {2, 1}} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", "..", "docs", "how-to", page))
			if err != nil {
				t.Fatal(err)
			}
			dir, l := t.TempDir(), listen(t)
			here := strings.NewReplacer("/tmp/firn", dir, "127.0.0.1:7350", l, "firn scheduler", "firn scheduler --listen "+l)
			script := "set -euo pipefail\ntrap 'kill $(jobs -p); wait' EXIT\n"
			for _, m := range block.FindAllStringSubmatch(string(text), -1) {
				name, saved := strings.CutPrefix(strings.TrimSpace(m[2]), "file=")
				switch {
				case strings.Contains(m[2], "not-run="):
				case m[1] == "sh":
					script += strings.Replace(here.Replace(m[3]), "&\n", "&\nuntil firn sql --server "+l+" -c 'SHOW CATALOGS' >/dev/null 2>&1; do sleep 0.1; done\n", 1)
				case m[1] == "python" && saved:
					if err := os.WriteFile(filepath.Join(dir, name), []byte(here.Replace(m[3])), 0o600); err != nil {
						t.Fatal(err)
					}
				default:
					t.Errorf("a block of %s is neither run nor marked with not-run=\"reason\"", page)
				}
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
			cmd.Dir = filepath.Join("..", "..")
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(process.Binary(t))+":"+filepath.Dir(python(t))+":"+os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, script, out)
			}
			// Each load's line stands there as often as it was run, by its snapshot.
			var times []int
			lines := regexp.MustCompile(`(?m)^committed \d+ rows in \d+ files, snapshot \d+$`).FindAllString(string(out), -1)
			for len(lines) > 0 {
				n := len(lines)
				first := lines[0]
				lines = slices.DeleteFunc(lines, func(l string) bool { return l == first })
				times = append(times, n-len(lines))
			}
			if !slices.Equal(times, want) {
				t.Errorf("loads were told %v times, want %v\n%s", times, want, out)
			}
		})
	}
}

// listen is an address of this machine that nobody listens on.
func listen(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
