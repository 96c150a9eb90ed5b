package objstore

// LocalError is localError, for tests.
var LocalError = localError

// CloseIdle closes a store's idle connections, for leak checks.
func CloseIdle(s Store) {
	if r, ok := s.(*router); ok {
		r.s3.http.CloseIdleConnections()
	}
}
