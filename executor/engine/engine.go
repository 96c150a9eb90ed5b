package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-project/firn/internal/duckdb"
	"github.com/firn-project/firn/plan"
)

// Config is what an Engine may use.
type Config struct {
	// Dir is the slot's own directory. The engine makes and removes
	// directories for attempts in it.
	Dir string
	// Memory is DuckDB's memory limit in bytes for tasks that don't bring one;
	// 0 leaves DuckDB's default.
	Memory int64
	// MaxSpill bounds what a task spills, in bytes; 0 leaves it to the disk.
	MaxSpill int64
	// Threads that DuckDB works with; 0 means one.
	Threads int
	// LocalAllow are the directories that sources may be read from: absolute
	// paths. "/" allows everything, an empty list nothing.
	LocalAllow []string
	// OpenUpload opens a client's spooled stream. Nil: uploads are refused.
	// The engine releases the reader; its batches should lie in C memory
	// (memory/mallocator).
	OpenUpload func(ctx context.Context, u *plan.Upload) (array.RecordReader, error)
}

// TaskInfo is what a query gets from its task.
type TaskInfo struct {
	// Attempt is the attempt's id; it names the attempt's directory.
	Attempt string
	// MemoryBytes is DuckDB's memory limit; 0 for the engine's own.
	MemoryBytes int64
	// Now is the job's time: what now(), current_date and their like give.
	Now time.Time
	// TimeZone is the job's; empty for UTC.
	TimeZone string
}

// Engine runs one probe or query at a time for a task slot. No state of one is
// seen by the next.
type Engine struct {
	cfg   Config
	allow []string // cfg.LocalAllow with symbolic links resolved
	// probes counts probes, to name their directories.
	probes int
	// volatile are the functions that give something else each time, found at
	// the first probe.
	volatile map[string]bool
}

// New makes an engine and its directory, and removes what an earlier process
// left in it.
func New(cfg Config) (*Engine, error) {
	if !filepath.IsAbs(cfg.Dir) {
		return nil, fmt.Errorf("engine: directory %q: want an absolute path", cfg.Dir)
	}
	if err := os.RemoveAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("engine: clean the slot's directory: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("engine: make the slot's directory: %w", err)
	}
	dir, err := filepath.EvalSymlinks(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e := &Engine{cfg: cfg}
	e.cfg.Dir = dir
	for _, a := range cfg.LocalAllow {
		if !filepath.IsAbs(a) {
			return nil, fmt.Errorf("engine: allowed directory %q: want an absolute path", a)
		}
		resolved, err := filepath.EvalSymlinks(a)
		if errors.Is(err, os.ErrNotExist) {
			resolved = filepath.Clean(a)
		} else if err != nil {
			return nil, fmt.Errorf("engine: allowed directory: %w", err)
		}
		e.allow = append(e.allow, resolved)
	}
	return e, nil
}

// session is one probe's or one task's locked instance with its directory.
type session struct {
	*Engine
	db  *duckdb.Instance
	dir string
	// staged counts what was staged, to name it.
	staged int
	// names are the locations of files by the paths that DuckDB opened.
	names map[string]string
}

// open makes the attempt's directory and instance. The caller closes the
// session.
func (e *Engine) open(ctx context.Context, t TaskInfo, settings map[string]string) (*session, error) {
	if !filepath.IsLocal(t.Attempt) || strings.ContainsAny(t.Attempt, `/\`) || t.Attempt == "." {
		return nil, fmt.Errorf("engine: attempt id %q can't name a directory", t.Attempt)
	}
	s := &session{Engine: e, dir: filepath.Join(e.cfg.Dir, t.Attempt), names: map[string]string{}}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("engine: make the attempt's directory: %w", err)
	}
	db, err := duckdb.Open(ctx, duckdb.Config{
		MemoryLimit:  cmp.Or(t.MemoryBytes, e.cfg.Memory),
		TempDir:      filepath.Join(s.dir, "spill"),
		MaxTempBytes: e.cfg.MaxSpill,
		AllowedDirs:  append([]string{s.dir}, e.allow...),
		Threads:      e.cfg.Threads,
		TimeZone:     t.TimeZone,
		Settings:     settings,
	})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	s.db = db
	if err := db.Exec(ctx, clockMacros(t)); err != nil {
		s.close()
		return nil, fmt.Errorf("engine: fix the job's time: %w", err)
	}
	return s, nil
}

func (s *session) close() {
	s.db.Close()
	// What can't be removed now is removed when the slot starts again.
	_ = os.RemoveAll(s.dir)
}

// fixedClock are the functions whose value is the job's time. Each is shadowed
// by a macro, so that all tasks of a job see one time.
var fixedClock = []string{
	"now", "get_current_timestamp", "transaction_timestamp", "current_date", "today",
	"get_current_time", "current_localtimestamp", "current_localtime",
}

func clockMacros(t TaskInfo) string {
	at := duckdb.Quote(t.Now.UTC().Format("2006-01-02 15:04:05.999999")+"+00") + "::TIMESTAMPTZ"
	as := map[string]string{
		"current_date": "::DATE", "today": "::DATE",
		"get_current_time": "::TIMESTAMP::TIME", "current_localtime": "::TIMESTAMP::TIME", "current_localtimestamp": "::TIMESTAMP",
	}
	var b strings.Builder
	for _, name := range fixedClock {
		fmt.Fprintf(&b, "CREATE MACRO %s() AS %s%s;\n", name, at, as[name])
	}
	// age of one argument counts from today.
	b.WriteString("CREATE MACRO age(a) AS system.main.age(today()::TIMESTAMP, a), (a, b) AS system.main.age(a, b);")
	return b.String()
}

// allowed says whether a resolved path lies in an allowed directory.
func (e *Engine) allowed(path string) bool {
	return slices.ContainsFunc(e.allow, func(dir string) bool {
		return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
	})
}
