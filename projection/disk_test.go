package projection

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"streamkeeper/eventlog"
)

// sickDisk is a file system whose operations fail while it is told to.
type sickDisk struct {
	*errorfs.FS
	fail atomic.Pointer[func(errorfs.Op) error]
}

func newSickDisk() *sickDisk {
	d := &sickDisk{}
	d.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if f := d.fail.Load(); f != nil {
			return (*f)(op)
		}
		return nil
	}))
	return d
}

func (d *sickDisk) heal() { d.fail.Store(nil) }

// writes makes writes to files whose name has the part fail with err.
func (d *sickDisk) writes(part string, err error) {
	f := func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpRemove && op.Kind != errorfs.OpRemoveAll && strings.Contains(op.Path, part) {
			return err
		}
		return nil
	}
	d.fail.Store(&f)
}

func openSick(t *testing.T, d *sickDisk) *Store {
	t.Helper()
	cfg := testConfig(d)
	s := open(t, cfg)
	s.disk.probe, s.disk.pause = time.Millisecond, time.Millisecond
	return s
}

// until waits for something that another goroutine does without telling.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) { // nothing tells when it happens
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func startFlush(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.engine.db.AsyncFlush()
	must(t, err)
}

func TestAFullDiskIsWaitedOut(t *testing.T) {
	for name, err := range map[string]error{"no space": syscall.ENOSPC, "a quota": syscall.EDQUOT} {
		t.Run(name, func(t *testing.T) { aFullDiskIsWaitedOut(t, err) })
	}
}

func aFullDiskIsWaitedOut(t *testing.T, full error) {
	d := newSickDisk()
	s := openSick(t, d)
	s.disk.hang = 50 * time.Millisecond
	must(t, s.Batch(1, groupsBatch(0, "a", "b")))
	d.writes("", full)
	startFlush(t, s)
	until(t, "the disk is full", func() bool { return s.Err(1) != nil })
	if err := s.Err(1); !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), "no space") || !strings.Contains(err.Error(), "projection") {
		t.Errorf("Err: %v", err)
	}
	if !s.Stats().Full {
		t.Error("the numbers don't say so")
	}
	read := int64(0)
	s.OnRead(func(p int32, next, _ int64) { read = next })
	must(t, s.Batch(1, groupsBatch(2, "c"))) // into memory: what is proven by reading must not wait for the disk
	if read != 3 {
		t.Errorf("a batch while the disk is full is not told: %d", read)
	}
	wantGroups(t, s, 1, "a", "b", "c")
	time.Sleep(3 * s.disk.hang) // the flush waits for space
	must(t, s.Reads(1))
	next, taken := int64(3), 0
	raw := eventlog.Encode(eventlog.Record{
		Key:   eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: "g", Topic: "t"},
		Value: &eventlog.OffsetCommit{Metadata: strings.Repeat("x", 30_000), ExpireTimestamp: -1},
	})
	for {
		b := eventlog.Batch{HighWatermark: next + 10, Next: next + 10}
		for i := range int64(10) {
			b.Entries = append(b.Entries, eventlog.Entry{Offset: next + i, ProducerID: -1, Key: raw.Key, Value: raw.Value})
		}
		if err := s.Batch(1, b); err != nil {
			break
		}
		next += 10
		if taken += 10 * len(raw.Value); taken > heldBytesMax+memTableBytes {
			t.Fatalf("%d MB went into memory", taken>>20)
		}
	}
	if taken < heldBytesMax/2 {
		t.Errorf("%d MB went into memory", taken>>20)
	}
	for range 3 {
		if err := s.Batch(1, groupsBatch(next, "d")); !errors.Is(err, ErrStorage) || errors.Is(err, eventlog.ErrRebuild) || errors.Is(err, eventlog.ErrRefused) {
			t.Fatalf("Batch: %v", err)
		}
	}
	wantGroups(t, s, 1, "a", "b", "c") // reading goes on
	if err := s.Reads(1); !errors.Is(err, ErrStorage) {
		t.Errorf("Reads, when memory takes nothing more: %v", err)
	}
	if err := s.Reset(2, "cut off"); !errors.Is(err, ErrStorage) {
		t.Errorf("Reset: %v", err)
	}
	d.heal()
	until(t, "the disk has space", func() bool { return s.Err(1) == nil })
	until(t, "memory is written", func() bool { return s.Batch(1, groupsBatch(next, "d")) == nil })
	wantGroups(t, s, 1, "a", "b", "c", "d")
	wantRebuilds(t, s, map[Reason]uint64{ReasonNone: 1})
	must(t, s.Close())
	s = openSick(t, d)
	wantGroups(t, s, 1, "a", "b", "c", "d")
	wantRebuilds(t, s, map[Reason]uint64{})
	must(t, s.Close())
}

