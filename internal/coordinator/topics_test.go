package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/streams"
)

// metadata is a cluster that answers Metadata.
type metadata struct {
	mu      sync.Mutex
	topics  map[string]kmsg.MetadataResponseTopic
	racks   map[int32]string
	version int16
	fail    error
	asked   [][]string // names of each request; ids as hex
	hold    chan struct{}
}

func newMetadata() *metadata {
	return &metadata{topics: map[string]kmsg.MetadataResponseTopic{}, racks: map[int32]string{}, version: 13}
}

// topic puts a topic there; replicas of partition p are brokers p and p+1.
func (m *metadata) topic(name string, id byte, partitions int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.TopicID = kmsg.StringPtr(name), [16]byte{id}
	for p := range partitions {
		mp := kmsg.NewMetadataResponseTopicPartition()
		mp.Partition, mp.Replicas = p, []int32{p, p + 1}
		t.Partitions = append(t.Partitions, mp)
	}
	m.topics[name] = t
}

func (m *metadata) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *metadata) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	req := r.(*kmsg.MetadataRequest)
	if req.AllowAutoTopicCreation {
		return nil, errors.New("the coordinator must not create topics")
	}
	if m.hold != nil {
		select {
		case <-m.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	resp := kmsg.NewPtrMetadataResponse()
	resp.Version = m.version
	var names []string
	for _, t := range req.Topics {
		if t.Topic != nil {
			names = append(names, *t.Topic)
		} else {
			names = append(names, fmt.Sprintf("%x", t.TopicID[0]))
		}
	}
	m.asked = append(m.asked, names)
	if m.fail != nil {
		return nil, m.fail
	}
	for id, rack := range m.racks {
		resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: id, Rack: &rack})
	}
	if req.Topics == nil {
		for _, name := range slices.Sorted(maps.Keys(m.topics)) {
			resp.Topics = append(resp.Topics, m.topics[name])
		}
	}
	for _, rt := range req.Topics {
		found := false
		for name, t := range m.topics {
			if rt.Topic != nil && *rt.Topic == name || rt.Topic == nil && m.version >= metadataIDsFrom && rt.TopicID == t.TopicID {
				resp.Topics = append(resp.Topics, t)
				found = true
			}
		}
		if !found {
			t := kmsg.NewMetadataResponseTopic()
			t.Topic, t.TopicID, t.ErrorCode = rt.Topic, rt.TopicID, kerr.UnknownTopicOrPartition.Code
			if rt.Topic == nil {
				t.ErrorCode = kerr.UnknownTopicID.Code
			}
			resp.Topics = append(resp.Topics, t)
		}
	}
	return resp, nil
}

func (m *metadata) requests() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.asked)
}

// since are the topics that were asked for after the first n requests.
func (m *metadata) since(n int) [][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asked[n:])
}

// inBubble runs f with a running Topics in virtual time.
func inBubble(t *testing.T, f func(t *testing.T, m *metadata, topics *Topics)) {
	synctest.Test(t, func(t *testing.T) {
		m := newMetadata()
		topics := NewTopics(TopicsConfig{Client: m})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); topics.Run(ctx) }()
		f(t, m, topics)
		cancel()
		<-done
	})
}

