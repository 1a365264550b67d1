package kafkatest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
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

// ReadOnly lets nothing below a directory be made, written anew or removed, by whoever comes to it by its name; files that are open are not affected. undo
// ends it. ok is false where only root could do it.
func ReadOnly(tb testing.TB, dir string) (undo func(), ok bool) {
	tb.Helper()
	if err := syscall.Mount(dir, dir, "", syscall.MS_BIND, ""); errors.Is(err, syscall.EPERM) {
		return nil, false
	} else if err != nil {
		tb.Fatalf("mount %s over itself: %v", dir, err)
	}
	var once sync.Once
	undo = func() {
		once.Do(func() {
			if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
				tb.Errorf("unmount %s: %v", dir, err)
			}
		})
	}
	tb.Cleanup(undo)
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""); err != nil {
		tb.Fatalf("make %s read-only: %v", dir, err)
	}
	return undo, true
}
