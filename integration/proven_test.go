package integration_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestProvenNamesRealTests: each test that docs/explanation/proven.md names is
// there, and each test of a report about another system is named there.
func TestProvenNamesRealTests(t *testing.T) {
	page, err := os.ReadFile("../docs/explanation/proven.md")
	if err != nil {
		t.Fatal(err)
	}
	decl := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	have := map[string]bool{}
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range decl.FindAllSubmatch(text, -1) {
			have[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(page, -1) {
		named[string(m[1])] = true
	}
	if len(named) < 100 || len(have) < len(named) {
		t.Fatalf("%d tests named, %d found: the patterns don't fit any more", len(named), len(have))
	}
	for name := range named {
		if !have[name] {
			t.Errorf("proven.md names %s, which isn't there", name)
		}
	}
	for name := range have {
		if strings.HasPrefix(name, "TestScenario") && name != "TestScenarios" && !named[name] {
			t.Errorf("proven.md doesn't name %s", name)
		}
	}
}
