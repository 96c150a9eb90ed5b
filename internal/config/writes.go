package config

import (
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// Writes bounds the writes of processes that aren't Firn's: the open write protocol.
// What isn't set has the scheduler's default.
type Writes struct {
	// TTL is how long a write stays open without a renewal, MaxAge how long it can
	// stay open at all.
	TTL    time.Duration `yaml:"ttl"`
	MaxAge time.Duration `yaml:"max_age"`
	// MaxOpen bounds the open writes, MaxOpenPrincipal those of one principal.
	MaxOpen          int `yaml:"max_open"`
	MaxOpenPrincipal int `yaml:"max_open_principal"`
	// MaxManifest bounds one manifest, MaxBytes all of a write.
	MaxManifest Size `yaml:"max_manifest"`
	MaxBytes    Size `yaml:"max_bytes"`
	// MaxManifests and MaxFiles bound what a write has.
	MaxManifests int64 `yaml:"max_manifests"`
	MaxFiles     int64 `yaml:"max_files"`
}

// Size is a number of bytes, written as ParseSize reads it.
type Size int64

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	v, err := ParseSize(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*s = Size(v)
	return nil
}

// validate compares only what is set; the scheduler checks the rest.
func (w Writes) validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"ttl", int64(w.TTL)},
		{"max_age", int64(w.MaxAge)},
		{"max_open", int64(w.MaxOpen)},
		{"max_open_principal", int64(w.MaxOpenPrincipal)},
		{"max_manifest", int64(w.MaxManifest)},
		{"max_bytes", int64(w.MaxBytes)},
		{"max_manifests", w.MaxManifests},
		{"max_files", w.MaxFiles},
	} {
		if f.value < 0 {
			return fmt.Errorf("writes.%s: want more than 0", f.name)
		}
	}
	if w.TTL > 0 && w.MaxAge > 0 && w.TTL > w.MaxAge {
		return fmt.Errorf("writes.ttl: %s: want at most writes.max_age, %s", w.TTL, w.MaxAge)
	}
	return nil
}
