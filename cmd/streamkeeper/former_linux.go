package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// lockPlace names the start of the machine and the file, "" where that can't be told.
func lockPlace(file string) string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	info, err := os.Stat(file)
	if err != nil {
		return ""
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s %d %d", strings.TrimSpace(string(boot)), s.Dev, s.Ino)
}
