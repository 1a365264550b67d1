package projection

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
)

// Errors of a store. Those of a partition that can't be read wrap eventlog.ErrRefused.
var (
	// ErrStorage: the disk or the files on it. It passes: a full disk is waited for, a damaged store is rebuilt.
	ErrStorage = errors.New("projection storage")
	// ErrLoading: the partition is being read again after a rebuild and is behind what it once was; ask again later.
	ErrLoading = errors.New("projection is loading")
	// ErrLocked: another process, or another Store of this one, uses the directory.
	ErrLocked = errors.New("projection directory is in use")
	// ErrPartitions: the log topic has another partition count than it had. It does not pass.
	ErrPartitions = errors.New("the partition count of the log topic was changed")
	// ErrOtherLog: the directory has groups of another log, and Config.KeepOther. It does not pass.
	ErrOtherLog = errors.New("the directory has groups of another log")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("projection is closed")

	// errDamaged: bytes that this program can't have written.
	errDamaged = errors.New("damaged store")
)

// Config is what a Store is made of. Dir, Identity and DeleteRetention are required.
type Config struct {
	// Dir is made where it doesn't exist, and is the store's alone.
	Dir string
	// Identity is that of the log; a store of another log is thrown away.
	Identity eventlog.Identity
	// KeepOther refuses, with ErrOtherLog, to throw away a store of another log that has groups: where that log was deleted it is the last copy.
	KeepOther bool
	// DeleteRetention is the log topic's delete.retention.ms.
	DeleteRetention time.Duration
	// Now is the wall clock; time.Now where nil.
	Now func() time.Time
	// Opaque says that the log is an eventlog.Annex: its records are kept as they are, by their keys, and read with Value and Keys. The
	// methods of Reader that tell of groups find nothing.
	Opaque bool
	// Logger gets rebuilds and storage errors as warnings, Pebble's own messages as debug; discarded where nil.
	Logger *slog.Logger
	// CacheBytes is the size of the cache of blocks read from disk; 0: 32 MiB.
	CacheBytes int64
	// FlushInterval is how much of the log is read again after a kill, at most; 0: 30 s.
	FlushInterval time.Duration
	// FS is the file system; the operating system's where nil.
	FS vfs.FS
}

// flushIntervalDefault: reading 30 s of a busy log again takes about a second.
const flushIntervalDefault = 30 * time.Second

// Store is the projection of all partitions of a log. As an eventlog.Follower it is written by the tail; all other
// methods are safe from any goroutine.
type Store struct {
	cfg     Config
	logger  *slog.Logger
	disk    *disk
	lock    io.Closer
	closing chan struct{} // closed by Close
	ended   sync.WaitGroup
	// gate is held for reading by the methods of the Follower, so that Close can wait for them.
	gate  sync.RWMutex
	parts []*partition

	mu        sync.Mutex
	engine    *engine // nil once closed
	rebuilds  map[Reason]uint64
	replicas  map[int32]eventlog.Owner
	onApplied []func(p int32, next int64)
	onOwner   []func(p int32, o eventlog.Owner)
	onVoid    []func(p int32, voids []Void)
	onRead    []func(p int32, next, end int64)

	renewing sync.Mutex // one at a time replaces the engine
	counts   counts
}

var (
	_ Reader            = (*Store)(nil)
	_ eventlog.Follower = (*Store)(nil)
)

// partition is what is known of a partition without asking the engine. Only the tail changes it, but for restart.
type partition struct {
	p  int32
	mu sync.Mutex
	// engine is the number of the engine that the rest is about.
	engine int
	checkpoint
	persisted time.Time // the checkpoint's atEnd that is in the engine
	owner     eventlog.Owner
	owned     bool
	atEnd     bool // has stood at the end since the start or the last rebuild
	loading   bool // rebuilt in this process, and not at the end since
	whole     bool // the engine has it to the end of a former moment: kindWhole is stored
	err       error
	pending   int                        // number of pending offsets
	skipped   map[eventlog.Type]struct{} // types of which records were skipped; not changed once it is here
	logIDSeen bool                       // logID was read since the last rebuild, and not by an earlier process
	restarts  uint64                     // rebuilds in this process
	because   Reason                     // why it was forgotten last in this process; "" where it was not
	wanted    Reason                     // why the tail was asked to reset
	highWater int64
	changed   chan struct{} // closed at the next change; nil if nobody waits
	trackers  map[*map[string]struct{}]struct{}
}

// Open opens the store of a log in cfg.Dir, or begins one. Whatever is wrong with what is there, it is removed and
// an empty one takes its place: the log has everything. An error means that no store can be there: the directory is in
// use (ErrLocked), or can't be written (ErrStorage).
func Open(cfg Config) (*Store, error) {
	switch {
	case cfg.Dir == "":
		return nil, errors.New("projection: no directory")
	case cfg.Identity.Partitions <= 0:
		return nil, fmt.Errorf("projection: a log of %d partitions", cfg.Identity.Partitions)
	case cfg.DeleteRetention <= 0:
		return nil, fmt.Errorf("projection: delete.retention.ms is %d; without a retention of tombstones a log can't be followed", cfg.DeleteRetention.Milliseconds())
	}
	s, err := newStore(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		return nil, err
	}
	s.disk.armed.Store(true)
	s.ended.Add(1)
	go s.flushNowAndThen()
	return s, nil
}

// newStore is a store that is not opened yet.
func newStore(cfg Config) (*Store, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.CacheBytes == 0 {
		cfg.CacheBytes = cacheBytesDefault
	}
	if cfg.FlushInterval == 0 {
		cfg.FlushInterval = flushIntervalDefault
	}
	if cfg.FS == nil {
		cfg.FS = vfs.Default
		dir, err := filepath.Abs(cfg.Dir) // the lock goes by the name of the directory
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrStorage, cfg.Dir, err)
		}
		cfg.Dir = dir
	}
	s := &Store{
		cfg: cfg, logger: cfg.Logger, closing: make(chan struct{}),
		rebuilds: map[Reason]uint64{}, replicas: map[int32]eventlog.Owner{},
	}
	s.disk = newDisk(cfg.FS, cfg.Dir, cfg.Logger, s.closing)
	for p := range cfg.Identity.Partitions {
		s.parts = append(s.parts, &partition{p: p, checkpoint: nothing()})
	}
	return s, nil
}

// part returns the partition of that number.
func (s *Store) part(p int32) (*partition, error) {
	if p < 0 || int(p) >= len(s.parts) {
		return nil, fmt.Errorf("projection: the log %s has no partition %d (it has %d)", s.cfg.Identity.Topic, p, len(s.parts))
	}
	return s.parts[p], nil
}
