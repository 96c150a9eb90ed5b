package config

import (
	"fmt"
	"time"
)

// Speculation says which tasks are run a second time. What isn't set has the
// scheduler's default.
type Speculation struct {
	// Enabled is true when it isn't set.
	Enabled *bool `yaml:"enabled"`
	// Done is the part of a stage's tasks that must have ended before, above 0 and at
	// most 1.
	Done float64 `yaml:"done"`
	// Slower is how many times the median of those a task has run, AtLeast how long.
	Slower  float64       `yaml:"slower"`
	AtLeast time.Duration `yaml:"at_least"`
}

func (s Speculation) validate() error {
	switch {
	case s.Done < 0 || s.Done > 1:
		return fmt.Errorf("speculation.done: %v: want more than 0, and 1 at most", s.Done)
	case s.Slower != 0 && s.Slower < 1:
		return fmt.Errorf("speculation.slower: %v: want 1 or more", s.Slower)
	case s.AtLeast < 0:
		return fmt.Errorf("speculation.at_least: %s: want more than 0", s.AtLeast)
	}
	return nil
}

// Results says how long what jobs give can be fetched.
type Results struct {
	// Keep is how long the rows of a SELECT can be fetched after its end.
	Keep time.Duration `yaml:"keep"`
}

func (r Results) validate() error {
	if r.Keep < 0 {
		return fmt.Errorf("results.keep: %s: want more than 0", r.Keep)
	}
	return nil
}