// TestADiskThatHangsIsTold: it fails nothing, and yet the store is out of order, as long as it hangs.
func TestADiskThatHangsIsTold(t *testing.T) {
	d := &slowDisk{FS: vfs.NewMem()}
	s := open(t, testConfig(d))
	s.disk.hang = 50 * time.Millisecond
	d.mu.Lock()
	must(t, s.Batch(1, groupsBatch(0, "a")))
	startFlush(t, s)
	until(t, "the flush takes too long", func() bool { return errors.Is(s.Err(1), ErrStorage) })
	must(t, s.Batch(1, groupsBatch(1, "b")))
	wantGroups(t, s, 1, "a", "b")
	d.mu.Unlock()
	until(t, "it goes on", func() bool { return s.Err(1) == nil })
	must(t, s.Close())
}

func TestCloseDoesNotWaitForAFullDisk(t *testing.T) {
	for name, when := range map[string]func(t *testing.T, s *Store, d *sickDisk){
		"full before": func(t *testing.T, s *Store, d *sickDisk) {
			d.writes("", syscall.ENOSPC)
			startFlush(t, s)
			until(t, "the disk is full", func() bool { return s.Err(1) != nil })
		},
		"full from now on": func(_ *testing.T, _ *Store, d *sickDisk) { d.writes("", syscall.ENOSPC) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newSickDisk()
			s := openSick(t, d)
			must(t, s.Batch(1, groupsBatch(0, "a")))
			must(t, s.engine.flush())
			must(t, s.Batch(1, groupsBatch(1, "b")))
			when(t, s, d)
			start := time.Now()
			err := s.Close()
			if took := time.Since(start); took > flushWaitMax/2 {
				t.Errorf("Close took %v", took)
			}
			if name == "full from now on" && !errors.Is(err, ErrStorage) {
				t.Errorf("Close: %v", err)
			}
			d.heal()
			s = openSick(t, d)
			defer func() { must(t, s.Close()) }()
			wantGroups(t, s, 1, "a")
			if s.Resume(1).Offset != 1 {
				t.Errorf("resumes at %+v", s.Resume(1))
			}
		})
	}
}

func TestOpenOnAFullDisk(t *testing.T) {
	d := newSickDisk()
	d.writes("", syscall.ENOSPC)
	if _, err := Open(testConfig(d)); !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), "projection") {
		t.Errorf("a new store: %v", err)
	}
	d.heal()
	s := openSick(t, d)
	must(t, s.Batch(1, groupsBatch(0, "a")))
	must(t, s.Close())
	d.writes("", syscall.ENOSPC)
	if _, err := Open(testConfig(d)); !errors.Is(err, ErrStorage) {
		t.Errorf("a store that was there: %v", err)
	}
	d.heal()
	s = openSick(t, d)
	wantGroups(t, s, 1, "a") // it is no reason to throw it away
	must(t, s.Close())
}

// TestASickDiskIsReplaced: errors that are none of this moment's break the store, wherever they hit it; nothing panics, and the
// partition is read again once the disk works.
func TestASickDiskIsReplaced(t *testing.T) {
	for _, c := range []struct{ name, files string }{
		{"tables can't be written", ".sst"},
		{"the manifest can't be written", "MANIFEST"},
		{"nothing can be written", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newSickDisk()
			s := openSick(t, d)
			must(t, s.Batch(1, groupsBatch(0, "a", "b")))
			claim(t, s, 0, time.Now(), 4, "four:1")
			claim(t, s, 0, time.Now(), 5, "five:1")
			d.writes(c.files, syscall.EIO)
			startFlush(t, s)
			until(t, "the store breaks", func() bool { return s.Err(1) != nil })
			if err := s.Err(1); !errors.Is(err, ErrStorage) {
				t.Errorf("Err: %v", err)
			}
			if _, err := s.Group(1, "a"); !errors.Is(err, ErrStorage) {
				t.Errorf("a read: %v", err)
			}
			if c.files == "" {
				for range 3 { // as the tail repeats it
					if err := s.Batch(1, groupsBatch(2, "c")); !errors.Is(err, ErrStorage) {
						t.Fatalf("Batch: %v", err)
					}
				}
			}
			d.heal()
			rebuild(t, s, 1, s.Batch(1, groupsBatch(2, "c")), ReasonDamaged)
			must(t, s.Batch(1, groupsBatch(0, "a", "b", "c")))
			wantGroups(t, s, 1, "a", "b", "c")
			wantRebuilds(t, s, map[Reason]uint64{ReasonNone: 1, ReasonDamaged: 1})
			must(t, s.Close())
			s = openSick(t, d)
			wantGroups(t, s, 1, "a", "b", "c")
			if n := addresses(s); len(n) != 2 { // which the log does not have any more
				t.Errorf("replicas %v", n)
			}
			must(t, s.Close())
		})
	}
}

