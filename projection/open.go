package projection

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// open takes the directory and opens the store that is there, or an empty one.
func (s *Store) open() error {
	if err := s.cfg.FS.MkdirAll(s.cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrStorage, s.cfg.Dir, err)
	}
	lock, err := s.takeLock()
	if err != nil {
		return err
	}
	s.lock = lock
	if err := s.openNewest(); err != nil {
		_ = lock.Close()
		return err
	}
	return nil
}

// LockFile is the file below Config.Dir on which an open store holds the lock.
const LockFile = "LOCK"

// takeLock makes the directory ours until the lock is closed.
func (s *Store) takeLock() (io.Closer, error) {
	lock, err := s.cfg.FS.Lock(s.cfg.FS.PathJoin(s.cfg.Dir, LockFile))
	if pathError := new(os.PathError); errors.As(err, &pathError) { // the file itself, not its lock
		return nil, fmt.Errorf("%w: %s: %w", ErrStorage, s.cfg.Dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w by another process: %s (%v)", ErrLocked, s.cfg.Dir, err)
	}
	return lock, nil
}

const engineDirPrefix = "store-"

func (s *Store) engineDir(number int) string {
	return s.cfg.FS.PathJoin(s.cfg.Dir, fmt.Sprintf("%s%06d", engineDirPrefix, number))
}

// openNewest opens the engine with the highest number, if it is whole and of this log, and removes all others. Nothing is begun on a
// full disk: Pebble can't write its manifest there, and never comes back from opening.
func (s *Store) openNewest() error {
	if err := s.disk.writeProbe(); passing(err) {
		return fmt.Errorf("%w: %s: %w", ErrStorage, s.cfg.Dir, err)
	}
	names, err := s.cfg.FS.List(s.cfg.Dir)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrStorage, s.cfg.Dir, err)
	}
	numbers := engineNumbers(names)
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

// engineNumbers are the numbers of the engines among the names in a directory, ascending.
func engineNumbers(names []string) (numbers []int) {
	for _, name := range names {
		if digits, ok := strings.CutPrefix(name, engineDirPrefix); ok {
			if n, err := strconv.Atoi(digits); err == nil {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers
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
		if err == nil && reason == ReasonTopic && s.cfg.KeepOther {
			if held := holds(e); !held.Empty() {
				err = fmt.Errorf("%w: %s holds %d of topic %s with id %s; the log is topic %s with id %s now", ErrOtherLog, s.cfg.Dir, held.Groups,
					held.Topic, uuid(held.TopicID), s.cfg.Identity.Topic, uuid(s.cfg.Identity.TopicID))
			}
		}
		_ = e.close()
		if err == nil {
			return reason, detail, nil
		}
	}
	if errors.Is(err, ErrPartitions) || errors.Is(err, ErrOtherLog) {
		return "", "", err
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
	case meta.Partitions != want.Partitions && want.TopicID != [16]byte{}:
		// The same topic: its groups would be looked for where they are not, and applications would start over without their offsets.
		return "", "", fmt.Errorf("%w: log topic %s has %d partitions, and had %d when %s was written: groups belong to partitions by that count, "+
			"so groups and committed offsets would no longer be found. Use a topic with %d; or, to begin without them, delete the directory",
			ErrPartitions, want.Topic, want.Partitions, meta.Partitions, s.cfg.Dir, meta.Partitions)
	case meta.Partitions != want.Partitions: // without a topic id: perhaps another topic of that name
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
	if part.whole, err = has(e.db, partitionKey(part.p, kindWhole)); err != nil {
		return err
	}
	if b, err = get(e.db, partitionKey(part.p, kindOwner)); err != nil {
		return err
	}
	if b != nil {
		if part.owner, err = decodeOwner(b); err != nil {
			return err
		}
		part.owned = true
	}
	known, err := part.loadSkipped(e)
	if err != nil {
		return err
	}
	if known { // the tail is told when it comes by
		part.wanted, part.loading = ReasonSkipped, true
	}
	return scan(e.db, partitionKey(part.p, kindPendingOf), func(_ *keyReader, _ []byte) (bool, error) {
		part.pending++
		return true, nil
	})
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

// writable returns an engine that takes a batch: a usable one, and while the disk is full the current one, as long as memory takes what comes. So
// answers that rest on what this store has read (read barriers) don't depend on the disk. Release it afterwards.
func (s *Store) writable() (*engine, error) {
	full := s.disk.full()
	if full == nil {
		return s.usable()
	}
	e, err := s.current()
	if err != nil {
		return nil, err
	}
	if e.err() != nil || e.held.Load() >= heldBytesMax {
		e.release()
		return nil, full
	}
	return e, nil
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
	for _, o := range s.replicas { // those are not all in the log any more
		err = firstError(err, e.db.Set(nodeKey(o.NodeID), encodeOwner(o), pebble.NoSync))
	}
	s.mu.Unlock()
	if err != nil {
		e.breakDown(err)
	}
	old.retire(old.destroy)
	s.rebuilt(ReasonDamaged, -1, why.Error())
	return nil
}
