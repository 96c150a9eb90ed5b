package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/firn-project/firn/commit"
	"go.yaml.in/yaml/v3"
)

// Scheduler is the scheduler's configuration file.
type Scheduler struct {
	// Listen is HOST:PORT; port 0 takes a free one.
	Listen string `yaml:"listen"`
	// Dir holds the scheduler's state.
	Dir string `yaml:"dir"`
	// Dispatch is push or pull.
	Dispatch string `yaml:"dispatch"`
	// Planning is adaptive or static.
	Planning string `yaml:"planning"`
	// Catalogs by name. Without any there is one called lake under Dir.
	Catalogs  map[string]Catalog `yaml:"catalogs"`
	Sources   Sources            `yaml:"sources"`
	Delta     Delta              `yaml:"delta"`
	Jobs      Jobs               `yaml:"jobs"`
	Executors Executors          `yaml:"executors"`
	// Speculation says which tasks are run a second time.
	Speculation Speculation `yaml:"speculation"`
	Results     Results     `yaml:"results"`
	Parked      Parked      `yaml:"parked"`
	Journal     Journal     `yaml:"journal"`
	Sweep       Sweep       `yaml:"sweep"`
	Commit      Commit      `yaml:"commit"`
	Cache       Cache       `yaml:"cache"`
	Writes      Writes      `yaml:"writes"`
	HTTP        HTTP        `yaml:"http"`
	FlightSQL   FlightSQL   `yaml:"flight_sql"`
	// TLS is plaintext when it isn't set.
	TLS TLS `yaml:"tls"`
	// AllowPlaintext allows to listen without TLS on more than the loopback
	// interface.
	AllowPlaintext bool `yaml:"allow_plaintext"`
	// AllowAnonymous lets clients and executors in without a token or a
	// certificate, also from other machines, while no token exists.
	AllowAnonymous bool `yaml:"allow_anonymous"`
	// CreateCatalog says what statements may do about catalogs.
	CreateCatalog CreateCatalog `yaml:"create_catalog"`
}

// Parked says what becomes of units that were refused and may be driven again.
type Parked struct {
	// Retention is how long their files are kept.
	Retention time.Duration `yaml:"retention"`
}

// Journal says what the scheduler's journal keeps.
type Journal struct {
	// Retention is how long an ended job is remembered; its key is deduplicated
	// for at least as long.
	Retention time.Duration `yaml:"retention"`
}

// Sweep says when what ended jobs left is deleted.
type Sweep struct {
	// Delay is how long after a job's end its executors may still write; what it
	// left is swept once more then.
	Delay time.Duration `yaml:"delay"`
}

// HTTP says how a scheduler is served over HTTP.
type HTTP struct {
	// Listen is HOST:PORT; port 0 takes a free one. Empty: it isn't served.
	Listen string `yaml:"listen"`
	// MinExecutors is how many executors a scheduler that is ready has (1).
	MinExecutors int `yaml:"min_executors"`
}

// FlightSQL says how statements are taken over Flight SQL.
type FlightSQL struct {
	// Listen is HOST:PORT; port 0 takes a free one. Empty: it isn't served.
	Listen string `yaml:"listen"`
}

func (f FlightSQL) validate() error {
	if f.Listen == "" {
		return nil
	}
	if err := CheckAddress(f.Listen); err != nil {
		return fmt.Errorf("flight_sql.listen: %w", err)
	}
	return nil
}

func (h HTTP) validate() error {
	if h.Listen != "" {
		if err := CheckAddress(h.Listen); err != nil {
			return fmt.Errorf("http.listen: %w", err)
		}
	}
	if h.MinExecutors < 0 {
		return fmt.Errorf("http.min_executors: %d: want 1 or more", h.MinExecutors)
	}
	return nil
}

// Commit says how commits are made.
type Commit struct {
	// Deadline is how long one commit is tried before it is told as it stands.
	Deadline time.Duration `yaml:"deadline"`
	// CheckAllFiles looks at every file before a commit, and not only at a sample of
	// those of very large jobs.
	CheckAllFiles bool `yaml:"check_all_files"`
	// ManifestMemory bounds the memory of file manifests; 0 for the default.
	ManifestMemory Size `yaml:"manifest_memory"`
}

