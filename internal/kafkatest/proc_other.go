//go:build unix && !linux

package kafkatest

import "syscall"

// childAttr makes a child the leader of its own process group (a Ctrl-C on the terminal then reaches only the test,
// which stops its children in order). Only Linux can also kill it when the test binary dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
