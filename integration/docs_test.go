//go:build integration

package integration_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-project/firn/integration/process"
)

// TestDocsCommands runs the command blocks of pages, each
// page in one fresh directory. A block that can't be run says why.
func TestDocsCommands(t *testing.T) {
	bin := filepath.Dir(process.Binary(t))
	for _, page := range []string{"README.md", "docs/quickstart.md", "docs/how-to/delta.md", "docs/how-to/pipelined-and-cached.md"} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("..", page))
			if err != nil {
				t.Fatal(err)
			}
			script := "set -euo pipefail\n"
			blocks := 0
			for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
				switch {
				case strings.Contains(m[2], "not-run="):
				case m[1] == "sh":
					script += m[3]
					blocks++
				default:
					t.Errorf("a block of %s is neither run nor marked with not-run=\"reason\"", m[1])
				}
			}
			if blocks == 0 {
				t.Fatal("no block to run")
			}
			cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if page == "docs/quickstart.md" && !strings.Contains(string(out), `"deduplicated":true`) {
				t.Errorf("the second INSERT under one key wasn't deduplicated:\n%s", out)
			}
		})
	}
}