// MinManifestMemory is the least that file manifests may take, in bytes.
const MinManifestMemory = 16 << 20

// Defaults of the settings of files and records.
const (
	DefaultParkedRetention  = 24 * time.Hour
	DefaultJournalRetention = 7 * 24 * time.Hour
	DefaultSweepDelay       = 15 * time.Minute
	DefaultCommitDeadline   = 10 * time.Minute
)

// CheckPositive says whether a duration is more than 0.
func CheckPositive(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s: want more than 0", d)
	}
	return nil
}

// Executors says how the scheduler waits for its executors. Durations are
// written as 2s or 1m30s; what isn't set has the scheduler's default.
type Executors struct {
	// Heartbeat is how often executors report; one that is silent for Timeout
	// is lost.
	Heartbeat time.Duration `yaml:"heartbeat"`
	Timeout   time.Duration `yaml:"timeout"`
	// Wait is how long a statement waits for a first executor.
	Wait time.Duration `yaml:"wait"`
	// Return is how long a job with tasks to run waits for an executor when none is
	// left.
	Return time.Duration `yaml:"return"`
}

// validate compares only what is set; the scheduler checks the rest.
func (e Executors) validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"heartbeat", e.Heartbeat}, {"timeout", e.Timeout}, {"wait", e.Wait}, {"return", e.Return}} {
		if d.value < 0 {
			return fmt.Errorf("executors.%s: %s: want more than 0", d.name, d.value)
		}
	}
	if e.Timeout > 0 && e.Timeout <= e.Heartbeat {
		return fmt.Errorf("executors.timeout: %s: want more than executors.heartbeat, %s", e.Timeout, e.Heartbeat)
	}
	return nil
}

// Catalog is one catalog. It holds secrets, so it never leaves the scheduler and
// is never printed.
type Catalog struct {
	// Type is sql or rest.
	Type string `yaml:"type"`
	// URI is the catalog's address: sqlite:///path/to.db or https://….
	URI string `yaml:"uri"`
	// Warehouse is where its tables lie: a URI, or the name of a warehouse of a
	// REST catalog.
	Warehouse  string     `yaml:"warehouse"`
	Properties Properties `yaml:"properties"`
}

// String keeps the secrets of a catalog out of logs.
func (c Catalog) String() string { return c.Type + " catalog" }

// GoString is String, for %#v.
func (c Catalog) GoString() string { return c.String() }

// Sources says what statements may read.
type Sources struct {
	Local LocalSources `yaml:"local"`
	// Stores are the object stores whose objects statements may read.
	Stores []SourceStore `yaml:"stores"`
	// FlightSQL are Flight SQL engines, by the names that statements have for them.
	FlightSQL map[string]FlightSource `yaml:"flight_sql"`
}

// SourceStore says how the objects below a location are read. It holds secrets, as
// Catalog does.
type SourceStore struct {
	// Location is a bucket, or a prefix in one: s3://bucket/prefix.
	Location string `yaml:"location"`
	// Properties are s3.endpoint, s3.access-key-id and so on.
	Properties map[string]string `yaml:"properties"`
}

// String keeps the secrets of a store out of logs.
func (s SourceStore) String() string { return "store of " + s.Location }

// GoString is String, for %#v.
func (s SourceStore) GoString() string { return s.String() }

// Delta says where Delta tables may lie that statements name by path, to read and to
// write.
type Delta struct {
	// Paths have directories of local disk, or buckets and prefixes in them.
	Paths []SourceStore `yaml:"paths"`
}

// LocalSources is about files on the executors' own disks.
type LocalSources struct {
	// Allow are the directories below which files may be read. Services allow
	// none by default.
	Allow []string `yaml:"allow"`
}

// Ways of planning stages.
const (
	PlanningAdaptive = "adaptive"
	PlanningStatic   = "static"
)

