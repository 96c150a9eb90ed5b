//go:build !linux

package servers

import "os/exec"

// endWithParent does nothing: only Linux can end a process with its parent.
func endWithParent(*exec.Cmd) {}
