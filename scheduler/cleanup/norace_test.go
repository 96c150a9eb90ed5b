//go:build !race

package cleanup_test

const underRace = false
