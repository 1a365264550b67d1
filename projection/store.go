package projection

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
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
	// DeleteRetention is the log topic's delete.retention.ms.
	DeleteRetention time.Duration
	// Now is the wall clock; time.Now where nil.
	Now func() time.Time
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
	err       error
	pending   int    // number of pending offsets
	logIDSeen bool   // logID was read since the last rebuild, and not by an earlier process
	restarts  uint64 // rebuilds in this process
	wanted    Reason // why the tail was asked to reset
	highWater int64
	changed   chan struct{} // closed at the next change; nil if nobody waits
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
	if err := s.open(); err != nil {
		return nil, err
	}
	s.disk.armed.Store(true)
	s.ended.Add(1)
	go s.flushNowAndThen()
	return s, nil
}

func (s *Store) open() error {
	if err := s.cfg.FS.MkdirAll(s.cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrStorage, s.cfg.Dir, err)
	}
	lock, err := s.cfg.FS.Lock(s.cfg.FS.PathJoin(s.cfg.Dir, "LOCK"))
	if pathError := new(os.PathError); errors.As(err, &pathError) { // the file itself, not its lock
		return fmt.Errorf("%w: %s: %w", ErrStorage, s.cfg.Dir, err)
	}
	if err != nil {
		return fmt.Errorf("%w by another process: %s (%v)", ErrLocked, s.cfg.Dir, err)
	}
	s.lock = lock
	if err := s.openNewest(); err != nil {
		_ = lock.Close()
		return err
	}
	return nil
}

const engineDirPrefix = "store-"

func (s *Store) engineDir(number int) string {
	return s.cfg.FS.PathJoin(s.cfg.Dir, fmt.Sprintf("%s%06d", engineDirPrefix, number))
}

// openNewest opens the engine with the highest number, if it is whole and of this log, and removes all others.
func (s *Store) openNewest() error {
	names, err := s.cfg.FS.List(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrStorage, s.cfg.Dir, err)
	}
	var numbers []int
	for _, name := range names {
		if digits, ok := strings.CutPrefix(name, engineDirPrefix); ok {
			if n, err := strconv.Atoi(digits); err == nil {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	newest, reason, detail := 0, ReasonNone, ""
	if n := len(numbers); n > 0 {
		newest = numbers[n-1]
		reason, detail, err = s.openAt(newest)
		if err != nil {
			return err
		}
	}
	for _, n := range numbers {
		if n == newest && reason == "" {
			continue
		}
		if err := s.cfg.FS.RemoveAll(s.engineDir(n)); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrStorage, s.engineDir(n), err)
		}
	}
	if reason == "" {
		return nil
	}
	s.rebuilt(reason, -1, detail)
	e, err := s.begin(newest + 1)
	if err != nil {
		return err
	}
	s.engine = e
	for _, part := range s.parts {
		part.engine = e.number
	}
	return nil
}

// begin makes an empty engine. Anything of its number that is there is removed.
func (s *Store) begin(number int) (*engine, error) {
	dir := s.engineDir(number)
	if err := s.cfg.FS.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrStorage, dir, err)
	}
	e, err := openEngine(s.disk, dir, number, s.cfg.CacheBytes, s.logger)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrStorage, dir, err)
	}
	meta, err := json.Marshal(s.meta())
	if err == nil {
		err = e.db.Set(storeKey(kindMeta), meta, pebble.NoSync)
	}
	if err == nil { // Pebble keeps its own directory; that it exists is ours to keep
		err = s.syncDir(s.cfg.Dir)
		_ = s.syncDir(s.cfg.FS.PathDir(s.cfg.Dir)) // which may not be ours to read
	}
	if err != nil {
		_ = e.close()
		return nil, fmt.Errorf("%w: %s: %w", ErrStorage, dir, err)
	}
	return e, nil
}

