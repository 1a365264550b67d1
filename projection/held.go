package projection

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"streamkeeper/eventlog"
)

// Held is what a directory holds of a log.
type Held struct {
	Topic      string
	TopicID    [16]byte
	Partitions int32
	Groups     int64 // streams groups
}

// Look says what a store in cfg.Dir holds, whatever log it is of; nothing where there is none, or one that can't be read. An error is
// that of a directory in use (ErrLocked), or of the disk (ErrStorage).
func Look(cfg Config) (Held, error) {
	cfg.Identity = eventlog.Identity{Partitions: 1} // of no log
	s, err := newStore(cfg)
	if err != nil {
		return Held{}, err
	}
	if _, err := s.cfg.FS.Stat(s.cfg.Dir); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return Held{}, nil
		}
		return Held{}, fmt.Errorf("%w: %s: %w", ErrStorage, s.cfg.Dir, err)
	}
	lock, err := s.takeLock()
	if err != nil {
		return Held{}, err
	}
	defer lock.Close()
	names, err := s.cfg.FS.List(s.cfg.Dir)
	if err != nil {
		return Held{}, fmt.Errorf("%w: %s: %w", ErrStorage, s.cfg.Dir, err)
	}
	numbers := engineNumbers(names)
	if len(numbers) == 0 {
		return Held{}, nil
	}
	newest := numbers[len(numbers)-1]
	e, err := openEngine(s.disk, s.engineDir(newest), newest, s.cfg.CacheBytes, s.logger)
	if err != nil {
		if passing(err) {
			return Held{}, fmt.Errorf("%w: %s: %w", ErrStorage, s.engineDir(newest), err)
		}
		return Held{}, nil // damaged
	}
	held := holds(e)
	return held, e.close()
}

// holds is what an engine has; nothing where that can't be read.
func holds(e *engine) Held {
	b, err := get(e.db, storeKey(kindMeta))
	if err != nil || b == nil {
		return Held{}
	}
	var meta storeMeta
	if json.Unmarshal(b, &meta) != nil || meta.Format != storeFormat {
		return Held{}
	}
	h := Held{Topic: meta.Topic, TopicID: meta.TopicID, Partitions: meta.Partitions}
	for p := range meta.Partitions {
		n, err := (view{e.db, p}).count(kindGroup)
		if err != nil {
			return Held{}
		}
		h.Groups += n
	}
	return h
}

// uuid prints a topic id as Kafka's tools do.
func uuid(id [16]byte) string { return base64.RawURLEncoding.EncodeToString(id[:]) }
