package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

// engine is one Pebble store in a directory of its own. It breaks once and for all: on damage, on a background error, and
// where Pebble would end the process. A broken one is replaced by an empty one (Store.renew), and goes away when its
// last reader is done.
//
// There is no write-ahead log. It would not make a commit slower (2 to 3 µs with and without, as measured), but Pebble ends
// the process when it can't write it. A commit without one goes into memory alone and can't fail on a sick disk. What was
// not flushed when the process is killed is read from the log again: flushInterval of records at most, some 400,000 a second.
type engine struct {
	number int // increases with each replacement
	dir    string
	disk   *disk
	db     *pebble.DB
	cache  *pebble.Cache
	logger *slog.Logger

	broken      atomic.Pointer[error]
	flushed     chan struct{} // a flush ended
	flushFailed atomic.Bool   // the last one did
	written     atomic.Int64  // bytes since the last look at what waits
	pressed     atomic.Bool   // too much waited at the last look
	easing      sync.Mutex    // of whoever looks
	held        atomic.Int64  // bytes written while the disk was full, since the last flush that succeeded
	flushBegan  atomic.Int64  // ns since clockStart, of the flush under way; 0: none is
	dirty       atomic.Bool   // something was written since the last regular flush

	mu      sync.Mutex
	refs    int    // readers and writers
	retired func() // set when nobody may begin any more; called when refs is 0
}

const (
	// memTableBytes is the size of a memtable: what is flushed at once.
	memTableBytes = 16 << 20
	// memTableBytesMax bounds what waits to be flushed; more writers wait in ease.
	memTableBytesMax = 4 * memTableBytes
	// sublevelsMax bounds the files that reads have to look through when compaction can't keep up; more writers wait in ease.
	sublevelsMax = 40
	// heldBytesMax is what is written to memory while the disk is full, in addition to what waited before. It takes hours of a quiet log.
	heldBytesMax = 2 * memTableBytes
	// flushPatience is how long a flush may take: a disk that hangs says nothing. A full set of memtables is 64 MiB.
	flushPatience = 10 * time.Second
	// easeBytes: pressure is looked at each time this much was written.
	easeBytes = 4 << 20
	// neverStop disables Pebble's own write stalls: a stalled commit can't be interrupted, so Close would hang behind a full disk.
	neverStop = 1 << 20
	// cacheBytesDefault is the block cache's size where Config has none: the hot part of the index and filter blocks.
	cacheBytesDefault = 32 << 20
	// formatMajor is Pebble's on-disk format. A store of a newer one can't be opened and is rebuilt.
	formatMajor = pebble.FormatColumnarBlocks
)

func openEngine(d *disk, dir string, number int, cacheBytes int64, logger *slog.Logger) (_ *engine, err error) {
	e := &engine{
		number: number, dir: dir, disk: d, logger: logger,
		cache: pebble.NewCache(cacheBytes), flushed: make(chan struct{}, 1),
	}
	defer func() {
		// Pebble panics on some damaged files: a store that can't be opened is a store that can't be opened.
		if p := recover(); p != nil {
			err = fmt.Errorf("pebble panics: %v", p)
		}
		if err != nil {
			e.cache.Unref()
		}
	}()
	options := &pebble.Options{
		FS:                          d,
		Cache:                       e.cache,
		DisableWAL:                  true,
		FormatMajorVersion:          formatMajor,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: neverStop,
		L0StopWritesThreshold:       neverStop,
		Logger:                      pebbleLogger{e},
		EventListener: &pebble.EventListener{
			DataCorruption:  func(i pebble.DataCorruptionInfo) { e.breakDown(fmt.Errorf("damaged file %s: %v", i.Path, i.Details)) },
			FlushBegin:      func(pebble.FlushInfo) { e.flushBegan.Store(int64(time.Since(clockStart)) + 1) },
			FlushEnd:        e.flushEnded,
			BackgroundError: e.backgroundError,
		},
	}
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10) // many look-ups are for groups and offsets that don't exist
	}
	if e.db, err = pebble.Open(dir, options); err != nil {
		return nil, err
	}
	if err := e.err(); err != nil {
		_ = e.db.Close()
		return nil, err
	}
	return e, nil
}

// breakDown marks the engine as unusable. It may be called with any of Pebble's locks held.
func (e *engine) breakDown(why error) {
	err := fmt.Errorf("%w: %s: %w", ErrStorage, e.dir, why)
	if e.broken.CompareAndSwap(nil, &err) {
		e.logger.Error("projection: the store is unusable and will be rebuilt from the log", "dir", e.dir, "error", why)
	}
}

// err returns why the engine is unusable, or nil.
func (e *engine) err() error {
	if err := e.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// clockStart is what flushBegan counts from, by the monotonic clock.
var clockStart = time.Now()

// hangs says that a flush takes so long that the disk must be taken for one that hangs. What is read and written goes on in memory, as far as it does.
func (e *engine) hangs() error {
	began := e.flushBegan.Load()
	if began == 0 {
		return nil
	}
	began = max(began, e.disk.spaceAt.Load()) // a flush that found the disk full went on then
	if took := time.Since(clockStart) - time.Duration(began); took > e.disk.hang {
		return fmt.Errorf("%w: %s: a flush takes longer than %v", ErrStorage, e.dir, e.disk.hang)
	}
	return nil
}

func (e *engine) flushEnded(info pebble.FlushInfo) {
	e.flushBegan.Store(0)
	if info.Err == nil {
		e.held.Store(0)
	}
	e.flushFailed.Store(passing(info.Err))
	select {
	case e.flushed <- struct{}{}:
	default:
	}
}

// backgroundError hears of flushes and compactions that failed. Those for lack of space or file descriptors were waited out as
// long as is reasonable, and Pebble repeats them. All others mean that files can't be read or written.
func (e *engine) backgroundError(err error) {
	for _, waited := range []error{syscall.ENOSPC, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, waited) {
			return
		}
	}
	e.breakDown(err)
}

