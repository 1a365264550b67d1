package differential

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel end the process when ours ends, however that happens.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
