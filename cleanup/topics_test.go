package cleanup

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
)

// offsetShard holds offsets by group; topologies name what a group reads.
type offsetShard struct {
	mu         sync.Mutex
	offsets    map[string][]offsets.TopicRef
	topologies map[string][]string
	batch      int // offsets removed by one call; 0: all
	calls      []string
	before     time.Time
	fail       error
}

func (s *offsetShard) Partition() int32 { return 7 }

func (s *offsetShard) Offsets(_ context.Context, topic string, f func(string, offsets.TopicRef) bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range slices.Sorted(maps.Keys(s.offsets)) {
		if topic != "" && !slices.Contains(s.topologies[g], topic) {
			continue
		}
		for _, ref := range s.offsets[g] {
			if !f(g, ref) {
				return nil
			}
		}
	}
	return nil
}

func (s *offsetShard) ForgetTopics(_ context.Context, groups []string, gone func(offsets.TopicRef) bool, before time.Time) ([]shard.Judged, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []shard.Judged
	for _, group := range groups {
		s.calls, s.before = append(s.calls, group), before
		if s.fail != nil {
			return nil, s.fail
		}
		var j shard.Judged
		s.offsets[group] = slices.DeleteFunc(slices.Clone(s.offsets[group]), func(ref offsets.TopicRef) bool {
			if !gone(ref) || j.More {
				return false
			}
			if s.batch > 0 && j.Offsets == s.batch {
				j.More = true
				return false
			}
			j.Offsets++
			return true
		})
		if out = append(out, j); j.More {
			break
		}
	}
	return out, nil
}

func ref(name string, id byte) offsets.TopicRef {
	return offsets.TopicRef{Name: name, ID: [16]byte{id}}
}

// question is what Gone was asked, and what it answers.
type question struct {
	mu    sync.Mutex
	asked [][]offsets.TopicRef
	gone  map[offsets.TopicRef]bool
	err   error
	takes time.Duration
}

func (q *question) Gone(_ context.Context, refs []offsets.TopicRef) (map[offsets.TopicRef]bool, error) {
	time.Sleep(q.takes) // of a bubble's clock
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked = append(q.asked, refs)
	return q.gone, q.err
}

