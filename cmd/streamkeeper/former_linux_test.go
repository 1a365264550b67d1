package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestADiskThatHangsIsNotWaitedForByTheGroup: the ownership group tells the member id in the middle of an assignment.
func TestADiskThatHangsIsNotWaitedForByTheGroup(t *testing.T) {
	dir := t.TempDir()
	f := formerMember{file: filepath.Join(dir, formerFile), lock: filepath.Join(dir, "LOCK"), log: slog.New(slog.DiscardHandler)}
	write(t, f.lock, "")
	disk := f.file + ".new" // a pipe with a name stands for it
	if err := syscall.Mkfifo(disk, 0o600); err != nil {
		t.Fatal(err)
	}
	remember := f.memory("log", 1)
	told := make(chan struct{})
	go func() {
		defer close(told)
		for _, id := range []string{"a", "b", "c"} {
			remember(id)
		}
	}()
	select {
	case <-told:
	case <-time.After(10 * time.Second):
		t.Fatal("the group waits for the disk")
	}
	pipe, err := os.Open(disk) // it goes on
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	await := func(what string, is func(info os.FileInfo) bool) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // nothing tells when it happens
			if info, err := os.Lstat(f.file); err == nil && is(info) {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("not so: %s", what)
			}
		}
	}
	await("the pipe has taken it", func(os.FileInfo) bool { return true })
	remember("d")
	await("what was told last is remembered", func(info os.FileInfo) bool { return info.Mode().IsRegular() && f.read("log", 1) == "d" })
}