// Dispatches of tasks.
const (
	DispatchPush = "push"
	DispatchPull = "pull"
)

// LoadScheduler reads a file. ${NAME} in a catalog's uri, warehouse and
// properties stands for an environment variable; a property NAME_env for a
// variable too, NAME_file for the content of a file and NAME_command for what a
// command prints, without its last line break.
func LoadScheduler(path string, getenv func(string) (string, bool)) (Scheduler, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Scheduler{}, bad(path, err, "Check the path given to --config.")
	}
	s, err := parseScheduler(raw, getenv)
	if err != nil {
		return Scheduler{}, bad(path, err, "Correct the file and start again.")
	}
	return s, nil
}

// ReadScheduler reads a file and nothing that it refers to.
func ReadScheduler(path string) (Scheduler, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Scheduler{}, bad(path, err, "Check the path given to --config.")
	}
	s, err := decodeScheduler(raw)
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		return Scheduler{}, bad(path, err, "Correct the file.")
	}
	return s, nil
}

func parseScheduler(raw []byte, getenv func(string) (string, bool)) (Scheduler, error) {
	s, err := decodeScheduler(raw)
	if err != nil {
		return s, err
	}
	for _, name := range slices.Sorted(maps.Keys(s.Catalogs)) {
		c, err := s.Catalogs[name].resolve(getenv)
		if err != nil {
			return s, fmt.Errorf("catalogs.%s.%w", name, err)
		}
		s.Catalogs[name] = c
	}
	for i, st := range s.Sources.Stores {
		if s.Sources.Stores[i].Properties, err = ownProperties(st.Properties, getenv); err != nil {
			return s, fmt.Errorf("sources.stores[%d].%w", i, err)
		}
	}
	if err := s.resolveFlight(getenv); err != nil {
		return s, err
	}
	for i, p := range s.Delta.Paths {
		if s.Delta.Paths[i].Properties, err = ownProperties(p.Properties, getenv); err != nil {
			return s, fmt.Errorf("delta.paths[%d].%w", i, err)
		}
	}
	return s, s.Validate()
}

// decodeScheduler reads a file's text as it is.
func decodeScheduler(raw []byte) (Scheduler, error) {
	var s Scheduler
	if err := checkKeys(raw, s); err != nil {
		return s, err
	}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return s, err
	}
	return s, nil
}

// Validate checks every value that is set.
func (s Scheduler) Validate() error {
	if s.Listen != "" {
		if err := CheckAddress(s.Listen); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}
	if err := CheckDispatch(s.Dispatch); s.Dispatch != "" && err != nil {
		return fmt.Errorf("dispatch: %w", err)
	}
	if p := s.Planning; p != "" && p != PlanningAdaptive && p != PlanningStatic {
		return fmt.Errorf("planning: %q: want %s or %s", p, PlanningAdaptive, PlanningStatic)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Catalogs)) {
		if err := s.Catalogs[name].validate(name); err != nil {
			return fmt.Errorf("catalogs.%s%w", name, err)
		}
	}
	if err := s.validateFlight(); err != nil {
		return err
	}
	for i, dir := range s.Sources.Local.Allow {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("sources.local.allow[%d]: %q: want an absolute path", i, dir)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"parked.retention", s.Parked.Retention}, {"journal.retention", s.Journal.Retention}, {"sweep.delay", s.Sweep.Delay}, {"commit.deadline", s.Commit.Deadline}} {
		if err := CheckPositive(d.value); d.value != 0 && err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	if n := s.Commit.ManifestMemory; n != 0 && n < MinManifestMemory {
		return fmt.Errorf("commit.manifest_memory: %d: want at least %d bytes (16 MiB)", n, MinManifestMemory)
	}
	for i, p := range s.Delta.Paths {
		if !filepath.IsAbs(p.Location) && !isBucket(p.Location) {
			return fmt.Errorf("delta.paths[%d].location: %q: want an absolute path, s3://bucket or s3://bucket/prefix", i, p.Location)
		}
	}
	for i, st := range s.Sources.Stores {
		if !isBucket(st.Location) {
			return fmt.Errorf("sources.stores[%d].location: %q: want s3://bucket or s3://bucket/prefix", i, st.Location)
		}
	}
	return errors.Join(s.CreateCatalog.validate(), s.TLS.validate(), s.Jobs.validate(), s.Executors.validate(), s.Speculation.validate(), s.Results.validate(), s.HTTP.validate(), s.FlightSQL.validate(), s.Cache.validate(), s.Writes.validate())
}

