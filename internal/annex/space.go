package annex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
	"streamkeeper/internal/wall"
	"streamkeeper/plugin"
	"streamkeeper/plugin/topic"
	"streamkeeper/projection"
	"streamkeeper/shard"
)

const (
	// BacklogBytesMax bounds what waits to be appended, in all partitions together: some large descriptions, while a cluster that
	// does not answer must not fill the memory. Beyond it a push fails, transiently.
	BacklogBytesMax = 64 << 20
	// cacheBytes is the block cache of the store: descriptions are read when somebody looks at one.
	cacheBytes = 4 << 20
	// reopenPause is how long a topic that is gone, or a cluster that does not let it be made, is left alone before the next attempt.
	reopenPause = 2 * time.Second
)

// Topic is an opened topic, with what a store of it has to know.
type Topic struct {
	Annex eventlog.Annex
	// DeleteRetention is its delete.retention.ms.
	DeleteRetention time.Duration
}

// Config is what a Space is made of. Open, Dir, Partitions and Holding are required.
type Config struct {
	// Open opens the topic, and makes it where it is missing.
	Open func(ctx context.Context) (Topic, error)
	// Dir is where the store is, which is the Space's alone.
	Dir string
	// Partitions is the log's partition count.
	Partitions int32
	// Holding is the claim of a partition that is served here (shard.Host.Holding).
	Holding func(p int32) (shard.Holding, bool)
	// BacklogBytesMax; 0: BacklogBytesMax.
	BacklogBytesMax int64
	// FS is the file system of the store; nil: the operating system's.
	FS     vfs.FS
	Logger *slog.Logger
}

// Space is the topic.Place of a replica.
type Space struct {
	cfg     Config
	log     *slog.Logger
	parts   []*part
	backlog atomic.Int64 // bytes that wait to be appended
	read    atomic.Bool  // the topic has been read to its end since the start

	mu  sync.Mutex
	now *opened // nil while the topic is made anew, and after Close
}

var _ topic.Place = (*Space)(nil)

// opened is the topic as it is now.
type opened struct {
	annex   eventlog.Annex
	store   *projection.Store
	visible []barrier
}

// Open opens the topic and its store. The error names what is wrong with the topic, or the directory.
func Open(ctx context.Context, cfg Config) (*Space, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.BacklogBytesMax <= 0 {
		cfg.BacklogBytesMax = BacklogBytesMax
	}
	s := &Space{cfg: cfg, log: cfg.Logger}
	for p := range cfg.Partitions {
		s.parts = append(s.parts, &part{space: s, p: p})
	}
	o, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	s.now = o
	return s, nil
}

func (s *Space) open(ctx context.Context) (*opened, error) {
	t, err := s.cfg.Open(ctx)
	if err != nil {
		return nil, err
	}
	if n := t.Annex.Identity().Partitions; n != s.cfg.Partitions {
		t.Annex.Close()
		return nil, fmt.Errorf("topic %s has %d partitions, must have %d, as the record log", t.Annex.Identity().Topic, n, s.cfg.Partitions)
	}
	store, err := projection.Open(projection.Config{
		Dir: s.cfg.Dir, Identity: t.Annex.Identity(), DeleteRetention: t.DeleteRetention, Opaque: true, CacheBytes: cacheBytes, FS: s.cfg.FS, Logger: s.log,
	})
	if err != nil {
		t.Annex.Close()
		return nil, err
	}
	return &opened{annex: t.Annex, store: store, visible: make([]barrier, s.cfg.Partitions)}, nil
}

// Run reads the topic until ctx ends, whose error it returns. Where the topic is gone it is made anew.
func (s *Space) Run(ctx context.Context) error {
	for {
		o := s.current()
		if o == nil {
			return eventlog.ErrClosed
		}
		err := o.annex.Follow(ctx, o.store)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.log.Error("the topic of topology descriptions can't be read any further and is opened anew; if it was deleted, so were the descriptions",
			"topic", o.annex.Identity().Topic, "err", err)
		s.replace(nil)
		o.close()
		if o, err = s.reopen(ctx); err != nil {
			return err
		}
		s.replace(o)
	}
}

// reopen opens the topic, again until it can be, or until ctx ends.
func (s *Space) reopen(ctx context.Context) (*opened, error) {
	for {
		o, err := s.open(ctx)
		if err == nil {
			s.log.Info("the topic of topology descriptions is open again", "topic", o.annex.Identity().Topic)
			return o, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s.log.Warn("the topic of topology descriptions can't be opened, tried again", "err", err, "pause", reopenPause)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(reopenPause):
		}
	}
}

func (s *Space) current() *opened {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *Space) replace(o *opened) {
	s.mu.Lock()
	s.now = o
	s.mu.Unlock()
	for _, pt := range s.parts {
		pt.drop()
	}
}

// Close ends writers and store. Run has ended, or ends now.
func (s *Space) Close() {
	if o := s.current(); o != nil {
		s.replace(nil)
		o.close()
	}
}

func (o *opened) close() {
	o.annex.Close()
	_ = o.store.Close() // a cache
}

// Ready is nil once the topic has been read to its end, as far as this version can read it, and stays so. A partition with a record that it can't read
// comes no further until a newer version is started: the others have their descriptions, and groups are served without.
func (s *Space) Ready() error {
	if s.read.Load() {
		return nil
	}
	o := s.current()
	if o == nil {
		return errors.New("the topic is not open")
	}
	behind := 0
	for p := range s.cfg.Partitions {
		if !o.store.AtEnd(p) && !errors.Is(o.store.Err(p), eventlog.ErrRefused) {
			behind++
		}
	}
	if behind > 0 {
		return fmt.Errorf("reading, %d of %d partitions are not at their end", behind, s.cfg.Partitions)
	}
	s.read.Store(true)
	return nil
}

