package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/firn-project/firn/commit"
	"github.com/spf13/pflag"
)

func env(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadScheduler(t *testing.T) {
	secret := write(t, "secret", "s3cr3t\n")
	path := write(t, "firn.yaml", `
listen: 127.0.0.1:0
dispatch: pull
planning: static
catalogs:
  lake:
    type: rest
    uri: https://${HOST}/catalog
    warehouse: main$5
    properties:
      token: ${TOKEN}
      credential_file: `+secret+`
sources: {local: {allow: [/data]}}
executors: {heartbeat: 500ms, timeout: 5s, wait: 1m30s}
speculation: {enabled: false, done: 0.5, slower: 2, at_least: 1m}
results: {keep: 10m}
jobs: {planned_at_once: 4, max_queued: 50}
parked: {retention: 48h}
journal: {retention: 720h}
sweep: {delay: 1h}
writes: {ttl: 10m, max_age: 2h, max_open: 7, max_manifest: 1MiB, max_files: 9}
`)
	s, err := LoadScheduler(path, env(map[string]string{"HOST": "example.org", "TOKEN": "t$${x"}))
	if err != nil {
		t.Fatal(err)
	}
	want := Scheduler{
		Listen: "127.0.0.1:0", Dispatch: "pull", Planning: "static",
		Catalogs: map[string]Catalog{"lake": {
			Type: "rest", URI: "https://example.org/catalog", Warehouse: "main$5",
			Properties: map[string]string{"token": "t$${x", "credential": "s3cr3t"},
		}},
		Sources:     Sources{Local: LocalSources{Allow: []string{"/data"}}},
		Speculation: Speculation{Enabled: new(bool), Done: 0.5, Slower: 2, AtLeast: time.Minute}, Results: Results{Keep: 10 * time.Minute},
		Jobs:      Jobs{PlannedAtOnce: 4, MaxQueued: 50},
		Executors: Executors{Heartbeat: 500 * time.Millisecond, Timeout: 5 * time.Second, Wait: 90 * time.Second},
		Parked:    Parked{48 * time.Hour}, Journal: Journal{720 * time.Hour}, Sweep: Sweep{time.Hour},
		Writes: Writes{TTL: 10 * time.Minute, MaxAge: 2 * time.Hour, MaxOpen: 7, MaxManifest: 1 << 20, MaxFiles: 9},
	}
	if v := want.FileValues(); v["parked-retention"] != "48h0m0s" || v["journal-retention"] != "720h0m0s" || v["sweep-delay"] != "1h0m0s" {
		t.Errorf("values of flags: %v", v)
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %#v, properties %v", s, s.Catalogs["lake"].Properties)
	}
	if text := s.Catalogs["lake"].String(); strings.Contains(text, "s3cr3t") || strings.Contains(text, "t$") {
		t.Errorf("a secret is printed: %s", text)
	}
}

func TestAnEmptyFileIsAllDefaults(t *testing.T) {
	s, err := LoadScheduler(write(t, "c", "# nothing\n"), env(nil))
	if err != nil || !reflect.DeepEqual(s, Scheduler{}) {
		t.Errorf("got %#v, %v", s, err)
	}
}

// Each message names the field, its value and what it may be.
func TestBadFiles(t *testing.T) {
	lake := "catalogs: {lake: {type: sql, uri: x, warehouse: y"
	for text, want := range map[string]string{
		"dispach: push":                                  "line 1: unknown key dispach; did you mean dispatch?",
		"zzz: 1":                                         "unknown key zzz; known are allow_anonymous, allow_plaintext, cache, catalogs, commit, create_catalog, delta, dir, dispatch, executors, flight_sql, http, jobs, journal, listen, parked, planning, results, sources, speculation, sweep, tls",
		"sources: {local: {alow: []}}":                   "unknown key sources.local.alow; did you mean allow?",
		lake + ", warehose: z}}":                         "unknown key catalogs.lake.warehose; did you mean warehouse?",
		"flight_sql: {listen: here}":                     "flight_sql.listen: ",
		"parked: {retention: -1s}":                       "parked.retention: -1s: want more than 0",
		"writes: {ttl: -1s}":                             "writes.ttl: want more than 0",
		"writes: {ttl: 2h, max_age: 1h}":                 "writes.ttl: 2h0m0s: want at most writes.max_age, 1h0m0s",
		"writes: {max_manifest: many}":                   "want a size such as 2GiB",
		"journal: {retention: -1h}":                      "journal.retention: -1h0m0s: want more than 0",
		"sweep: {delay: -1ms}":                           "sweep.delay: -1ms: want more than 0",
		"commit: {manifest_memory: 1MiB}":                `commit.manifest_memory: 1048576: want at least 16777216 bytes (16 MiB)`,
		"commit: {manifest_memory: much}":                `line 1: "much": want a size such as 2GiB or 512MB`,
		"planning: guess":                                `planning: "guess": want adaptive or static`,
		"dispatch: pushy":                                `dispatch: "pushy": want push or pull`,
		"listen: here":                                   `listen: "here": want HOST:PORT`,
		"listen: 127.0.0.1:99999":                        `listen: "127.0.0.1:99999": want a port`,
		"catalogs: {lake: {type: hive, uri: x}}":         `catalogs.lake.type: "hive": want sql or rest`,
		"catalogs: {lake: {type: hadoop, uri: x}}":       "object stores copy instead",
		"catalogs: {lake: {type: rest}}":                 "catalogs.lake.uri: it is empty",
		"catalogs: {lake: {type: sql, uri: x}}":          "catalogs.lake.warehouse: it is empty",
		"catalogs: {a.b: {type: rest, uri: x}}":          "catalogs.a.b: the name",
		lake + ", properties: {p: '${GONE}'}}}":          "catalogs.lake.properties.p: the environment variable GONE isn't set",
		lake + ", properties: {p: '${GONE'}}}":           "isn't closed",
		lake + ", properties: {p_file: /no/such/file}}}": "catalogs.lake.properties.p_file: open /no/such/file",
		"sources: {local: {allow: [relative]}}":          `sources.local.allow[0]: "relative": want an absolute path`,
		"executors: {timeout: 1}":                        "executors",
		"jobs: {planned_at_once: -1}":                    "jobs.planned_at_once: -1: want 1 or more",
		"jobs: {max_queued: -1}":                         "jobs.max_queued: -1: want 1 or more",
		"cache: {ttl: -1s}":                              "cache.ttl: -1s: want more than 0",
		"cache: {frames: -1}":                            "cache.frames: -1: want 1 or more",
		"cache: {bytes: much}":                           `line 1: "much": want a size`,
		"speculation: {done: 1.5}":                       "speculation.done: 1.5: want more than 0, and 1 at most",
		"speculation: {slower: 0.5}":                     "speculation.slower: 0.5: want 1 or more",
		"speculation: {at_least: -1s}":                   "speculation.at_least: -1s: want more than 0",
		"results: {keep: -1s}":                           "results.keep: -1s: want more than 0",
		"executors: {wait: -1s}":                         "executors.wait: -1s: want more than 0",
		"executors: {timeout: 1s, heartbeat: 2s}":        "executors.timeout: 1s: want more than executors.heartbeat, 2s",
		"listen: [":                                      "yaml",
		"listen: {a: b}":                                 "cannot unmarshal",
		"- a\n- b":                                       "cannot unmarshal",
		"delta: {paths: [{location: a}]}":                "delta.paths[0].location: \"a\": want an absolute path",
		"sources: {stores: [{location: /a}]}":            "sources.stores[0].location: \"/a\": want s3://bucket",
		"sources: {stores: [{location: s3://b, properties: {k: \"${NO_SUCH_NAME}\"}}]}": "sources.stores[0].properties.k: the environment variable NO_SUCH_NAME",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := LoadScheduler(write(t, "c", text), env(nil))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if commit.CodeOf(err) != commit.CodeConfig {
				t.Errorf("code %s", commit.CodeOf(err))
			}
		})
	}
	if _, err := LoadScheduler("/no/such/file", env(nil)); commit.CodeOf(err) != commit.CodeConfig {
		t.Errorf("a missing file: %v", err)
	}
}

