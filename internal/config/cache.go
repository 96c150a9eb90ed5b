package config

import (
	"fmt"
	"time"
)

// Cache bounds cached frames. What isn't set has the scheduler's default.
type Cache struct {
	// TTL is how long a frame is kept without being used, unless it says otherwise.
	TTL time.Duration `yaml:"ttl"`
	// Frames and Bytes are what one principal may have of them together.
	Frames int  `yaml:"frames"`
	Bytes  Size `yaml:"bytes"`
}

func (c Cache) validate() error {
	if c.TTL < 0 {
		return fmt.Errorf("cache.ttl: %s: want more than 0", c.TTL)
	}
	if c.Frames < 0 {
		return fmt.Errorf("cache.frames: %d: want 1 or more", c.Frames)
	}
	return nil
}
