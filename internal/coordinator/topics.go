package coordinator

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/streams"
)

const (
	// topicPollInterval is how old what we know of a topic may become while a group needs it.
	topicPollInterval = 3 * time.Second
	// topicPollPerName stretches the interval with the number of topics, so that a cluster with 100,000 of them is asked for
	// all of them every 100 seconds and not three times a second.
	topicPollPerName = time.Millisecond
	// topicNamesPerRequest bounds one Metadata request: a response of a few megabytes, not of hundreds.
	topicNamesPerRequest = 1000
	// topicAbsentFor is how long "there is no such topic" is believed: a topic made just before the application starts must be
	// seen by its first heartbeats, and an application that asks for a missing one must not cost a request per heartbeat.
	topicAbsentFor = time.Second
	// topicAwaitedMax bounds the missing topics that are asked for between the polls, by one request each time; the others wait for the poll.
	topicAwaitedMax = topicNamesPerRequest
	// topicAwaitedTick is how soon a missing topic that a group needs is asked for again at first. Kafka Streams gives up when a topic
	// is missing for two heartbeat intervals, and a topic that was made just before is not known to each broker at once.
	topicAwaitedTick = 200 * time.Millisecond
	// topicAwaitedSlower is the part of the time for which it is missing already that passes until it is asked for again: one that stays
	// missing is soon left to the polls.
	topicAwaitedSlower = 4
	// topicIdleFor is how long a topic that no group needs is remembered after its last use.
	topicIdleFor = 5 * time.Minute
	// topicsMax bounds the memory of topics that no group needs; beyond it the longest unused go first.
	topicsMax = 100_000
	// topicFetchTimeout bounds one Metadata request, and with it how long a request of a client waits for it.
	topicFetchTimeout = 5 * time.Second
	// topicMissesMax is how many answers in a row must say that a topic is gone before it is believed: a broker that has just
	// started may not know it yet, and believing it would take all tasks away from a running application.
	topicMissesMax = 2
)

// ErrTopicsUnknown says that the cluster could not be asked about topics.
var ErrTopicsUnknown = errors.New("the cluster's topics can't be read now")

// TopicsConfig configures Topics.
type TopicsConfig struct {
	// Client asks any broker of the cluster; *kgo.Client does.
	Client kmsg.Requestor
	Logger *slog.Logger
	// Interval replaces the poll interval where it is not 0.
	Interval time.Duration
	// OnDeleted is called with a topic that was known and is believed to be gone, or to be another one under the same name; Gone makes sure. It
	// must not block. nil: nobody wants to know.
	OnDeleted func(name string)
	// Broker asks one broker of the cluster; nil: Client is asked in its place. Gone wants the word of several.
	Broker func(node int32) kmsg.Requestor
	// Witness is a topic that certainly exists, the record log: an answer that does not know it either is of a broker that does not know
	// the cluster yet, and Gone does not count it. "": every answer counts.
	Witness string
}

// Topics knows the cluster's topics as far as somebody asked for them: by name or id, with partition counts and racks. What
// active groups need is pinned and polled; the rest is remembered for some minutes. The clients never see it, they
// get the cluster's own Metadata. Safe for concurrent use; Run must be running.
type Topics struct {
	cfg  TopicsConfig
	kick chan struct{}
	snap atomic.Pointer[topicSnapshot]

	mu        sync.Mutex
	entries   map[string]*topicEntry
	names     map[[16]byte]string    // id → name of the existing ones
	absentIDs map[[16]byte]time.Time // when the cluster last said so; bounded with entries
	racks     map[int32]string       // also of brokers that are away: a rack that came and went would change every group's metadata hash
	nodes     []int32                // of the last answer that named any
	next      *topicRound
	pins      map[string]*topicPin // by group
}

type topicEntry struct {
	topic   streams.Topic
	exists  bool
	checked time.Time
	since   time.Time // it is missing, where it does not exist
	used    time.Time
	pins    int      // groups that need it
	misses  int      // answers in a row that did not know it, while exists
	sure    bool     // it does not exist, and not on one word
	former  [16]byte // the id it had before: a late answer with it is not believed
}

// topicRound collects what is to be asked next; everybody who waits for it gets the same answer.
type topicRound struct {
	names  map[string]struct{}
	stored map[string]struct{} // of which it is to be made sure that they are missing, where they are
	ids    map[[16]byte]struct{}
	done   chan struct{}
	err    error
}