func TestPrecedenceIsFlagEnvFileDefault(t *testing.T) {
	newSet := func(args ...string) *pflag.FlagSet {
		fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
		fs.String("listen", "default", "")
		fs.String("reject-limit", "default", "")
		fs.Int("n", 7, "")
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		return fs
	}
	file := Scheduler{Listen: "file"}.FileValues()
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		file map[string]any
		want string
	}{
		"default":                 {want: "default"},
		"file":                    {file: file, want: "file"},
		"env":                     {file: file, env: map[string]string{"FIRN_LISTEN": "env"}, want: "env"},
		"flag":                    {file: file, env: map[string]string{"FIRN_LISTEN": "env"}, args: []string{"--listen=flag"}, want: "flag"},
		"flag set to the default": {file: file, args: []string{"--listen=default"}, want: "default"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := newSet(tc.args...)
			if err := ApplyFlags(fs, tc.file, env(tc.env)); err != nil {
				t.Fatal(err)
			}
			if got, _ := fs.GetString("listen"); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	fs := newSet()
	if err := ApplyFlags(fs, nil, env(map[string]string{"FIRN_REJECT_LIMIT": "a.b"})); err != nil {
		t.Fatal(err)
	}
	if got, _ := fs.GetString("reject-limit"); got != "a.b" {
		t.Errorf("got %q", got)
	}
	err := ApplyFlags(newSet(), nil, env(map[string]string{"FIRN_N": "many"}))
	if commit.CodeOf(err) != commit.CodeConfig || !strings.Contains(err.Error(), "FIRN_N") {
		t.Errorf("got %v", err)
	}
}

// TestExecutorsKnowNoCatalogs: nothing that an executor is configured with has a
// place for a catalog's address or secret.
func TestExecutorsKnowNoCatalogs(t *testing.T) {
	typ := reflect.TypeFor[Executor]()
	for f := range typ.Fields() {
		name := strings.ToLower(f.Name)
		switch {
		case f.Name == "Token": // the one by which it joins the scheduler
			continue
		case f.Type == reflect.TypeFor[TLS](): // paths of files
			continue
		}
		for _, word := range []string{"catalog", "token", "secret", "credential", "warehouse", "propert", "uri"} {
			if strings.Contains(name, word) {
				t.Errorf("field %s", f.Name)
			}
		}
		if f.Type.Kind() == reflect.Struct || f.Type.Kind() == reflect.Map {
			t.Errorf("field %s could hold anything", f.Name)
		}
	}
}

func TestExecutorValidate(t *testing.T) {
	good := Executor{Server: "127.0.0.1:1", Listen: "127.0.0.1:0", Dir: "d", Slots: 1, Memory: MinMemory, LocalAllow: []string{"/data"}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Executor){
		"server: it is empty":           func(e *Executor) { e.Server = "" },
		`server: "x": want HOST:PORT`:   func(e *Executor) { e.Server = "x" },
		`listen: "x"`:                   func(e *Executor) { e.Listen = "x" },
		"dir: it is empty":              func(e *Executor) { e.Dir = "" },
		"slots: 0: want 1 to 1024":      func(e *Executor) { e.Slots = 0 },
		"slots: 1025":                   func(e *Executor) { e.Slots = 1025 },
		"memory: 1 bytes: want at leas": func(e *Executor) { e.Memory = 1 },
		`sources-local-allow: "data"`:   func(e *Executor) { e.LocalAllow = []string{"data"} },
	} {
		e := good
		change(&e)
		if err := e.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1000": 1000, "1b": 1, "2GiB": 2 << 30, "2G": 2 << 30, "2GB": 2e9, " 1.5 mib ": 3 << 19, "1t": 1 << 40, "10kb": 10000,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "G", "-1", "1x", "1e30", "NaN", "inf", "9999999T", "1 2"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"describe", "list", "wait"}
	for word, want := range map[string]string{"lits": "list", "desribe": "describe", "WAIT": "wait", "cancel": "", "": ""} {
		if got, ok := Nearest(word, known); got != want || ok != (want != "") {
			t.Errorf("%q: got %q", word, got)
		}
	}
}
