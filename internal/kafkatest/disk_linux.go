package kafkatest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallDisk is a file system of its own, of memory, for the length of the test. ok is false where only root could mount one.
func SmallDisk(tb testing.TB, megabytes int) (dir string, ok bool) {
	tb.Helper()
	dir = tb.TempDir()
	switch err := syscall.Mount("streamkeeper-test", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes)); {
	case errors.Is(err, syscall.EPERM):
		return "", false
	case err != nil:
		tb.Fatalf("mount a small file system: %v", err)
	}
	tb.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			tb.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir, true
}

// FillDisk leaves no byte free, until the file is removed.
func FillDisk(tb testing.TB, dir, name string) (file string) {
	tb.Helper()
	file = filepath.Join(dir, name)
	f, err := os.Create(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			tb.Fatal(err)
		}
	}
	return file
}