func TestReadsWaitForAFileDescriptor(t *testing.T) {
	d := newSickDisk()
	s := openSick(t, d)
	must(t, s.Batch(1, groupsBatch(0, manyNames(1000)...)))
	must(t, s.Close())
	s = openSick(t, d)
	defer func() { must(t, s.Close()) }()
	var tries atomic.Int32
	refuse := func(times int32) {
		tries.Store(0)
		f := func(op errorfs.Op) error {
			if op.Kind == errorfs.OpOpen && strings.HasSuffix(op.Path, ".sst") && tries.Add(1) <= times {
				return fmt.Errorf("open %s: %w", op.Path, syscall.EMFILE)
			}
			return nil
		}
		d.fail.Store(&f)
	}
	refuse(openFileTries + 3)
	if _, err := s.HasGroup(1, "group-000007"); err != nil && !errors.Is(err, ErrStorage) {
		t.Errorf("with no descriptor for too long: %v", err)
	}
	if err := s.Err(1); err != nil {
		t.Errorf("the store broke of it: %v", err)
	}
	refuse(3)
	if has, err := s.HasGroup(1, "group-000007"); !has || err != nil {
		t.Errorf("with no descriptor for a moment: %v, %v", has, err)
	}
	wantRebuilds(t, s, map[Reason]uint64{})
}

// slowDisk holds up the creation of tables.
type slowDisk struct {
	vfs.FS
	mu sync.Mutex
}

func (d *slowDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") {
		d.mu.Lock()
		defer d.mu.Unlock()
	}
	return d.FS.Create(name, category)
}

// TestWritersWaitForASlowDisk: what waits to be flushed is bounded, and Close does not hang behind it.
func TestWritersWaitForASlowDisk(t *testing.T) {
	d := &slowDisk{FS: vfs.NewMem()}
	s := open(t, testConfig(d))
	d.mu.Lock()
	raw := eventlog.Encode(eventlog.Record{
		Key:   eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: "g", Topic: "t"},
		Value: &eventlog.OffsetCommit{Metadata: strings.Repeat("x", 30_000), ExpireTimestamp: -1},
	})
	var written atomic.Int64
	const writers = 3 // a partition each
	done := make(chan error)
	for p := range int32(writers) {
		go func() {
			for offset := int64(0); ; {
				b := eventlog.Batch{HighWatermark: 1 << 40}
				for range 50 {
					b.Entries = append(b.Entries, eventlog.Entry{Offset: offset, ProducerID: -1, Key: raw.Key, Value: raw.Value})
					offset++
				}
				b.Next = offset
				if err := s.Batch(p, b); err != nil {
					done <- err
					return
				}
				written.Add(50)
			}
		}()
	}
	until(t, "the writers wait", func() bool {
		before := written.Load()
		time.Sleep(100 * time.Millisecond) // long against the milliseconds of a batch
		return before > 0 && written.Load() == before
	})
	if most := int64(memTableBytesMax+easeBytes)/int64(len(raw.Value)) + 50*writers; written.Load() > most { // no more than one would have written
		t.Errorf("%d records were taken, of at most %d", written.Load(), most)
	}
	if waiting := s.engine.db.Metrics().MemTable.Size; waiting > memTableBytesMax+2*memTableBytes {
		t.Errorf("%d MB wait", waiting>>20)
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for range writers {
		if err := <-done; !errors.Is(err, ErrClosed) { // the one that waited is done first, the next is refused
			t.Errorf("a writer: %v", err)
		}
	}
	d.mu.Unlock()
	must(t, <-closed)
}
