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
	"github.com/firn-project/firn/internal/objstore"
	"github.com/firn-project/firn/plan"
)

// Config is what an Engine may use.
type Config struct {
	// Dir is the slot's own directory. The engine makes and removes
	// directories for attempts in it. An engine without one touches no disk: it
	// binds queries over tables, uploads and frames, and that's all.
	Dir string
	// Memory is DuckDB's memory limit in bytes for tasks that don't bring one;
	// 0 leaves DuckDB's default.
	Memory int64
	// MaxSpill bounds what a task spills, in bytes; 0 leaves it to the disk.
	MaxSpill int64
	// MaxStage bounds what a task keeps on disk of the objects that it reads, in
	// bytes; 0 leaves it to the disk. Parts of Parquet files beyond it are read
	// again each time; a text file that doesn't fit is an error.
	MaxStage int64
	// Threads that DuckDB works with; 0 means one.
	Threads int
	// LocalAllow are the directories that sources may be read from: absolute
	// paths. "/" allows everything, an empty list nothing.
	LocalAllow []string
	// OpenKept opens what executors keep of an upload or of a cached frame, one
	// location after the other. Nil: both are refused. The engine releases the
	// reader; its batches should lie in C memory (memory/mallocator).
	OpenKept func(ctx context.Context, locations []plan.ShuffleLocation) (array.RecordReader, error)
	// OpenEndpoint reads a part of what a Flight SQL engine's query gave, in columns
	// of DuckDB's types; as with OpenKept. Nil: such sources are refused.
	OpenEndpoint func(ctx context.Context, src *plan.Source, f plan.SourceFile) (array.RecordReader, error)
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
	// Stores reaches the objects of a source by its settings; nil: with the keys in
	// these, if any.
	Stores func(storage map[string]string) objstore.Store
}

// Engine runs one probe or query at a time for a task slot. No state of one is
// seen by the next. Close it.
type Engine struct {
	cfg   Config
	allow []string // cfg.LocalAllow with symbolic links resolved
	// probes counts probes, to name their directories.
	probes int
	// volatile are the functions that give something else each time, found at
	// the first probe.
	volatile map[string]bool
	// idle are the instances of the last task and of the last probe, if they can
	// serve another one. A slot's probes and tasks take turns.
	idle map[kind]*instance
}

// instance is a locked database and what it was opened with. Opening and closing
// one takes longer than a small query, so a session that ended well leaves its
// own to the next one of its kind. Nothing of a session is seen by the next: user
// SQL makes nothing (it is one SELECT, without functions that have effects), and
// what the session itself made is dropped, but for the clock, which the next one
// that looks at it sets. Any doubt closes the instance.
type instance struct {
	*duckdb.Instance
	kind     kind
	memory   int64
	timeZone string
	// clock has the macros that are there.
	clock string
}

// kind is what an instance is for.
type kind string

const (
	forTask  kind = "task"
	forProbe kind = "probe"
)

// New makes an engine and its directory, and removes what an earlier process
// left in it.
func New(cfg Config) (*Engine, error) {
	if cfg.Dir == "" {
		return &Engine{cfg: cfg, idle: map[kind]*instance{}}, nil
	}
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
	e := &Engine{cfg: cfg, idle: map[kind]*instance{}}
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
	db  *instance
	dir string
	// now is the job's time.
	now time.Time
	// staged counts what was staged in dir, to name it.
	staged int
	// stores is the task's.
	stores func(storage map[string]string) objstore.Store
	// names are the locations of files by the paths that DuckDB opened.
	names map[string]string
	// remote are the objects that are read; nil if there are none.
	remote *remote
	// feed is what is left of an engine's rows, for a query that gets them by pieces;
	// nil for others.
	feed *feed
	// made has the statements that drop what the session made, in the order of
	// making.
	made []string
	// clean is set at the very end of a session of which nothing is left in the
	// instance but what made drops.
	clean bool
	// jsonRejected counts the lines of JSON sources that were left out, and
	// jsonRejects lists the first ones; DuckDB keeps those of CSV sources.
	jsonRejected int64
	jsonRejects  []Reject
}