func newTopicRound() *topicRound {
	return &topicRound{names: map[string]struct{}{}, stored: map[string]struct{}{}, ids: map[[16]byte]struct{}{}, done: make(chan struct{})}
}

// topicSnapshot implements streams.Topics.
type topicSnapshot struct {
	version int64
	topics  map[string]streams.Topic
}

func (s *topicSnapshot) Topic(name string) (streams.Topic, bool) {
	t, ok := s.topics[name]
	return t, ok
}

func (s *topicSnapshot) Version() int64 { return s.version }

// NewTopics returns a Topics that knows nothing yet.
func NewTopics(cfg TopicsConfig) *Topics {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Interval <= 0 {
		cfg.Interval = topicPollInterval
	}
	t := &Topics{
		cfg: cfg, kick: make(chan struct{}, 1),
		entries: map[string]*topicEntry{}, names: map[[16]byte]string{}, absentIDs: map[[16]byte]time.Time{},
		racks: map[int32]string{}, next: newTopicRound(), pins: map[string]*topicPin{},
	}
	t.snap.Store(&topicSnapshot{version: 1, topics: map[string]streams.Topic{}})
	return t
}

// Snapshot is what is known now. It holds every existing topic that a pinned group needs.
func (t *Topics) Snapshot() streams.Topics { return t.snap.Load() }

// Ensure makes the topics known, asking the cluster where they are not. Names and ids that the cluster does not know are no
// error; ErrTopicsUnknown and the context's errors are.
func (t *Topics) Ensure(ctx context.Context, names []string, ids [][16]byte) error {
	round := t.want(time.Now(), names, nil, ids)
	if round == nil {
		return nil
	}
	return t.await(ctx, round)
}

// Refresh asks the cluster about the topics, also where something is known of them.
func (t *Topics) Refresh(ctx context.Context, names []string) error {
	t.mu.Lock()
	round := t.next
	for _, name := range names {
		round.names[name] = struct{}{}
	}
	t.mu.Unlock()
	return t.await(ctx, round)
}

// await has a round asked and waits for its answer.
func (t *Topics) await(ctx context.Context, round *topicRound) error {
	select {
	case t.kick <- struct{}{}:
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, topicFetchTimeout)
	defer cancel()
	select {
	case <-round.done:
		return round.err
	case <-ctx.Done():
		return errors.Join(ErrTopicsUnknown, ctx.Err())
	}
}

// want notes the use of what is known and returns the round that will tell about the rest, nil if nothing is missing.
func (t *Topics) want(now time.Time, names, stored []string, ids [][16]byte) *topicRound {
	t.mu.Lock()
	defer t.mu.Unlock()
	missing := false
	for _, name := range names {
		if e := t.entries[name]; e != nil {
			e.used = now
			if e.exists || now.Sub(e.checked) < topicAbsentFor {
				continue
			}
		}
		t.next.names[name] = struct{}{}
		missing = true
	}
	for _, name := range stored {
		if e := t.entries[name]; e != nil {
			e.used = now
			// One that exists is asked for again: a former owner may have seen it with more partitions, and members have their tasks.
			if !e.exists && e.sure && now.Sub(e.checked) < topicAbsentFor {
				continue
			}
		}
		t.next.names[name] = struct{}{}
		t.next.stored[name] = struct{}{}
		missing = true
	}
	for _, id := range ids {
		if name, ok := t.names[id]; ok {
			t.entries[name].used = now
			continue
		}
		if at, ok := t.absentIDs[id]; ok && now.Sub(at) < topicAbsentFor {
			continue
		}
		t.next.ids[id] = struct{}{}
		missing = true
	}
	if !missing {
		return nil
	}
	return t.next
}

// Lookup returns the topic of a name; ok is false where it does not exist or nobody asked for it yet.
func (t *Topics) Lookup(name string) (streams.Topic, bool) { return t.snap.Load().Topic(name) }

// LookupID returns the topic of an id.
func (t *Topics) LookupID(id [16]byte) (streams.Topic, bool) {
	t.mu.Lock()
	name, ok := t.names[id]
	t.mu.Unlock()
	if !ok {
		return streams.Topic{}, false
	}
	topic, ok := t.Lookup(name)
	return topic, ok && topic.ID == id
}

