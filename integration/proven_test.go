package integration_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestProvenHasEveryRequirement: each requirement of the scheduler root and each weak
// point of its model has a row, in its own table, with a test; and no row of any table
// has other cells than its head.
func TestProvenHasEveryRequirement(t *testing.T) {
	page, err := os.ReadFile("../docs/explanation/proven.md")
	if err != nil {
		t.Fatal(err)
	}
	section, cells := "", 0
	rows := map[string]map[string]string{}
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section, rows[title] = title, map[string]string{}
		}
		if !strings.HasPrefix(line, "|") {
			cells = 0
			continue
		}
		row := strings.Split(strings.Trim(line, "|"), "|")
		if cells == 0 {
			cells = len(row)
		}
		if len(row) != cells {
			t.Errorf("%s: a row has %d cells, its head %d: %s", section, len(row), cells, line)
		}
		if section != "" {
			rows[section][strings.TrimSpace(row[0])] = row[len(row)-1]
		}
	}
	for _, table := range []struct {
		section, prefix string
		last            int
	}{{"Requirements of the scheduler root", "", 36}, {"Weak points of the model", "W", 23}} {
		for i := 1; i <= table.last; i++ {
			name := table.prefix + strconv.Itoa(i)
			if tests, ok := rows[table.section][name]; !ok || !strings.Contains(tests, "Test") && !strings.Contains(tests, "the tests of") {
				t.Errorf("%s: %s has the tests %q", table.section, name, tests)
			}
		}
	}
}

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
