// Command noticegen writes THIRD_PARTY_NOTICES: the licence texts of every Go
// module that is linked into cmd/firn, and of DuckDB with what it bundles, which
// is linked statically. With -check it writes nothing and fails when the file
// doesn't name exactly the modules that are linked now. Run it from the root of
// the module, with the build tag of the product.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const file = "THIRD_PARTY_NOTICES"

//go:embed duckdb.txt
var duckdb string

type module struct {
	Path, Version, Dir string
	Main               bool
}

func main() {
	if err := run(len(os.Args) > 1 && os.Args[1] == "-check"); err != nil {
		fmt.Fprintln(os.Stderr, "noticegen:", err)
		os.Exit(1)
	}
}

func run(check bool) error {
	mods, err := linked()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.WriteString("Firn is linked with the works below. Each stands under its own licence.\n\nModules:\n\n")
	for _, m := range mods {
		fmt.Fprintf(&b, "  %s %s\n", m.Path, m.Version)
	}
	if check {
		have, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(have, b.Bytes()) {
			return errors.New(file + " is not current: run `go run ./internal/noticegen`")
		}
		return nil
	}
	b.WriteString("\n" + duckdb)
	for _, m := range mods {
		if err := text(&b, m); err != nil {
			return err
		}
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// linked lists the modules of the packages that cmd/firn is built from.
func linked() ([]module, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Module", "./cmd/firn")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	byPath := map[string]module{}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p struct{ Module *module }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		if p.Module != nil && !p.Module.Main {
			byPath[p.Module.Path] = *p.Module
		}
	}
	var mods []module
	for _, m := range byPath {
		mods = append(mods, m)
	}
	slices.SortFunc(mods, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return mods, nil
}

// text appends every licence and notice file of a module; a module without one
// is an error, since it may not be shipped.
func text(b *bytes.Buffer, m module) error {
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "NOTICE") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		body, err := os.ReadFile(filepath.Join(m.Dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(b, "\n%s\n%s %s: %s\n%s\n\n%s\n", strings.Repeat("=", 78), m.Path, m.Version, e.Name(), strings.Repeat("=", 78), bytes.TrimSpace(body))
	}
	if !found {
		return fmt.Errorf("%s %s has no licence file", m.Path, m.Version)
	}
	return nil
}
