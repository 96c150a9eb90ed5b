package flightsql

import "time"

// SetPause sets the first wait between two tries.
func (e *Engine) SetPause(d time.Duration) { e.pause = d }

// SetMaxMessage bounds a message in bytes.
func (e *Engine) SetMaxMessage(n int) { e.maxMessage = n }
