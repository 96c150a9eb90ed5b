//go:build !linux

package binder

// confinement says what the helper couldn't give up: here, nothing is.
func confinement() string {
	return "privileges, resource limits and system calls (only Linux has them)"
}
