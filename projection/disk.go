package projection

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is the file system under a store. Pebble treats a write that fails as the end of the process, or tries it again
// at once and for ever; so two failures that pass by themselves are waited out here, below Pebble:
//
//   - No space left, or no more of what the user may have (a quota, which is told as no space to Pebble): the writing goroutine waits until a probe file can be written. Meanwhile full() says so: the store
//     takes batches into memory up to heldBytesMax, then none (the tail repeats them), and tells it in Err. Nothing is lost, and nothing has to
//     be rebuilt.
//   - No file descriptor left: a few tries with pauses; connections come and go.
type disk struct {
	vfs.FS
	dir     string
	inner   vfs.FS
	logger  *slog.Logger
	armed   atomic.Bool           // while opening and closing, a full disk is an error like any other
	isFull  atomic.Pointer[error] // nil: it is not
	spaceAt atomic.Int64          // when a full disk had space again, in nanoseconds since clockStart
	closing chan struct{}
	probe   time.Duration // diskProbeInterval
	pause   time.Duration // openFilePause
	hang    time.Duration // flushPatience
}

const (
	// diskProbeInterval is how often a full disk is tried again.
	diskProbeInterval = time.Second
	// diskProbeBytes must fit before the disk counts as writable: about what one flush of a quiet store takes.
	diskProbeBytes = 1 << 20
	// openFileTries and openFilePause: how long a missing file descriptor is waited for, 2 s in all; then the operation fails.
	openFileTries = 20
	openFilePause = 100 * time.Millisecond
)

func newDisk(fs vfs.FS, dir string, logger *slog.Logger, closing chan struct{}) *disk {
	fs = quotaFS{fs}
	d := &disk{dir: dir, inner: fs, logger: logger, closing: closing, probe: diskProbeInterval, pause: openFilePause, hang: flushPatience}
	d.FS = vfs.OnDiskFull(fs, d.waitForSpace)
	return d
}

// full returns the error of a full disk, or nil.
func (d *disk) full() error {
	if err := d.isFull.Load(); err != nil {
		return *err
	}
	return nil
}

// waitForSpace is called by the first write that finds the disk full; others wait until it returns, and all are tried again.
func (d *disk) waitForSpace() {
	if !d.armed.Load() {
		return
	}
	err := fmt.Errorf("%w: no space left on the disk of %s", ErrStorage, d.dir)
	d.isFull.Store(&err)
	d.logger.Error("projection: the disk is full; what is read stays in memory until there is space", "dir", d.dir)
	t := time.NewTicker(d.probe)
	defer t.Stop()
	for d.armed.Load() {
		select {
		case <-d.closing:
			return
		case <-t.C:
		}
		if err := d.writeProbe(); !errors.Is(err, syscall.ENOSPC) {
			d.spaceAt.Store(int64(time.Since(clockStart)))
			d.isFull.Store(nil)
			d.logger.Info("projection: the disk has space again", "dir", d.dir)
			return
		}
	}
}

func (d *disk) writeProbe() (err error) {
	name := d.inner.PathJoin(d.dir, "PROBE")
	f, err := d.inner.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, f.Close(), d.inner.Remove(name))
	}()
	if _, err := f.Write(make([]byte, diskProbeBytes)); err != nil {
		return err
	}
	return f.Sync()
}

// Create implements vfs.FS.
func (d *disk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return patiently(d, func() (vfs.File, error) { return d.FS.Create(name, category) })
}

// Open implements vfs.FS.
func (d *disk) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return patiently(d, func() (vfs.File, error) { return d.FS.Open(name, opts...) })
}

// OpenReadWrite implements vfs.FS.
func (d *disk) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return patiently(d, func() (vfs.File, error) { return d.FS.OpenReadWrite(name, category, opts...) })
}

// OpenDir implements vfs.FS.
func (d *disk) OpenDir(name string) (vfs.File, error) {
	return patiently(d, func() (vfs.File, error) { return d.FS.OpenDir(name) })
}

// Unwrap lets Pebble find the file system at the bottom.
func (d *disk) Unwrap() vfs.FS { return d.inner }

func patiently(d *disk, open func() (vfs.File, error)) (f vfs.File, err error) {
	for range openFileTries {
		f, err = open()
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			return f, err
		}
		select {
		case <-d.closing:
			return nil, err
		case <-time.After(d.pause):
		}
	}
	return nil, err
}

// passing says of an error of the file system that it is about this moment, and not about the files of a store: they are
// neither damaged nor worth throwing away.
func passing(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EROFS, os.ErrPermission} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// quotaFS tells a quota that is used up (EDQUOT) as what it is to whoever writes: a disk that is full, and will have space again.
type quotaFS struct{ vfs.FS }

func full(err error) error {
	if errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%v: %w", err, syscall.ENOSPC) // Pebble looks at the innermost error
	}
	return err
}

// Create implements vfs.FS.
func (q quotaFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return quotaFileOf(q.FS.Create(name, category))
}

// OpenReadWrite implements vfs.FS.
func (q quotaFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return quotaFileOf(q.FS.OpenReadWrite(name, category, opts...))
}

// ReuseForWrite implements vfs.FS.
func (q quotaFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return quotaFileOf(q.FS.ReuseForWrite(oldname, newname, category))
}

// MkdirAll implements vfs.FS.
func (q quotaFS) MkdirAll(dir string, perm os.FileMode) error { return full(q.FS.MkdirAll(dir, perm)) }

// Link implements vfs.FS.
func (q quotaFS) Link(oldname, newname string) error { return full(q.FS.Link(oldname, newname)) }

// Rename implements vfs.FS.
func (q quotaFS) Rename(oldname, newname string) error { return full(q.FS.Rename(oldname, newname)) }

// Unwrap lets Pebble find the file system at the bottom.
func (q quotaFS) Unwrap() vfs.FS { return q.FS }

// quotaFile is a file that is written to.
type quotaFile struct{ vfs.File }

func quotaFileOf(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, full(err)
	}
	return quotaFile{f}, nil
}

// Write implements vfs.File.
func (f quotaFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, full(err)
}

// WriteAt implements vfs.File.
func (f quotaFile) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(p, offset)
	return n, full(err)
}

// Preallocate implements vfs.File.
func (f quotaFile) Preallocate(offset, length int64) error {
	return full(f.File.Preallocate(offset, length))
}

// Sync implements vfs.File.
func (f quotaFile) Sync() error { return full(f.File.Sync()) }

// SyncData implements vfs.File.
func (f quotaFile) SyncData() error { return full(f.File.SyncData()) }

// SyncTo implements vfs.File.
func (f quotaFile) SyncTo(length int64) (bool, error) {
	whole, err := f.File.SyncTo(length)
	return whole, full(err)
}
