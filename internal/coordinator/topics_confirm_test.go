package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A replica that has just got the shard of a group knows none of its topics, and the broker that it asks first may know as little. Each row:
// what the first heartbeat of a running member is told, and whether the shard sees the topic then. No row takes any time but those that say so.
func TestStoredTopicsAreMissingOnlyWhereTwoAnswersAgree(t *testing.T) {
	down := errors.New("down")
	lacks := func(b severalBrokers, nodes ...int32) {
		for _, n := range nodes {
			delete(b[n].topics, "in")
		}
	}
	for _, row := range []struct {
		name    string
		nodes   []int32
		prepare func(severalBrokers)
		code    int16
		seen    bool
		takes   time.Duration
	}{
		{name: "all know it", nodes: []int32{1, 2, 3}, prepare: func(severalBrokers) {}, seen: true},
		{name: "the first is behind", nodes: []int32{1, 2, 3}, prepare: func(b severalBrokers) { lacks(b, 1) }, seen: true},
		{name: "the first knows nothing yet", nodes: []int32{1, 2}, prepare: func(b severalBrokers) { clear(b[1].topics) }, seen: true},
		{name: "the first knows nothing yet, and no other answers", nodes: []int32{1, 2, 3}, prepare: func(b severalBrokers) {
			clear(b[1].topics)
			b[2].fail, b[3].fail = down, down
		}, code: codeLoading},
		{name: "one that is behind is alone", nodes: []int32{1, 2, 3}, prepare: func(b severalBrokers) {
			lacks(b, 1)
			b[2].fail, b[3].fail = down, down
		}, code: codeLoading},
		{name: "another one hangs", nodes: []int32{1, 2}, prepare: func(b severalBrokers) {
			lacks(b, 1)
			b[2].hold = make(chan struct{})
		}, code: codeLoading, takes: topicConfirmTimeout},
		{name: "it is gone", nodes: []int32{1, 2, 3}, prepare: func(b severalBrokers) { lacks(b, 1, 2, 3) }},
		{name: "it is gone, and one broker hangs", nodes: []int32{1, 2, 3}, prepare: func(b severalBrokers) {
			lacks(b, 1, 2, 3)
			b[3].hold = make(chan struct{})
		}},
		{name: "it is gone from a cluster of one", nodes: []int32{1}, prepare: func(b severalBrokers) { lacks(b, 1) }},
		{name: "a cluster of one knows nothing yet", nodes: []int32{1}, prepare: func(b severalBrokers) { clear(b[1].topics) }, code: codeLoading},
		{name: "it may not be seen", nodes: []int32{1, 2, 3}, prepare: func(b severalBrokers) {
			for _, m := range b {
				m.topics["in"] = errorOf(m.topics["in"], kerr.TopicAuthorizationFailed)
			}
		}},
		{name: "the first can't tell", nodes: []int32{1, 2, 3}, prepare: func(b severalBrokers) { b[1].topics["in"] = errorOf(b[1].topics["in"], kerr.UnknownServerError) }, seen: true},
		{name: "nobody can tell", nodes: []int32{1, 2, 3}, prepare: func(b severalBrokers) {
			for _, m := range b {
				m.topics["in"] = errorOf(m.topics["in"], kerr.UnknownServerError)
			}
		}, code: codeLoading},
	} {
		t.Run(row.name, func(t *testing.T) {
			withBrokers(t, row.nodes, func(t *testing.T, w *world, b severalBrokers) {
				w.stored["g1"] = []string{"in"}
				row.prepare(b)
				start := time.Now()
				resp := w.Heartbeat(t.Context(), Caller{}, beat("g1", 5))
				if took := time.Since(start); took != row.takes {
					t.Errorf("it took %s, want %s", took, row.takes)
				}
				_, seen := w.topics.Lookup("in")
				if beaten := len(w.shards.beats) == 1; resp.ErrorCode != row.code || beaten != (row.code == 0) || seen != row.seen {
					t.Errorf("code %d, the shard was asked: %v, the topic is seen: %v", resp.ErrorCode, beaten, seen)
				}
			})
		})
	}
}

// What two answers agreed on is not asked for again by each heartbeat, and a topic that comes is seen.
func TestMissingStoredTopicsAreConfirmedOnce(t *testing.T) {
	withBrokers(t, []int32{1, 2, 3}, func(t *testing.T, w *world, b severalBrokers) {
		w.stored["g1"], w.stored["h1"] = []string{"in"}, []string{"in"}
		for _, m := range b {
			delete(m.topics, "in")
		}
		asked := func() int { return b[1].requests() + b[2].requests() + b[3].requests() }
		w.Heartbeat(t.Context(), Caller{}, beat("g1", 5))
		n := asked()
		if n > 1+topicConfirmBrokers {
			t.Errorf("%d questions", n)
		}
		w.Heartbeat(t.Context(), Caller{}, beat("g1", 5))
		w.Heartbeat(t.Context(), Caller{}, beat("h1", 5))
		if asked() != n {
			t.Errorf("%d questions more", asked()-n)
		}
		b[1].topic("in", 1, 2)
		time.Sleep(2 * topicAwaitedTick)
		if _, ok := w.topics.Lookup("in"); !ok {
			t.Error("the topic is not seen")
		}
		b[1].set(func() { delete(b[1].topics, "in") }) // a broker that is behind
		time.Sleep(topicPollInterval)
		if _, ok := w.topics.Lookup("in"); !ok {
			t.Error("the topic is gone on one word")
		}
	})
}

// A topology that an application brings with its first join may name topics that are not there yet: one answer is enough to say so.
func TestTopicsOfANewTopologyAreNotConfirmed(t *testing.T) {
	withBrokers(t, []int32{1, 2, 3}, func(t *testing.T, w *world, b severalBrokers) {
		b[2].fail, b[3].fail = errors.New("down"), errors.New("down")
		if resp := w.Heartbeat(t.Context(), Caller{}, join("g1", "none")); resp.ErrorCode != 0 || len(w.shards.beats) != 1 {
			t.Errorf("code %d", resp.ErrorCode)
		}
		if n := b[2].requests() + b[3].requests(); n != 0 {
			t.Errorf("%d questions to other brokers", n)
		}
	})
}

func errorOf(topic kmsg.MetadataResponseTopic, err *kerr.Error) kmsg.MetadataResponseTopic {
	topic.ErrorCode, topic.Partitions = err.Code, nil
	return topic
}

// withBrokers runs f with a world that owns shard 1, over brokers that need not agree and all know "in" at first.
func withBrokers(t *testing.T, nodes []int32, f func(*testing.T, *world, severalBrokers)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.shards.owned[1], w.shards.known["g1"] = true, true
		brokers := newBrokers(nodes...)
		for _, b := range brokers {
			b.topic("in", 1, 2)
		}
		w.topics = brokers.topics(nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); w.topics.Run(ctx) }()
		defer func() { cancel(); <-done }()
		f(t, w, brokers)
	})
}