func (s *Store) syncDir(name string) error {
	d, err := s.cfg.FS.OpenDir(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *Store) meta() storeMeta {
	id := s.cfg.Identity
	return storeMeta{Format: storeFormat, Topic: id.Topic, TopicID: id.TopicID, Partitions: id.Partitions}
}

// openAt opens an engine that is there. A reason says why it is of no use.
func (s *Store) openAt(number int) (Reason, string, error) {
	dir := s.engineDir(number)
	e, err := openEngine(s.disk, dir, number, s.cfg.CacheBytes, s.logger)
	if err == nil {
		var reason Reason
		var detail string
		if reason, detail, err = s.load(e); err == nil && reason == "" {
			s.engine = e
			return "", "", nil
		}
		_ = e.close()
		if err == nil {
			return reason, detail, nil
		}
	}
	if passing(err) {
		return "", "", fmt.Errorf("%w: %s: %w", ErrStorage, dir, err)
	}
	return ReasonDamaged, err.Error(), nil
}

// load reads what the store holds of each partition besides records.
func (s *Store) load(e *engine) (Reason, string, error) {
	b, err := get(e.db, storeKey(kindMeta))
	if err != nil {
		return "", "", err
	}
	if b == nil { // killed before the first flush
		return ReasonNone, "", nil
	}
	var meta storeMeta
	if err := json.Unmarshal(b, &meta); err != nil {
		return "", "", fmt.Errorf("%w: %v", errDamaged, err)
	}
	switch want := s.meta(); {
	case meta.Format != want.Format:
		return ReasonFormat, fmt.Sprintf("the store has format %d, this program format %d", meta.Format, want.Format), nil
	case meta.Topic != want.Topic || meta.TopicID != want.TopicID:
		return ReasonTopic, fmt.Sprintf("the store is of %s (%x), the log is %s (%x)", meta.Topic, meta.TopicID, want.Topic, want.TopicID), nil
	case meta.Partitions != want.Partitions:
		return ReasonPartitions, fmt.Sprintf("the store is of %d partitions, the log has %d", meta.Partitions, want.Partitions), nil
	}
	if err := s.loadReplicas(e); err != nil {
		return "", "", err
	}
	for _, part := range s.parts {
		if err := part.load(e); err != nil {
			return "", "", fmt.Errorf("partition %d: %w", part.p, err)
		}
	}
	return "", "", e.err()
}

func (part *partition) load(e *engine) error {
	part.engine = e.number
	b, err := get(e.db, partitionKey(part.p, kindCheckpoint))
	if err != nil || b == nil {
		return err
	}
	if part.checkpoint, err = decodeCheckpoint(b); err != nil {
		return err
	}
	part.persisted = part.checkpoint.atEnd
	if b, err = get(e.db, partitionKey(part.p, kindOwner)); err != nil {
		return err
	}
	if b != nil {
		if part.owner, err = decodeOwner(b); err != nil {
			return err
		}
		part.owned = true
	}
	return scan(e.db, partitionKey(part.p, kindPendingOf), func(_ *keyReader, _ []byte) (bool, error) {
		part.pending++
		return true, nil
	})
}

// part returns the partition of that number.
func (s *Store) part(p int32) (*partition, error) {
	if p < 0 || int(p) >= len(s.parts) {
		return nil, fmt.Errorf("projection: the log %s has no partition %d (it has %d)", s.cfg.Identity.Topic, p, len(s.parts))
	}
	return s.parts[p], nil
}

// current returns the engine in use; release it afterwards.
func (s *Store) current() (*engine, error) {
	s.mu.Lock()
	e := s.engine
	s.mu.Unlock()
	if e == nil || !e.acquire() {
		return nil, ErrClosed
	}
	return e, nil
}

// usable returns an engine to write to, a new one where the current one is broken; release it afterwards.
func (s *Store) usable() (*engine, error) {
	if err := s.disk.full(); err != nil {
		return nil, err
	}
	e, err := s.current()
	if err != nil || e.err() == nil {
		return e, err
	}
	why := e.err()
	e.release()
	if err := s.renew(e, why); err != nil {
		return nil, err
	}
	return s.current()
}

// renew replaces a broken engine by an empty one. All partitions start over; their tails are told when they come by.
func (s *Store) renew(old *engine, why error) error {
	s.renewing.Lock()
	defer s.renewing.Unlock()
	s.mu.Lock()
	current := s.engine
	s.mu.Unlock()
	if current != old {
		return nil // somebody else was first
	}
	e, err := s.begin(old.number + 1)
	if err != nil {
		return err
	}
	for _, part := range s.parts {
		part.restart(e.number)
		part.mu.Lock()
		part.wanted = ReasonDamaged
		part.mu.Unlock()
	}
	s.mu.Lock()
	s.engine = e
	s.mu.Unlock()
	old.retire(old.destroy)
	s.rebuilt(ReasonDamaged, -1, why.Error())
	return nil
}

// closeWaitMax is how long Close waits for readers that are still at it, snapshots above all.
const closeWaitMax = 10 * time.Second

// Close ends the store. What was applied is on disk afterwards, if the disk takes it.
func (s *Store) Close() error {
	s.mu.Lock()
	select {
	case <-s.closing:
		s.mu.Unlock()
		return nil
	default:
	}
	full := s.disk.full()
	close(s.closing)
	s.mu.Unlock()
	s.gate.Lock() // the tail's calls are done
	s.gate.Unlock()
	s.ended.Wait()
	for _, part := range s.parts {
		part.mu.Lock()
		part.notify()
		part.mu.Unlock()
	}

	s.mu.Lock()
	e := s.engine
	s.engine = nil
	s.mu.Unlock()
	s.disk.armed.Store(false)
	var err error
	if full == nil && e.err() == nil {
		err = e.flush()
	}
	e.retire(func() { err = errors.Join(err, e.close()) })
	select {
	case <-e.idle:
	case <-time.After(closeWaitMax):
		return fmt.Errorf("projection: %s is still being read, and was left open", s.cfg.Dir)
	}
	if e.err() != nil || full != nil {
		err = nil // it was told, and what is on disk is whole
	}
	return errors.Join(err, s.lock.Close())
}

// flushNowAndThen writes to disk what is in memory, so that a kill costs little.
func (s *Store) flushNowAndThen() {
	defer s.ended.Done()
	t := time.NewTicker(s.cfg.FlushInterval)
	defer t.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-t.C:
		}
		e, err := s.current()
		if err != nil {
			return
		}
		if s.disk.full() == nil && e.err() == nil && e.dirty.Swap(false) {
			if _, err := e.db.AsyncFlush(); err != nil {
				e.breakDown(err)
			}
		}
		e.release()
	}
}
