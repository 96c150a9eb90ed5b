package servers

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel end a process when ours dies, however it dies: a
// test that times out or is killed runs no cleanup.
func endWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
