//go:build race

package cleanup_test

// underRace: each journal write takes ten times as long, and the properties are those
// of one goroutine anyway.
const underRace = true
