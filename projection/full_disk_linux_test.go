package projection

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestOpenOnADiskWithoutAByte: a store on a file system that is really full is neither thrown away nor waited for in Pebble for ever.
func TestOpenOnADiskWithoutAByte(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("streamkeeper-test", disk, "tmpfs", 0, "size=64m"); err != nil {
		if !errors.Is(err, syscall.EPERM) {
			t.Fatal(err)
		}
		t.Skip("skipped: only root can mount a small file system; TestOpenOnAFullDisk does without one")
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	cfg := testConfig(newSickDisk())
	cfg.FS, cfg.Dir = vfs.Default, filepath.Join(disk, "projection")
	s, err := Open(cfg)
	must(t, err)
	must(t, s.Batch(1, groupsBatch(0, "a")))
	must(t, s.Close())

	filler, err := os.Create(filepath.Join(disk, "filler"))
	must(t, err)
	for size := 1 << 20; size > 0; {
		if _, err := filler.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	must(t, filler.Close())
	opened := make(chan error, 1)
	go func() {
		_, err := Open(cfg)
		opened <- err
	}()
	select {
	case err := <-opened:
		if !errors.Is(err, ErrStorage) || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("Open on a full disk: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Open on a full disk does not return")
	}
	must(t, os.Remove(filler.Name()))
	s, err = Open(cfg)
	must(t, err)
	wantGroups(t, s, 1, "a")
	must(t, s.Close())
}