func TestTopicsAreAskedForOnceAndPolled(t *testing.T) {
	inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
		m.racks[1] = "b"
		m.topic("in", 7, 2)
		for range 3 {
			if err := topics.Ensure(t.Context(), []string{"in", "absent"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := m.requests(); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
		got, ok := topics.Lookup("in")
		want := streams.Topic{Name: "in", ID: [16]byte{7}, Partitions: 2, Racks: [][]string{{"b"}, {"b"}}}
		if !ok || !equalTopic(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if byID, ok := topics.LookupID([16]byte{7}); !ok || byID.Name != "in" {
			t.Errorf("by id: %+v, %v", byID, ok)
		}
		if _, ok := topics.Lookup("absent"); ok {
			t.Error("a topic that does not exist is there")
		}
		version := topics.Snapshot().Version()

		// Polling notices more partitions, and nothing else makes a new version.
		time.Sleep(2 * topicPollInterval)
		if v := topics.Snapshot().Version(); v != version {
			t.Errorf("version %d without a change, was %d", v, version)
		}
		m.topic("in", 7, 3)
		time.Sleep(2 * topicPollInterval)
		if got, _ := topics.Lookup("in"); got.Partitions != 3 {
			t.Errorf("%d partitions, want 3", got.Partitions)
		}
		if v := topics.Snapshot().Version(); v == version {
			t.Error("a change made no new version")
		}
	})
}

func TestAbsentTopicIsSeenSoonAfterItIsMade(t *testing.T) {
	inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
		if err := topics.Ensure(t.Context(), []string{"in"}, nil); err != nil {
			t.Fatal(err)
		}
		m.topic("in", 1, 1)
		time.Sleep(topicAbsentFor)
		if err := topics.Ensure(t.Context(), []string{"in"}, nil); err != nil {
			t.Fatal(err)
		}
		if _, ok := topics.Lookup("in"); !ok {
			t.Error("the topic is not seen")
		}
	})
}

// A group that waits for a topic is told of it before a client with short heartbeats gives up: sooner than by the poll. One that stays
// missing costs less and less.
func TestAwaitedTopicIsSeenSoonerThanByThePoll(t *testing.T) {
	inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
		if err := topics.Ensure(t.Context(), []string{"in", "never", "unwanted"}, nil); err != nil {
			t.Fatal(err)
		}
		topics.Pin(time.Now(), "g", 1, []string{"in", "never"})
		m.topic("in", 1, 1)
		m.topic("unwanted", 2, 1)
		time.Sleep(2*topicAwaitedTick + time.Millisecond)
		if _, ok := topics.Lookup("in"); !ok {
			t.Error("the topic is not seen")
		}
		if _, ok := topics.Lookup("unwanted"); ok {
			t.Error("a topic that no group needs was asked for in between")
		}
		asked := func(d time.Duration) int {
			before := m.requests()
			time.Sleep(d)
			n := 0
			for _, names := range m.since(before) {
				if slices.Contains(names, "in") && len(names) < 3 {
					t.Errorf("%v was asked for in between although it is there", names)
				}
				n++
			}
			return n
		}
		if n := asked(2 * time.Second); n < 4 || n > 9 {
			t.Errorf("a missing topic was asked for %d times in two seconds", n)
		}
		time.Sleep(time.Minute)
		if n := asked(4 * topicPollInterval); n > 5 {
			t.Errorf("a topic that is missing for a minute was asked for %d times in four polls", n)
		}
	})
}

func TestTopicsByID(t *testing.T) {
	for _, version := range []int16{13, 9} {
		inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
			m.version = version
			m.topic("in", 1, 1)
			m.topic("other", 2, 1)
			if err := topics.Ensure(t.Context(), nil, [][16]byte{{1}, {9}}); err != nil {
				t.Fatal(err)
			}
			if got, ok := topics.LookupID([16]byte{1}); !ok || got.Name != "in" {
				t.Errorf("version %d: %+v, %v", version, got, ok)
			}
			if _, ok := topics.LookupID([16]byte{9}); ok {
				t.Errorf("version %d: an unknown id is known", version)
			}
			if _, ok := topics.Lookup("other"); ok {
				t.Errorf("version %d: a topic that nobody asked for is remembered", version)
			}
			n := m.requests()
			if err := topics.Ensure(t.Context(), nil, [][16]byte{{1}, {9}}); err != nil || m.requests() != n {
				t.Errorf("version %d: what was just answered is asked again (%v)", version, err)
			}
		})
	}
}

