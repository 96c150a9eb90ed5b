package firn_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/firn-project/firn"

// pkg is what `go list` says about a package.
type pkg struct {
	ImportPath string
	Dir        string
	Standard   bool
	Imports    []string
	Deps       []string
	GoFiles    []string
	CgoFiles   []string
}

// rule forbids the packages under `from` to reach any package under `to`, even
// through others. Prefixes match whole path elements.
type rule struct {
	from, to string
	// direct limits the rule to direct imports.
	direct bool
	why    string
}

var rules = []rule{
	{from: "executor", to: module + "/catalog", why: "executors never hold a catalog credential, so they must not be able to open a catalog"},
	{from: "sinks", to: module + "/catalog", why: "sinks run on executors"},
	{from: "executor", to: "github.com/apache/iceberg-go/catalog", why: "the library's catalogs are catalogs too"},
	{from: "sinks", to: "github.com/apache/iceberg-go/catalog", why: "the library's catalogs are catalogs too"},
	{from: "scheduler", to: module + "/catalog", why: "the scheduler sees interfaces; only cmd, internal/cluster and tests choose drivers"},
	{from: "scheduler", to: module + "/executor", why: "the scheduler talks to executors over the wire, also in one process"},
	{from: "scheduler", to: module + "/sinks", why: "no data file is written by the scheduler"},
	{from: "sql", to: module + "/scheduler", why: "statements become plans without knowing who runs them"},
	{from: "sql", to: module + "/catalog", why: "sql declares what it needs of catalogs"},
	{from: "format", to: module + "/catalog", why: "formats are pure and used on both sides"},
	{from: "format", to: "github.com/apache/iceberg-go/catalog", why: "formats are pure and used on both sides"},
	{from: "format", to: "os", direct: true, why: "formats are pure"},
	{from: "format", to: "net", direct: true, why: "formats are pure"},
	{from: "scheduler/graph", to: "net", direct: true, why: "the graph is a pure state machine"},
	{from: "scheduler/graph", to: "os", direct: true, why: "the graph is a pure state machine"},
	{from: "scheduler/graph", to: module + "/plan", why: "the graph knows numbers, not plans"},
	{from: "scheduler/cached", to: "net", direct: true, why: "the machine of cached frames is pure"},
	{from: "scheduler/cached", to: "os", direct: true, why: "the machine of cached frames is pure"},
	{from: "scheduler/cached", to: module + "/plan", why: "the machine knows pieces, not plans"},
	{from: "client", to: module + "/scheduler", why: "a client links no server"},
	{from: "client", to: module + "/executor", why: "a client links no server"},
	{from: "client", to: module + "/catalog", why: "a client never sees a catalog"},
	{from: "client", to: module + "/sql", why: "statements are parsed by the scheduler"},
	{from: "client", to: "github.com/duckdb", why: "a client needs neither DuckDB nor its build tag"},
	{from: "commit", to: "github.com/duckdb", why: "the core needs neither DuckDB nor its build tag"},
	{from: "plan", to: "github.com/duckdb", why: "plans need neither DuckDB nor its build tag"},
	{from: "catalog", to: module + "/scheduler", why: "drivers don't know who drives them"},
	{from: "catalog", to: module + "/executor", why: "drivers run on the scheduler"},
	{from: "internal/config", to: module + "/catalog", why: "configuration is data"},
	{from: "", to: module + "/integration", why: "integration is imported by nothing"},
	{from: "", to: "github.com/stretchr/testify", direct: true, why: "tests use the standard library and go-cmp"},
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Standard,Imports,Deps,GoFiles,CgoFiles", "./...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []pkg
	dec := json.NewDecoder(strings.NewReader(string(out)))
	for dec.More() {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func under(path, prefix string) bool {
	return prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

func relative(importPath string) string {
	return strings.TrimPrefix(strings.TrimPrefix(importPath, module), "/")
}

func TestImportRules(t *testing.T) {
	for _, p := range list(t) {
		rel := relative(p.ImportPath)
		for _, r := range rules {
			if !under(rel, r.from) || under(p.ImportPath, r.to) {
				continue
			}
			reached := p.Deps
			if r.direct {
				reached = p.Imports
			}
			for _, dep := range reached {
				if under(dep, r.to) {
					t.Errorf("%s reaches %s: %s", rel, dep, r.why)
				}
			}
		}
	}
}

func TestCommitImportsOnlyTheStandardLibrary(t *testing.T) {
	for _, p := range list(t) {
		if p.ImportPath != module+"/commit" {
			continue
		}
		for _, dep := range p.Imports {
			first, _, _ := strings.Cut(dep, "/")
			if strings.Contains(first, ".") {
				t.Errorf("commit imports %s: the core must stay provable without anything else", dep)
			}
			if slices.Contains([]string{"os", "net", "net/http", "math/rand", "math/rand/v2", "log", "log/slog", "syscall"}, dep) {
				t.Errorf("commit imports %s: it does no I/O and takes randomness as an argument", dep)
			}
		}
		return
	}
	t.Fatal("package commit not found")
}

// TestDocs: each package has one package comment, in doc.go (or main.go), and
// every exported name outside tests and generated files has a comment.
func TestDocs(t *testing.T) {
	for _, p := range list(t) {
		rel := relative(p.ImportPath)
		if strings.HasSuffix(rel, "firnpb") {
			continue
		}
		var documented []string
		for _, f := range slices.Concat(p.GoFiles, p.CgoFiles) {
			path := filepath.Join(p.Dir, f)
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if ast.IsGenerated(file) {
				continue
			}
			if file.Doc != nil {
				documented = append(documented, f)
			}
			checkExported(t, filepath.Join(rel, f), file)
		}
		want := "doc.go"
		if slices.Contains(p.GoFiles, "main.go") && !slices.Contains(p.GoFiles, "doc.go") {
			want = "main.go"
		}
		if !slices.Equal(documented, []string{want}) {
			t.Errorf("%s: the package comment stands in %v, want exactly %s", rel, documented, want)
		}
	}
}

func checkExported(t *testing.T, name string, file *ast.File) {
	t.Helper()
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !obvious[d.Name.Name] {
				t.Errorf("%s: %s has no comment", name, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						t.Errorf("%s: type %s has no comment", name, s.Name.Name)
					}
				case *ast.ValueSpec:
					if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
						t.Errorf("%s: %s has no comment", name, s.Names[0].Name)
					}
				}
			}
		}
	}
}