// Stats are numbers of this moment, for metrics.
type Stats struct {
	Waiting int64 // bytes that wait to be appended
	Lag     int64 // entries of the topic that are not read yet
	Refused int   // partitions that can't be read any further
	Void    int64 // entries since the start, or since the topic was made anew, that do not count
	Bytes   int64 // of the store on disk and in memory
}

// Stats returns them; while the topic is made anew all but Waiting are 0.
func (s *Space) Stats() Stats {
	st := Stats{Waiting: s.backlog.Load()}
	if o := s.current(); o != nil {
		read := o.store.Stats()
		st.Lag, st.Refused, st.Void, st.Bytes = read.Lag, read.Refused, int64(read.Void), int64(read.Bytes)
	}
	return st
}

// What clients are told where something is not as it should be; the reason is in the log.
const (
	textGone     = "The topic of topology descriptions is not there at the moment."
	textNotOwner = "The topology description can't be written here any more: another replica has the group, or takes it over."
	textBusy     = "Too many topology descriptions wait to be written."
	textUnknown  = "The topology description could not be written, or it is not known whether it was."
	textUnread   = "The topic of topology descriptions can't be read at the moment."
)

// use returns the opened topic.
func (s *Space) use() (*opened, error) {
	if o := s.current(); o != nil {
		return o, nil
	}
	return nil, plugin.Transient(textGone, eventlog.ErrTopicGone)
}

// Partition implements topic.Place.
func (s *Space) Partition(group string) int32 { return eventlog.Partition(group, s.cfg.Partitions) }

// Topic implements topic.Place.
func (s *Space) Topic() string {
	if o := s.current(); o != nil {
		return o.annex.Identity().Topic
	}
	return "of topology descriptions"
}

// ValueBytesMax implements topic.Place. While the topic is made anew everything fits: the append will fail, and not for good.
func (s *Space) ValueBytesMax(keyBytes int) int {
	if o := s.current(); o != nil {
		return eventlog.ValueBytesMax(keyBytes, o.annex.BatchBytesMax())
	}
	return BacklogBytesMax
}

// Append implements topic.Place.
func (s *Space) Append(ctx context.Context, group string, records []topic.Record, done func(error)) error {
	o, err := s.use()
	if err != nil {
		return err
	}
	raws, size := make([]eventlog.Raw, len(records)), int64(0)
	for i, r := range records {
		raws[i] = eventlog.Raw{Key: r.Key, Value: r.Value}
		size += int64(len(r.Key) + len(r.Value))
	}
	if s.backlog.Add(size) > s.cfg.BacklogBytesMax {
		s.backlog.Add(-size)
		return plugin.Transient(textBusy, fmt.Errorf("more than %d bytes wait", s.cfg.BacklogBytesMax))
	}
	err = s.parts[s.Partition(group)].write(ctx, o.annex, func(w eventlog.Writer, outcome func(error)) {
		w.Append(wall.Now().UnixMilli(), raws, func(_ int64, err error) {
			s.backlog.Add(-size)
			outcome(err)
			done(clientError(err))
		})
	})
	if err != nil {
		s.backlog.Add(-size)
	}
	return err
}

// clientError is what the plugin gets of an append.
func clientError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, eventlog.ErrTooLarge):
		return topic.ErrTooLarge
	case errors.Is(err, eventlog.ErrFenced):
		return plugin.Transient(textNotOwner, err)
	case errors.Is(err, eventlog.ErrTopicGone):
		return plugin.Transient(textGone, err)
	}
	return plugin.Transient(textUnknown, err)
}

// Visible implements topic.Place.
func (s *Space) Visible(ctx context.Context, group string) error {
	o, err := s.use()
	if err != nil {
		return err
	}
	return o.wait(ctx, s.Partition(group))
}

// Settle implements topic.Place.
func (s *Space) Settle(ctx context.Context, group string) error {
	o, err := s.use()
	if err != nil {
		return err
	}
	written := make(chan error, 1)
	if err := s.parts[s.Partition(group)].write(ctx, o.annex, func(w eventlog.Writer, outcome func(error)) {
		w.Barrier(func(_ int64, err error) {
			outcome(err)
			written <- err
		})
	}); err != nil {
		return err
	}
	select {
	case err := <-written:
		if err != nil {
			return clientError(err)
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return o.wait(ctx, s.Partition(group))
}

// unread is the error of a read.
func unread(err error) error {
	if err == nil {
		return nil
	}
	return plugin.Transient(textUnread, err)
}

// Value implements topic.Place.
func (s *Space) Value(group string, key []byte) ([]byte, bool, error) {
	o, err := s.use()
	if err != nil {
		return nil, false, err
	}
	value, ok, err := o.store.Value(s.Partition(group), key)
	return value, ok, unread(err)
}

// Keys implements topic.Place.
func (s *Space) Keys(group string, prefix []byte, f func(key []byte) bool) error {
	o, err := s.use()
	if err != nil {
		return err
	}
	return unread(o.store.Keys(s.Partition(group), prefix, nil, f))
}

// KeysOf implements topic.Place.
func (s *Space) KeysOf(p int32, after []byte, f func(key []byte) bool) error {
	o, err := s.use()
	if err != nil {
		return err
	}
	return unread(o.store.Keys(p, nil, after, f))
}

// VoidsOf implements topic.Place.
func (s *Space) VoidsOf(p int32, f func(key []byte) bool) error {
	o, err := s.use()
	if err != nil {
		return err
	}
	return unread(o.store.Voids(p, f))
}
