package objstore

import "time"

// LocalError is localError, for tests.
var LocalError = localError

// NewTuned makes a store with short waits between tries, and a function that
// closes its idle connections.
func NewTuned(c Config, stall time.Duration, attempts int) (Store, func()) {
	t := &tuning{
		stall: stall, attempts: attempts, pause: time.Millisecond, longest: 10 * time.Millisecond, transport: newTransport(stall),
	}
	return &router{s3: newS3Store(c, t)}, t.transport.CloseIdleConnections
}
