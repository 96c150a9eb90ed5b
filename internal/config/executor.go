package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Executor is an executor's configuration. It has no field for anything of a
// catalog, and no file that could hold one.
type Executor struct {
	// Server is the scheduler's HOST:PORT.
	Server string
	Listen string
	// HTTP is the HOST:PORT of health checks and metrics; empty for none.
	HTTP  string
	Dir   string
	Slots int
	// Memory is in bytes, for all slots together.
	Memory int64
	// ObjectCache is in bytes of disk, for all slots together; 0 leaves it to
	// the disk.
	ObjectCache int64
	// ShuffleDisk is in bytes of disk; 0 leaves it to the disk.
	ShuffleDisk int64
	// LocalAllow overrides the directories that the scheduler hands out; nil
	// keeps them.
	LocalAllow []string
	// TLS is plaintext when it isn't set. The certificate serves the listener and
	// names the executor to the scheduler.
	TLS TLS
	// Token joins the executor; empty for none.
	Token string
	// AllowPlaintext allows connections without TLS to and from other machines.
	AllowPlaintext bool
}

// Validate checks every value.
func (e Executor) Validate() error {
	if e.Server == "" {
		return errors.New("server: it is empty; want the scheduler's HOST:PORT")
	}
	if err := CheckAddress(e.Server); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if err := CheckAddress(e.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if e.HTTP != "" {
		if err := CheckAddress(e.HTTP); err != nil {
			return fmt.Errorf("http-listen: %w", err)
		}
	}
	if e.Dir == "" {
		return errors.New("dir: it is empty; want a directory for shuffle and spill files")
	}
	if e.Slots < 1 || e.Slots > 1024 {
		return fmt.Errorf("slots: %d: want 1 to 1024", e.Slots)
	}
	if e.Memory < MinMemory {
		return fmt.Errorf("memory: %d bytes: want at least %d (64 MiB)", e.Memory, MinMemory)
	}
	for _, dir := range e.LocalAllow {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("sources-local-allow: %q: want an absolute path", dir)
		}
	}
	return nil
}

// MinMemory is the least memory that an executor works with, in bytes.
const MinMemory = 64 << 20

// sizes are the units of ParseSize, longest first.
var sizes = []struct {
	suffix string
	bytes  float64
}{
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"tib", 1 << 40},
	{"kb", 1e3},
	{"mb", 1e6},
	{"gb", 1e9},
	{"tb", 1e12},
	{"k", 1 << 10},
	{"m", 1 << 20},
	{"g", 1 << 30},
	{"t", 1 << 40},
	{"b", 1},
}

// ParseSize reads a number of bytes such as 2GiB, 512MB or 1000000. A single
// letter is binary: 2G is 2GiB.
func ParseSize(s string) (int64, error) {
	text, unit := strings.ToLower(strings.TrimSpace(s)), 1.0
	for _, u := range sizes {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			text, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 || n*unit >= 1<<62 || n != n {
		return 0, fmt.Errorf("%q: want a size such as 2GiB or 512MB", s)
	}
	return int64(n * unit), nil
}