// obvious methods of the standard library's interfaces say nothing new.
var obvious = map[string]bool{"Error": true, "Unwrap": true, "String": true, "Close": true, "Len": true, "Less": true, "Swap": true}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

// TestSizes: a file of over 500 lines, or a package of over 24 files, is one that
// wants to be two.
func TestSizes(t *testing.T) {
	for _, p := range list(t) {
		if len(p.GoFiles) > 24 {
			t.Errorf("%s has %d files", relative(p.ImportPath), len(p.GoFiles))
		}
		for _, f := range p.GoFiles {
			if strings.HasSuffix(f, ".pb.go") || strings.HasSuffix(f, "_gen.go") {
				continue
			}
			b, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(b), "\n"); n > 500 {
				t.Errorf("%s/%s has %d lines", relative(p.ImportPath), f, n)
			}
		}
	}
}

// TestTheLibraryCommitsNowhere: no file calls the commit loop of the Iceberg
// library, which retries by itself and can't tell an unknown outcome.
func TestTheLibraryCommitsNowhere(t *testing.T) {
	forbidden := []string{".NewTransaction(", ".NewTransactionOnBranch(", "tx.Commit(", "txn.Commit("}
	for _, p := range list(t) {
		if rel := relative(p.ImportPath); under(rel, "integration") || under(rel, "catalog/catalogtest") {
			continue // tests: of the library's own commit beside ours, or as another writer
		}
		for _, f := range p.GoFiles {
			b, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(b), "apache/iceberg-go/table") {
				continue
			}
			for _, s := range forbidden {
				if strings.Contains(string(b), s) {
					t.Errorf("%s/%s calls %s…: commits go through package commit's machine", relative(p.ImportPath), f, s)
				}
			}
		}
	}
}

// TestBuildTag: without the tag the product's build stops with one readable line,
// and the packages that a user of the client links never need it.
func TestBuildTag(t *testing.T) {
	build := func(packages ...string) (string, error) {
		cmd := exec.Command("go", append([]string{"build", "-tags="}, packages...)...)
		cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := build("./internal/duckdb")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err == nil || len(lines) != 2 || !strings.HasPrefix(lines[0], "#") || !strings.Contains(lines[1], "duckdb_arrow") {
		t.Errorf("without the build tag: %v, want one line that names it:\n%s", err, out)
	}
	if out, err := build("./client", "./commit", "./plan"); err != nil {
		t.Errorf("client, commit and plan need the build tag: %v\n%s", err, out)
	}
}