func runTopics(t *testing.T, s *offsetShard, q *question, f func(*Topics)) {
	synctest.Test(t, func(t *testing.T) {
		topics := NewTopics(TopicsConfig{
			Interval: time.Hour, Gone: q.Gone, Logger: slog.New(slog.DiscardHandler), Shards: func() []TopicShard { return []TopicShard{s} },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = topics.Run(ctx) }()
		synctest.Wait()
		f(topics)
		cancel()
		<-done
	})
}

// pass lets time pass, and what is due then happen. The locks say to the race detector what the bubble's clock guarantees: what the test
// has looked at so far, it looked at before.
func pass(s *offsetShard, q *question, d time.Duration) {
	s.mu.Lock()
	s.mu.Unlock() //nolint:staticcheck // see above
	q.mu.Lock()
	q.mu.Unlock() //nolint:staticcheck // see above
	time.Sleep(d)
	synctest.Wait()
}

func TestOffsetsOfATopicThatIsToldOfGoAtOnceWithItsReaders(t *testing.T) {
	s := &offsetShard{
		offsets:    map[string][]offsets.TopicRef{"reads": {ref("in", 1), ref("other", 2)}, "stored": {ref("in", 1)}},
		topologies: map[string][]string{"reads": {"in", "other"}},
	}
	q := &question{gone: map[offsets.TopicRef]bool{ref("in", 1): true}, takes: time.Second}
	runTopics(t, s, q, func(topics *Topics) {
		asked := time.Now()
		topics.Deleted("in")
		pass(s, q, 10*time.Second)
		if want := [][]offsets.TopicRef{{ref("in", 1)}}; !reflect.DeepEqual(q.asked, want) {
			t.Errorf("asked %v, want %v", q.asked, want)
		}
		want := map[string][]offsets.TopicRef{"reads": {ref("other", 2)}, "stored": {ref("in", 1)}}
		if !reflect.DeepEqual(s.offsets, want) || topics.Removed() != 1 {
			t.Errorf("left %v, removed %d", s.offsets, topics.Removed())
		}
		if !s.before.Equal(asked) {
			t.Errorf("commits before %v are taken for the deleted topic's, want those before the question at %v", s.before, asked)
		}
		// The group that merely has an offset is found by the sweep of everything.
		pass(s, q, time.Hour)
		if len(s.offsets["stored"]) != 0 || topics.Removed() != 2 {
			t.Errorf("left %v, removed %d", s.offsets, topics.Removed())
		}
	})
}

func TestNothingGoesWithoutCertainty(t *testing.T) {
	s := &offsetShard{
		offsets: map[string][]offsets.TopicRef{"g": {ref("in", 1)}}, topologies: map[string][]string{"g": {"in"}},
	}
	q := &question{err: errors.New("the cluster is away")}
	runTopics(t, s, q, func(topics *Topics) {
		topics.Deleted("in")
		pass(s, q, deletedRetry+time.Second)
		if len(s.calls) != 0 || len(q.asked) != 2 {
			t.Errorf("groups %v judged after %d questions, want none after 2", s.calls, len(q.asked))
		}
		q.mu.Lock()
		q.err = nil // it answers, and has the topic
		q.mu.Unlock()
		pass(s, q, 3*time.Hour)
		if len(s.calls) != 0 || len(s.offsets["g"]) != 1 {
			t.Errorf("groups %v judged, left %v", s.calls, s.offsets)
		}
		if n := len(q.asked); n > 8 {
			t.Errorf("%d questions in three hours of which each has a sweep", n)
		}
	})
}

func TestManyOffsetsGoInParts(t *testing.T) {
	all := make([]offsets.TopicRef, 10)
	gone := map[offsets.TopicRef]bool{}
	for i := range all {
		all[i] = ref("in", byte(i+1))
		gone[all[i]] = true
	}
	s := &offsetShard{offsets: map[string][]offsets.TopicRef{"g": all}, batch: 3}
	q := &question{gone: gone}
	runTopics(t, s, q, func(topics *Topics) {
		pass(s, q, 2*time.Hour)
		if len(s.offsets["g"]) != 0 || topics.Removed() != 10 || len(s.calls) != 4 {
			t.Errorf("left %v, removed %d in %d calls, want nothing, 10, 4", s.offsets, topics.Removed(), len(s.calls))
		}
	})
}

func TestAFailedJudgementIsTriedAgain(t *testing.T) {
	s := &offsetShard{
		offsets: map[string][]offsets.TopicRef{"g": {ref("in", 1)}}, topologies: map[string][]string{"g": {"in"}}, fail: errors.New("not the owner"),
	}
	q := &question{gone: map[offsets.TopicRef]bool{ref("in", 1): true}}
	runTopics(t, s, q, func(topics *Topics) {
		topics.Deleted("in")
		pass(s, q, time.Second)
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		pass(s, q, deletedRetry)
		if len(s.offsets["g"]) != 0 || topics.Removed() != 1 {
			t.Errorf("left %v, removed %d", s.offsets, topics.Removed())
		}
	})
}

// topicSource is a projection of partition 3.
type topicSource struct {
	fakeSource
	topics map[string][]string
	stored map[string][]projection.Stored
}

func (s *topicSource) GroupsOfTopic(p int32, topic string, f func(string) bool) error {
	return s.each(p, s.topics[topic], f)
}

func (s *topicSource) GroupsAndOffsets(p int32, after string, f func(string, func(func(projection.Stored) bool) error) bool) error {
	return both(p, after, s.Groups, s.Offsets, f)
}

func (s *topicSource) Offsets(_ int32, group string, f func(projection.Stored) bool) error {
	for _, st := range s.stored[group] {
		if !f(st) {
			break
		}
	}
	return s.err
}

func TestOffsetTopics(t *testing.T) {
	at := func(topic string, partition int32, id byte) projection.Stored {
		return projection.Stored{Record: eventlog.Record{
			Key: eventlog.Key{Type: eventlog.TypeOffsetCommit, Topic: topic, Partition: partition}, Value: &eventlog.OffsetCommit{TopicID: [16]byte{id}},
		}}
	}
	src := &topicSource{
		fakeSource: fakeSource{groups: []string{"a", "b", "c"}},
		topics:     map[string][]string{"in": {"b"}},
		stored:     map[string][]projection.Stored{"a": {at("in", 0, 1), at("in", 1, 1), at("in", 2, 2)}, "b": {at("in", 0, 2), at("out", 0, 3)}},
	}
	type pair struct {
		group string
		ref   offsets.TopicRef
	}
	read := func(topic string, limit int) (got []pair, err error) {
		err = OffsetTopics(t.Context(), src, 3, topic, func(g string, r offsets.TopicRef) bool {
			got = append(got, pair{g, r})
			return len(got) < limit
		})
		return got, err
	}
	all := []pair{{"a", ref("in", 1)}, {"a", ref("in", 2)}, {"b", ref("in", 2)}, {"b", ref("out", 3)}}
	for limit := 1; limit <= 4; limit++ {
		if got, err := read("", limit); err != nil || !reflect.DeepEqual(got, all[:limit]) {
			t.Errorf("limit %d: %v, %v", limit, got, err)
		}
	}
	if got, err := read("in", 9); err != nil || !reflect.DeepEqual(got, all[2:]) {
		t.Errorf("of a topology: %v, %v", got, err)
	}
	src.err = errors.New("disk")
	if _, err := read("", 9); !errors.Is(err, src.err) {
		t.Errorf("a store that fails: %v", err)
	}
}
