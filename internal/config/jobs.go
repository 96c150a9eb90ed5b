package config

import "fmt"

// Jobs says how many jobs are let in. What isn't set has the scheduler's default.
type Jobs struct {
	// PlannedAtOnce is how many are planned at a time; others wait.
	PlannedAtOnce int `yaml:"planned_at_once"`
	// MaxQueued is how many may wait to be planned. A statement that would be one more
	// is refused.
	MaxQueued int `yaml:"max_queued"`
}

func (j Jobs) validate() error {
	switch {
	case j.PlannedAtOnce < 0:
		return fmt.Errorf("jobs.planned_at_once: %d: want 1 or more", j.PlannedAtOnce)
	case j.MaxQueued < 0:
		return fmt.Errorf("jobs.max_queued: %d: want 1 or more", j.MaxQueued)
	}
	return nil
}