// open gives the attempt its instance. Its directory is made when something is
// staged in it. The caller closes the session.
func (e *Engine) open(ctx context.Context, t TaskInfo, k kind) (*session, error) {
	if !filepath.IsLocal(t.Attempt) || strings.ContainsAny(t.Attempt, `/\`) || t.Attempt == "." || t.Attempt == spillName {
		return nil, fmt.Errorf("engine: attempt id %q can't name a directory", t.Attempt)
	}
	db, err := e.instance(ctx, cmp.Or(t.MemoryBytes, e.cfg.Memory), t.TimeZone, k)
	if err != nil {
		return nil, err
	}
	s := &session{Engine: e, db: db, dir: filepath.Join(e.cfg.Dir, t.Attempt), now: t.Now, names: map[string]string{}, stores: t.Stores}
	if s.stores == nil {
		s.stores = func(storage map[string]string) objstore.Store { return objstore.New(objstore.FromStorage(storage)) }
	}
	return s, nil
}

// spillName is the directory that instances spill to, beside those of attempts.
const spillName = "spill"

// instance takes the idle instance if it was opened the same way, else opens one.
func (e *Engine) instance(ctx context.Context, memory int64, timeZone string, k kind) (*instance, error) {
	if i := e.idle[k]; i != nil && i.memory == memory && i.timeZone == timeZone {
		delete(e.idle, k)
		return i, nil
	}
	e.dropIdle(k)
	var settings map[string]string
	if k == forProbe {
		settings = probeSettings
	}
	var dirs []string
	var spill string
	if e.cfg.Dir != "" {
		dirs, spill = append([]string{e.cfg.Dir}, e.allow...), filepath.Join(e.cfg.Dir, spillName)
	}
	db, err := duckdb.Open(ctx, duckdb.Config{
		MemoryLimit:  memory,
		TempDir:      spill,
		MaxTempBytes: e.cfg.MaxSpill,
		AllowedDirs:  dirs,
		Threads:      e.cfg.Threads,
		TimeZone:     timeZone,
		Settings:     settings,
	})
	if err != nil {
		return nil, err
	}
	return &instance{Instance: db, kind: k, memory: memory, timeZone: timeZone}, nil
}

func (e *Engine) dropIdle(k kind) {
	if i := e.idle[k]; i != nil {
		i.Close()
		delete(e.idle, k)
	}
}

// Close frees the engine. No probe or query may run.
func (e *Engine) Close() error {
	e.dropIdle(forTask)
	e.dropIdle(forProbe)
	return nil
}

// close ends the session. Its instance is kept for the next one if it's clean.
func (s *session) close() {
	if s.clean && s.undo() == nil {
		s.dropIdle(s.db.kind)
		s.idle[s.db.kind] = s.db
	} else {
		s.db.Close()
	}
	s.remote.close()
	s.feed.close()
	if s.staged > 0 {
		// What can't be removed now is removed when the slot starts again.
		_ = os.RemoveAll(s.dir)
	}
}

// undo drops what the session made, the last first.
func (s *session) undo() error {
	var all strings.Builder
	for _, drop := range slices.Backward(s.made) {
		all.WriteString(drop + ";")
	}
	if all.Len() == 0 {
		return nil
	}
	return s.db.Exec(context.Background(), all.String())
}

// create makes something in the instance and remembers how it is dropped.
func (s *session) create(ctx context.Context, what, name, as string) error {
	if err := s.db.Exec(ctx, "CREATE "+what+" "+name+as); err != nil {
		return err
	}
	s.undoWith("DROP " + what + " " + name)
	return nil
}

// undoWith has a statement run at the end of the session, once.
func (s *session) undoWith(drop string) {
	if !slices.Contains(s.made, drop) {
		s.made = append(s.made, drop)
	}
}

// fixedClock are the functions whose value is the job's time. Each is shadowed
// by a macro, so that all tasks of a job see one time.
var fixedClock = []string{
	"now", "get_current_timestamp", "transaction_timestamp", "current_date", "today",
	"get_current_time", "current_localtimestamp", "current_localtime",
}

// fixClock makes the instance's clock the job's. A query that reads no source,
// calls no function and names no column alone (current_date is a call in
// disguise) doesn't look at it: most INSERTs of a few rows.
func (s *session) fixClock(ctx context.Context, info *treeInfo, sources []plan.Source) error {
	if len(sources) == 0 && len(info.functions) == 0 && !info.bare {
		return nil
	}
	macros := clockMacros(s.now)
	if s.db.clock == macros {
		return nil
	}
	if err := s.db.Exec(ctx, macros); err != nil {
		return fmt.Errorf("engine: fix the job's time: %w", err)
	}
	s.db.clock = macros
	return nil
}

func clockMacros(now time.Time) string {
	at := duckdb.Quote(now.UTC().Format("2006-01-02 15:04:05.999999")+"+00") + "::TIMESTAMPTZ"
	as := map[string]string{
		"current_date": "::DATE", "today": "::DATE",
		"get_current_time": "::TIMESTAMP::TIME", "current_localtime": "::TIMESTAMP::TIME", "current_localtimestamp": "::TIMESTAMP",
	}
	var b strings.Builder
	for _, name := range fixedClock {
		fmt.Fprintf(&b, "CREATE OR REPLACE MACRO %s() AS %s%s;\n", name, at, as[name])
	}
	// age of one argument counts from today.
	b.WriteString("CREATE OR REPLACE MACRO age(a) AS system.main.age(today()::TIMESTAMP, a), (a, b) AS system.main.age(a, b);")
	return b.String()
}

// allowed says whether a resolved path lies in an allowed directory.
func (e *Engine) allowed(path string) bool {
	return slices.ContainsFunc(e.allow, func(dir string) bool {
		return dir == "/" || path == dir || strings.HasPrefix(path, dir+"/")
	})
}
