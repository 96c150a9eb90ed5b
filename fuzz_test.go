package firn_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// decoders are the packages that read bytes of others, with the fuzz targets that
// each must have. `make fuzz-smoke` runs all targets that there are.
var decoders = map[string][]string{
	"scheduler":               {"FuzzCalls"},
	"scheduler/answers":       {"FuzzProbe"},
	"scheduler/writes":        {"FuzzManifest"},
	"scheduler/rest":          {"FuzzRequests"},
	"executor":                {"FuzzTask", "FuzzStoreKeys"},
	"executor/engine":         {"FuzzLiteralOnly"},
	"internal/flightsql":      {"FuzzInfo", "FuzzStream"},
	"internal/wire":           {"FuzzCheckMessage", "FuzzDecodeManifest", "FuzzDecodeReport", "FuzzVerify"},
	"internal/wire/openwrite": {"FuzzText"},
	"internal/binder":         {"FuzzServe"},
	"internal/config":         {"FuzzScheduler", "FuzzParseSize"},
	"internal/security":       {"FuzzParseTokens"},
	"plan":                    {"FuzzDecode"},
	"sql":                     {"FuzzParse", "FuzzTree"},
	"client":                  {"FuzzReadStream", "FuzzWriteAnswer"},
	"commit":                  {"FuzzParseLedger"},
	"format/iceberg":          {"FuzzFromDuckDBType"},
	"format/footer":           {"FuzzDerive"},
	"catalog":                 {"FuzzRESTAnswers"},
	"catalog/iceberg":         {"FuzzMetadata", "FuzzAvro"},
}

// readers are packages that decode what others wrote: whoever imports one in a
// package without a target has to say why here.
var (
	readers  = []string{"encoding/json", "google.golang.org/protobuf/proto", "go.yaml.in/yaml/v3"}
	noReader = map[string]string{
		"cmd/firn":                         "only writes",
		"internal/errorgen":                "reads the repository's own files",
		"internal/noticegen":               "reads the repository's own files",
		"internal/duckdb":                  "reads what DuckDB in its own process wrote; sql and binder fuzz what comes out",
		"internal/render":                  "only writes",
		"internal/httpserve":               "only writes",
		"internal/durable":                 "reads what Firn wrote",
		"internal/objstore":                "answers of stores are decoded by their SDK",
		"executor/shuffle":                 "reads its own files, and streams that package wire checks",
		"catalog/deltatables":              "only writes; catalog/delta and format/delta decode the log",
		"sinks/delta":                      "only writes",
		"scheduler/journal":                "reads its own database",
		"scheduler/adoption":               "reads the journal's record and what the catalog's driver gave",
		"scheduler/planner":                "only writes",
		"internal/flightsql/flightsqltest": "is a server of tests",
		"scheduler/eventlog":               "only writes",
		"scheduler/committer":              "reads manifests through package wire",
		"sinks/iceberg":                    "only writes",
		"internal/wire/firnpb":             "generated; its users are fuzzed",
	}
)

// TestDecodersHaveFuzzTargets: none of the targets is forgotten, and a package that
// begins to decode is noticed.
func TestDecodersHaveFuzzTargets(t *testing.T) {
	found := map[string][]string{}
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(`)
	for _, p := range list(t) {
		rel := relative(p.ImportPath)
		tests, err := filepath.Glob(filepath.Join(p.Dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range tests {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range target.FindAllStringSubmatch(string(raw), -1) {
				found[rel] = append(found[rel], m[1])
			}
		}
		if under(rel, "integration") || len(found[rel]) > 0 || noReader[rel] != "" {
			continue
		}
		for _, f := range slices.Concat(p.GoFiles, p.CgoFiles) {
			file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, f), nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, im := range file.Imports {
				if path := strings.Trim(im.Path.Value, `"`); slices.Contains(readers, path) {
					t.Errorf("%s/%s imports %s, and its package has no fuzz target: write one, or say here why none is needed", rel, f, path)
				}
			}
		}
	}
	for rel, want := range decoders {
		for _, name := range want {
			if !slices.Contains(found[rel], name) {
				t.Errorf("%s has no %s", rel, name)
			}
		}
	}
}
