// Package process starts Firn's processes for tests and runs statements through
// its command line, as a user would.
package process