// Run asks the cluster until ctx ends.
func (t *Topics) Run(ctx context.Context) {
	timer := time.NewTimer(t.cfg.Interval)
	defer timer.Stop()
	awaited := time.NewTicker(topicAwaitedTick)
	defer awaited.Stop()
	failing, unsure := false, false
	for {
		var names []string
		select {
		case <-ctx.Done():
			return
		case <-awaited.C:
			if missing := t.awaited(time.Now()); len(missing) > 0 {
				_ = t.fetch(ctx, missing, nil) // an error is told by the poll
			}
			continue
		case <-t.kick:
			round := t.take()
			round.err = t.fetch(ctx, slices.Sorted(maps.Keys(round.names)), slices.Collect(maps.Keys(round.ids)))
			if round.err == nil && len(round.stored) > 0 {
				round.err = t.confirm(ctx, slices.Sorted(maps.Keys(round.stored)))
				if unsure != (round.err != nil) && ctx.Err() == nil {
					if unsure = !unsure; unsure {
						t.cfg.Logger.Warn("topics that groups use may be missing, but too few brokers can tell; the members are told to try again", "err", round.err)
					} else {
						t.cfg.Logger.Info("enough brokers tell of the topics that groups use again")
					}
				}
			}
			close(round.done)
			continue
		case <-timer.C:
			names = t.due(time.Now())
		}
		err := t.fetch(ctx, names, nil)
		if (err != nil) != failing && ctx.Err() == nil {
			failing = err != nil
			if failing {
				t.cfg.Logger.Warn("the cluster's topics can't be refreshed; going on with what is known", "err", err)
			} else {
				t.cfg.Logger.Info("the cluster's topics are refreshed again")
			}
		}
		timer.Reset(t.cfg.Interval + time.Duration(len(names))*topicPollPerName)
	}
}

func (t *Topics) take() *topicRound {
	t.mu.Lock()
	defer t.mu.Unlock()
	round := t.next
	t.next = newTopicRound()
	return round
}

// awaited are topics that groups need, that the cluster did not know, and that it should be asked for again.
func (t *Topics) awaited(now time.Time) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var names []string
	for name, e := range t.entries {
		if e.pins > 0 && !e.exists && now.Sub(e.checked) >= max(topicAwaitedTick, now.Sub(e.since)/topicAwaitedSlower) && len(names) < topicAwaitedMax {
			names = append(names, name)
		}
	}
	return names
}

// due forgets what nobody used for long and lists the rest.
func (t *Topics) due(now time.Time) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unpinIdle(now)
	forgotten := t.forgetIf(func(e *topicEntry) bool { return now.Sub(e.used) > topicIdleFor })
	if excess := len(t.entries) - topicsMax; excess > 0 {
		var used []time.Time
		for _, e := range t.entries {
			if e.pins == 0 {
				used = append(used, e.used)
			}
		}
		slices.SortFunc(used, time.Time.Compare)
		if limit := min(excess, len(used)) - 1; limit >= 0 {
			forgotten = t.forgetIf(func(e *topicEntry) bool { return !e.used.After(used[limit]) }) || forgotten
		}
	}
	for id, at := range t.absentIDs {
		if now.Sub(at) >= topicAbsentFor {
			delete(t.absentIDs, id)
		}
	}
	if forgotten {
		t.publish()
	}
	return slices.Sorted(maps.Keys(t.entries))
}

// forgetIf drops the entries without pins for which f is true, and says whether the snapshot had one of them.
func (t *Topics) forgetIf(f func(*topicEntry) bool) (any bool) {
	for name, e := range t.entries {
		if f(e) {
			any = t.forget([]string{name}) || any
		}
	}
	return any
}

// forget drops the entries of the names that have no pins, and says whether the snapshot had one of them.
func (t *Topics) forget(names []string) (any bool) {
	for _, name := range names {
		e := t.entries[name]
		if e == nil || e.pins > 0 {
			continue
		}
		if e.exists {
			any = true
			delete(t.names, e.topic.ID)
		}
		delete(t.entries, name)
	}
	return any
}

// publish makes a new snapshot. The version changes, so groups look at their topics again; called with mu held.
func (t *Topics) publish() {
	topics := make(map[string]streams.Topic, len(t.entries))
	for name, e := range t.entries {
		if e.exists {
			topics[name] = e.topic
		}
	}
	t.snap.Store(&topicSnapshot{version: t.snap.Load().version + 1, topics: topics})
}
