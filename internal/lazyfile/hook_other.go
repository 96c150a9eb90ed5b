//go:build !linux || !cgo

package lazyfile

// eager says that files are fetched whole when they're made.
const eager = true

func register(*File) (func(), error) { return func() {}, nil }
