//go:build !linux

package differential

import "os/exec"

// dieWithParent: where the kernel can't do it the oracle ends by itself when its standard input does.
func dieWithParent(*exec.Cmd) {}
