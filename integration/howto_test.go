package integration_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/firn-project/firn/internal/config"
)

// fence is a block of a page: its language, what else its first line says, its text.
var fence = regexp.MustCompile("(?ms)^```(\\w+)([^\\n]*)\\n(.*?)^```$")

// blocks are the blocks in a language of a page of docs/how-to, in order.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "how-to", page))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
		if m[1] == language {
			out = append(out, m[3])
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no block of %s", page, language)
	}
	return out
}

// TestHowToFiles: the configuration that the pages show is one that a scheduler
// takes. A block that is indented stands for properties of a catalog.
func TestHowToFiles(t *testing.T) {
	for _, page := range []string{"aws.md", "delta.md", "flight-sql.md", "minio.md", "rest-catalog.md", "secrets.md"} {
		for _, block := range blocks(t, page, "yaml") {
			if strings.HasPrefix(block, " ") {
				block = "catalogs:\n  lake:\n    type: rest\n    uri: https://catalog.example.com\n    properties:\n" + block
			}
			path := filepath.Join(t.TempDir(), "firn.yaml")
			if err := os.WriteFile(path, []byte(block), 0o600); err != nil {
				t.Fatal(err)
			}
			// Whatever a variable holds; files and commands aren't there.
			if _, err := config.ReadScheduler(path); err != nil {
				t.Errorf("%s: %v\n%s", page, err, block)
			}
		}
	}
}
