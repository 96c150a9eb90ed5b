package writes

import (
	"fmt"
	"time"

	"github.com/firn-project/firn/scheduler/writes/lifecycle"
)

// Config bounds open writes. The zero value of each field has a default.
type Config struct {
	// TTL is how long a write stays open without a renewal unless it asks for
	// another time (1 h), MaxAge how long it can stay open at all (24 h).
	TTL, MaxAge time.Duration
	// MaxOpen bounds the open writes (1,000), MaxOpenPrincipal those of one principal
	// (100).
	MaxOpen, MaxOpenPrincipal int
	// MaxManifest bounds one manifest in bytes as it travels (16 MiB).
	MaxManifest int64
	// MaxManifests, MaxFiles and MaxBytes bound the manifests of one write, their
	// files, and their bytes as they are kept (20,000, 100,000 and 256 MiB).
	MaxManifests, MaxFiles, MaxBytes int64
}

// WithDefaults fills in what isn't set.
func (c Config) WithDefaults() Config {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.TTL, time.Hour}, {&c.MaxAge, 24 * time.Hour}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	for _, n := range []struct {
		v   *int64
		def int64
	}{{&c.MaxManifest, 16 << 20}, {&c.MaxManifests, 20_000}, {&c.MaxFiles, 100_000}, {&c.MaxBytes, 256 << 20}} {
		if *n.v == 0 {
			*n.v = n.def
		}
	}
	if c.MaxOpen == 0 {
		c.MaxOpen = 1000
	}
	if c.MaxOpenPrincipal == 0 {
		c.MaxOpenPrincipal = 100
	}
	return c
}

// Validate names the field, its value and what is allowed.
func (c Config) Validate() error {
	const largest = 60 << 20 // below what a message of the scheduler's may have
	switch {
	case c.TTL < 0 || c.MaxAge < 0 || c.TTL > c.MaxAge:
		return fmt.Errorf("writes: TTL is %v and MaxAge %v; want more than 0, and MaxAge not below TTL", c.TTL, c.MaxAge)
	case c.MaxOpen < 1 || c.MaxOpenPrincipal < 1:
		return fmt.Errorf("writes: MaxOpen is %d and MaxOpenPrincipal %d; want 1 or more", c.MaxOpen, c.MaxOpenPrincipal)
	case c.MaxManifest < 1 || c.MaxManifest > largest:
		return fmt.Errorf("writes: MaxManifest is %d; want 1 to %d", c.MaxManifest, largest)
	case c.MaxManifests < 1 || c.MaxFiles < 1 || c.MaxBytes < 1:
		return fmt.Errorf("writes: MaxManifests is %d, MaxFiles %d and MaxBytes %d; want 1 or more", c.MaxManifests, c.MaxFiles, c.MaxBytes)
	}
	return nil
}

func (c Config) limits() lifecycle.Limits {
	return lifecycle.Limits{Manifests: c.MaxManifests, Files: c.MaxFiles, Bytes: c.MaxBytes}
}

// lifetimes are how long a write that asks for a time stays open without a renewal,
// and until when at most.
func (c Config) lifetimes(asked time.Duration, begun time.Time) (ttl time.Duration, expires, most time.Time) {
	if asked <= 0 {
		asked = c.TTL
	}
	ttl = min(asked, c.MaxAge)
	return ttl, begun.Add(ttl), begun.Add(c.MaxAge)
}

// Opened is the record of a write that begins.
func (c Config) Opened(id string, asked time.Duration, begun time.Time) lifecycle.State {
	s := lifecycle.State{WriteID: id, Phase: lifecycle.Open}
	s.TTL, s.Expires, s.MaxExpires = c.lifetimes(asked, begun)
	return s
}