func TestRecreatedTopicHasTheNewID(t *testing.T) {
	inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
		m.topic("in", 1, 4)
		if err := topics.Ensure(t.Context(), []string{"in"}, nil); err != nil {
			t.Fatal(err)
		}
		m.topic("in", 2, 1)
		time.Sleep(2 * topicPollInterval)
		if got, _ := topics.Lookup("in"); got.ID != [16]byte{2} || got.Partitions != 1 {
			t.Errorf("got %+v", got)
		}
		if _, ok := topics.LookupID([16]byte{1}); ok {
			t.Error("the old id is still known")
		}
		// A broker that is behind tells of the deleted one.
		m.topic("in", 1, 4)
		time.Sleep(2 * topicPollInterval)
		if got, _ := topics.Lookup("in"); got.ID != [16]byte{2} {
			t.Errorf("a broker that is behind was believed: %+v", got)
		}
	})
}

func TestTopicIsGoneOnlyWhenSaidTwice(t *testing.T) {
	inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
		m.topic("in", 1, 1)
		if err := topics.Ensure(t.Context(), []string{"in"}, nil); err != nil {
			t.Fatal(err)
		}
		topics.Pin(time.Now(), "g", 1, []string{"in"})
		kept := m.topics["in"]
		m.set(func() { delete(m.topics, "in") })
		time.Sleep(topicPollInterval + 10*time.Millisecond)
		if _, ok := topics.Lookup("in"); !ok {
			t.Fatal("one answer was enough")
		}
		m.set(func() { m.topics["in"] = kept })
		time.Sleep(topicPollInterval + 10*time.Millisecond)
		m.set(func() { delete(m.topics, "in") })
		time.Sleep(topicPollInterval + 10*time.Millisecond)
		if _, ok := topics.Lookup("in"); !ok {
			t.Fatal("answers that were not in a row were counted")
		}
		time.Sleep(topicPollInterval + 10*time.Millisecond)
		if _, ok := topics.Lookup("in"); ok {
			t.Error("the topic is still there")
		}
	})
}

func TestRackOfABrokerThatIsAwayIsRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
		m.racks[0] = "a"
		m.topic("in", 1, 1)
		if err := topics.Ensure(t.Context(), []string{"in"}, nil); err != nil {
			t.Fatal(err)
		}
		version := topics.Snapshot().Version()
		m.set(func() { delete(m.racks, 0) })
		time.Sleep(3 * topicPollInterval)
		if v := topics.Snapshot().Version(); v != version {
			t.Error("a broker that went away changed the topic")
		}
	})
}

func TestUnusedTopicsAreForgottenAndPinnedOnesAreNot(t *testing.T) {
	inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
		m.topic("pinned", 1, 1)
		m.topic("unused", 2, 1)
		m.topic("former", 3, 1)
		if err := topics.Ensure(t.Context(), []string{"pinned", "unused", "former"}, nil); err != nil {
			t.Fatal(err)
		}
		topics.Pin(time.Now(), "g", 1, []string{"former"})
		topics.Pin(time.Now(), "g", 2, []string{"pinned"}) // the shard was claimed anew
		begin := time.Now()
		for time.Since(begin) < 2*topicIdleFor {
			time.Sleep(10 * time.Second)
			if !topics.Touch(time.Now(), "g", 2) {
				t.Fatal("the group is not pinned")
			}
		}
		if _, ok := topics.Lookup("pinned"); !ok {
			t.Error("a pinned topic is forgotten")
		}
		for _, name := range []string{"unused", "former"} {
			if _, ok := topics.Lookup(name); ok {
				t.Errorf("topic %s is remembered", name)
			}
		}
		time.Sleep(topicPinFor + topicIdleFor + 2*topicPollInterval)
		if topics.Touch(time.Now(), "g", 2) {
			t.Error("a group that was not heard of is still pinned")
		}
		if _, ok := topics.Lookup("pinned"); ok || len(topics.entries) != 0 || len(topics.names) != 0 {
			t.Errorf("left: %v %v", topics.entries, topics.names)
		}
	})
}