// failed turns an error of a read into one for the caller, and breaks the engine where it is damage.
func (e *engine) failed(err error) error {
	switch {
	case err == nil:
		return e.err()
	case passing(err):
		return fmt.Errorf("%w: %s: %w", ErrStorage, e.dir, err)
	}
	e.breakDown(err)
	return e.err()
}

// commit applies b. It is in memory then, and on disk after a flush.
func (e *engine) commit(b *pebble.Batch) error {
	e.written.Add(int64(b.Len()))
	if e.disk.full() != nil {
		e.held.Add(int64(b.Len()))
	}
	if err := b.Commit(pebble.NoSync); err != nil {
		return e.failed(err)
	}
	e.dirty.Store(true)
	return e.err()
}

// ease waits while too much waits to be flushed or compacted, and so do all others that come meanwhile. It returns at once when the disk is full, the engine is
// broken or the store closes: the caller looks at those.
func (e *engine) ease(closing <-chan struct{}) {
	if e.written.Load() < easeBytes && !e.pressed.Load() {
		return
	}
	e.easing.Lock() // one looks, for all
	defer e.easing.Unlock()
	e.written.Store(0)
	const look = 20 * time.Millisecond // flushes tell, compactions don't
	for e.disk.full() == nil && e.err() == nil {
		m := e.db.Metrics()
		if m.MemTable.Size <= memTableBytesMax && m.Levels[0].Sublevels <= sublevelsMax {
			e.pressed.Store(false)
			return
		}
		e.pressed.Store(true)
		select {
		case <-closing:
			return
		case <-e.flushed:
		case <-time.After(look):
		}
	}
}

// flushWaitMax is how long Close waits for the last flush.
const flushWaitMax = 10 * time.Second

// flush writes what is in memory to disk. Pebble repeats a flush that fails for ever, flush doesn't wait for that.
func (e *engine) flush() error {
	e.flushFailed.Store(false)
	done, err := e.db.AsyncFlush()
	if err != nil {
		return e.failed(err)
	}
	limit := time.After(flushWaitMax)
	for {
		select {
		case <-done:
			return e.err()
		case <-e.flushed:
			if e.flushFailed.Load() {
				return fmt.Errorf("%w: %s: no space for the last flush", ErrStorage, e.dir)
			}
			if err := e.err(); err != nil {
				return err
			}
		case <-limit:
			return fmt.Errorf("%w: %s: the last flush takes longer than %v", ErrStorage, e.dir, flushWaitMax)
		}
	}
}

// acquire keeps the engine open until release. It is false for one that was retired.
func (e *engine) acquire() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.retired != nil {
		return false
	}
	e.refs++
	return true
}

func (e *engine) release() {
	e.mu.Lock()
	e.refs--
	last := e.refs == 0
	retired := e.retired
	e.mu.Unlock()
	if last && retired != nil {
		retired()
	}
}

// retire lets nobody begin any more and calls after when the last one is done.
func (e *engine) retire(after func()) {
	e.mu.Lock()
	e.retired = after
	last := e.refs == 0
	e.mu.Unlock()
	if last {
		after()
	}
}

// close closes the store. A broken one may not be in a state to be closed.
func (e *engine) close() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("pebble panics: %v", p)
		}
	}()
	err = e.db.Close()
	e.cache.Unref()
	return err
}

// destroy closes the store and removes its files.
func (e *engine) destroy() {
	// A broken store's Close can hang on what the breaking left behind; the process must not.
	// So the files go first, and once more after it.
	go func() {
		_ = e.disk.inner.RemoveAll(e.dir)
		if err := e.close(); err != nil {
			e.logger.Debug("projection: closing an unusable store", "dir", e.dir, "error", err)
		}
		if err := e.disk.inner.RemoveAll(e.dir); err != nil {
			e.logger.Warn("projection: an unusable store can't be removed", "dir", e.dir, "error", err)
		}
	}()
}

// pebbleLogger hands Pebble's messages on, and keeps it from ending the process.
type pebbleLogger struct{ e *engine }

func (l pebbleLogger) Infof(format string, args ...any) {
	if !l.e.logger.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	l.e.logger.Debug("pebble: " + fmt.Sprintf(format, args...))
}

func (l pebbleLogger) Errorf(format string, args ...any) {
	l.e.logger.Warn("pebble: " + fmt.Sprintf(format, args...))
}

// Fatalf marks the engine as broken and returns. What Pebble does next with a state that it calls fatal goes nowhere:
// nothing of a broken engine is used.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	err := errors.New(fmt.Sprintf(format, args...))
	for _, a := range args {
		if cause, ok := a.(error); ok && passing(cause) { // so that a full disk is not taken for a damaged store
			err = fmt.Errorf("%w (%w)", err, cause)
		}
	}
	l.e.breakDown(err)
}
