//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	bindings "github.com/duckdb/duckdb-go-bindings"
)

// Config is what an Instance may use. All of it is fixed when it's opened.
type Config struct {
	// MemoryLimit is in bytes; 0 leaves DuckDB's default of 80 % of the
	// machine. DuckDB keeps its buffers within it; the process needs about
	// 250 MB more.
	MemoryLimit int64
	// TempDir is where queries spill to. Empty: they don't spill.
	TempDir string
	// MaxTempBytes bounds what is spilled; 0 leaves it to the disk.
	MaxTempBytes int64
	// AllowedDirs are the directories below which files can be read, as
	// absolute paths. DuckDB resolves symbolic links before it compares.
	AllowedDirs []string
	// AllowAll allows every path of the machine.
	AllowAll bool
	// Threads is the number of worker threads; 0 means one.
	Threads int
	// TimeZone is the session's time zone; empty means UTC. It decides what
	// casts between zoned and zoneless types give. Arrow columns of zoned
	// timestamps always say UTC.
	TimeZone string
	// Settings are more of DuckDB's settings, set before the lock.
	Settings map[string]string
}

// Open makes a locked instance. The caller closes it.
//
// After the lock no setting can be changed, no extension loaded and no file
// outside Config.AllowedDirs and Config.TempDir opened. Inside those
// directories DuckDB can still write (COPY, ATTACH), which is why Query takes
// SELECT statements only.
func Open(ctx context.Context, cfg Config) (*Instance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	db, err := openDatabase(cfg)
	if err != nil {
		return nil, fmt.Errorf("duckdb: open: %w", err)
	}
	in := &Instance{db: db}
	if bindings.Connect(in.db, &in.conn) == bindings.StateError {
		in.Close()
		return nil, errors.New("duckdb: connect failed")
	}
	// The Arrow options keep the time zone of this moment: UTC.
	if err := in.Exec(ctx, "SET TimeZone = 'UTC'"); err != nil {
		in.Close()
		return nil, fmt.Errorf("duckdb: %w", err)
	}
	bindings.ConnectionGetArrowOptions(in.conn, &in.options)
	for _, s := range cfg.statements() {
		if err := in.Exec(ctx, s); err != nil {
			in.Close()
			return nil, fmt.Errorf("duckdb: lock down with %q: %w", s, err)
		}
	}
	return in, nil
}

func openDatabase(cfg Config) (bindings.Database, error) {
	var db bindings.Database
	var c bindings.Config
	if bindings.CreateConfig(&c) == bindings.StateError {
		return db, errors.New("no configuration")
	}
	defer bindings.DestroyConfig(&c)
	set := map[string]string{
		"autoinstall_known_extensions": "false",
		"autoload_known_extensions":    "false",
		"allow_community_extensions":   "false",
		"threads":                      strconv.Itoa(max(cfg.Threads, 1)),
		"temp_directory":               cfg.TempDir,
		"preserve_insertion_order":     "true",
		"produce_arrow_string_view":    "false",
		"arrow_lossless_conversion":    "false",
		// It helps with remote files, of which there are none, and would keep
		// parts of files in memory from one query to the next.
		"enable_external_file_cache": "false",
	}
	if cfg.MemoryLimit > 0 {
		set["memory_limit"] = strconv.FormatInt(cfg.MemoryLimit, 10) + "B"
	}
	for name, value := range set {
		if bindings.SetConfig(c, name, value) == bindings.StateError {
			return db, fmt.Errorf("setting %s = %q is refused", name, value)
		}
	}
	var msg string
	if bindings.OpenExt(":memory:", &db, c, &msg) == bindings.StateError {
		return db, parseError(msg)
	}
	return db, nil
}

// statements lock the instance, in order.
func (cfg Config) statements() []string {
	var s []string
	if cfg.TimeZone != "" {
		s = append(s, "SET TimeZone = "+Quote(cfg.TimeZone))
	}
	if cfg.MaxTempBytes > 0 {
		s = append(s, fmt.Sprintf("SET max_temp_directory_size = '%dB'", cfg.MaxTempBytes))
	}
	for name, value := range cfg.Settings {
		s = append(s, "SET "+Ident(name)+" = "+Quote(value))
	}
	dirs := cfg.AllowedDirs
	if cfg.AllowAll {
		dirs = []string{"/"}
	}
	quoted := make([]string, len(dirs))
	for i, d := range dirs {
		quoted[i] = Quote(d)
	}
	return append(s,
		"SET allowed_directories = ["+strings.Join(quoted, ", ")+"]",
		"SET enable_external_access = false",
		"SET lock_configuration = true",
	)
}

// Quote gives s as a SQL string literal.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// Ident gives s as a quoted identifier.
func Ident(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