func TestPinsGrowUnderOneClaim(t *testing.T) {
	topics := NewTopics(TopicsConfig{Client: newMetadata()})
	now := time.Now()
	pinned := func(names ...string) {
		t.Helper()
		var got []string
		for name, e := range topics.entries {
			if e.pins > 0 {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, names) {
			t.Errorf("pinned %v, want %v", got, names)
		}
	}
	topics.Pin(now, "g", 1, []string{"b", "a"})
	topics.Pin(now, "g", 1, []string{"c", "a"}) // a member of an older topology
	pinned("a", "b", "c")
	topics.Pin(now, "h", 1, []string{"a"})
	if topics.Touch(now, "g", 2) || !topics.Touch(now, "g", 1) {
		t.Error("the topics are not bound to the claim")
	}
	topics.Pin(now, "g", 2, []string{"d"})
	pinned("a", "d")
	many := make([]string, topicsPerPinMax)
	for i := range many {
		many[i] = fmt.Sprint("x", i)
	}
	topics.Pin(now, "g", 2, many)
	if n := len(topics.pins["g"].names); n != topicsPerPinMax {
		t.Errorf("%d topics pinned, want those of the last call alone", n)
	}
}

// The internal topics of a group are deleted with it, right after it; the application may be started again at once.
func TestTopicsOfADeletedGroupAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
		for i, name := range []string{"in", "changelog", "other"} {
			m.topic(name, byte(1+i), 2)
		}
		all := []string{"in", "changelog", "other"}
		if err := topics.Ensure(t.Context(), all, nil); err != nil {
			t.Fatal(err)
		}
		topics.Pin(time.Now(), "g", 1, []string{"in", "changelog"})
		topics.Pin(time.Now(), "h", 1, []string{"in", "other"})
		version := topics.Snapshot().Version()
		topics.Forget("g")
		topics.Forget("g")
		topics.Forget("nobody")
		if topics.Touch(time.Now(), "g", 1) || !topics.Touch(time.Now(), "h", 1) {
			t.Error("the wrong group's pins are gone")
		}
		if topics.Snapshot().Version() != version+1 {
			t.Errorf("version %d, was %d", topics.Snapshot().Version(), version)
		}
		m.set(func() { delete(m.topics, "changelog") })
		if err := topics.Ensure(t.Context(), all, nil); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{"in": true, "changelog": false, "other": true} {
			if _, ok := topics.Snapshot().Topic(name); ok != want {
				t.Errorf("%s is there: %v, want %v", name, ok, want)
			}
		}
	})
}

func TestClusterThatIsAwayIsAnErrorOnlyForWhatIsNotKnown(t *testing.T) {
	inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
		m.topic("in", 1, 1)
		if err := topics.Ensure(t.Context(), []string{"in"}, nil); err != nil {
			t.Fatal(err)
		}
		m.set(func() { m.fail = errors.New("gone") })
		time.Sleep(10 * topicPollInterval)
		if err := topics.Ensure(t.Context(), []string{"in"}, nil); err != nil {
			t.Errorf("a known topic: %v", err)
		}
		if err := topics.Ensure(t.Context(), []string{"new"}, nil); !errors.Is(err, ErrTopicsUnknown) {
			t.Errorf("an unknown topic: %v", err)
		}
		m.set(func() { m.fail = nil })
		if err := topics.Ensure(t.Context(), []string{"new"}, nil); err != nil {
			t.Errorf("after it is back: %v", err)
		}
	})
}

func TestEnsureIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
		m.hold = make(chan struct{})
		begin := time.Now()
		err := topics.Ensure(t.Context(), []string{"in"}, nil)
		if !errors.Is(err, ErrTopicsUnknown) || time.Since(begin) > topicFetchTimeout {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		if err := topics.Ensure(ctx, []string{"in"}, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

func TestManyNamesAreAskedForInPortions(t *testing.T) {
	inBubble(t, func(t *testing.T, m *metadata, topics *Topics) {
		names := make([]string, 2*topicNamesPerRequest+1)
		for i := range names {
			names[i] = fmt.Sprint("t", i)
		}
		if err := topics.Ensure(t.Context(), names, nil); err != nil {
			t.Fatal(err)
		}
		if n := m.requests(); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
	})
}

func equalTopic(a, b streams.Topic) bool {
	return a.Name == b.Name && a.ID == b.ID && a.Partitions == b.Partitions && slices.EqualFunc(a.Racks, b.Racks, slices.Equal)
}