func isBucket(location string) bool {
	rest, ok := strings.CutPrefix(location, "s3://")
	return ok && rest != "" && !strings.HasPrefix(rest, "/") && !strings.ContainsAny(rest, "*?[")
}

func (c Catalog) validate(name string) error {
	switch {
	case name == "" || strings.ContainsAny(name, ". \"`/"):
		return errors.New(": the name of a catalog can't be empty or hold dots, blanks, slashes or quotes")
	case CheckCatalogType(c.Type) != nil:
		return fmt.Errorf(".type: %w", CheckCatalogType(c.Type))
	case c.URI == "":
		return errors.New(".uri: it is empty; want the address of the catalog")
	case c.Type == "sql" && c.Warehouse == "":
		return errors.New(".warehouse: it is empty; a sql catalog needs the URI under which its tables lie")
	}
	return nil
}

// CheckCatalogType says whether there is such a type of catalog.
func CheckCatalogType(t string) error {
	switch t {
	case "sql", "rest":
		return nil
	case "hadoop":
		return errors.New(`"hadoop": a Hadoop catalog commits by renaming a file, and object stores copy instead, so that of two commits both may succeed and one is lost; ` +
			`register its tables in a sql or rest catalog`)
	}
	return fmt.Errorf("%q: want sql or rest", t)
}

// CheckAddress says whether an address to listen on is HOST:PORT.
func CheckAddress(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q: want HOST:PORT", addr)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("%q: want a port of 0 to 65535", addr)
	}
	return nil
}

// CheckDispatch says whether a dispatch is one that there is.
func CheckDispatch(d string) error {
	if d != DispatchPush && d != DispatchPull {
		return fmt.Errorf("%q: want %s or %s", d, DispatchPush, DispatchPull)
	}
	return nil
}

// resolve fills in variables and secret files.
func (c Catalog) resolve(getenv func(string) (string, bool)) (Catalog, error) {
	var err error
	if c.URI, err = expand(c.URI, getenv); err != nil {
		return c, fmt.Errorf("uri: %w", err)
	}
	if c.Warehouse, err = expand(c.Warehouse, getenv); err != nil {
		return c, fmt.Errorf("warehouse: %w", err)
	}
	c.Properties, err = ownProperties(c.Properties, getenv)
	return c, err
}

// ownProperties resolves properties of the file, which is the administrator's own:
// they may refer to anything.
func ownProperties(m map[string]string, getenv func(string) (string, bool)) (map[string]string, error) {
	props := map[string]string{}
	var err error
	for key, value := range m {
		if props[key], err = expand(value, getenv); err != nil {
			return nil, fmt.Errorf("properties.%s: %w", key, err)
		}
	}
	props, err = ResolveProperties(context.Background(), props, SecretSources{Getenv: getenv, Any: true})
	if err != nil {
		return nil, fmt.Errorf("properties.%w", err)
	}
	return props, nil
}

// expand replaces ${NAME}. Other dollars stay, so that nothing in a path or a
// password means something by accident.
func expand(s string, getenv func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		name, tail, ok := strings.Cut(rest, "}")
		if !ok {
			return "", errors.New("a ${ isn't closed by }")
		}
		value, ok := getenv(name)
		if !ok {
			return "", fmt.Errorf("the environment variable %s isn't set", name)
		}
		b.WriteString(value)
		s = tail
	}
}

func bad(object string, cause error, hint string) error {
	return &commit.Error{Code: commit.CodeConfig, Op: "read configuration", Object: object, Cause: cause, Hint: hint}
}
