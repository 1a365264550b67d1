package coordinator

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/offsets"
)

// severalBrokers are brokers that need not agree; the client asks the first.
type severalBrokers map[int32]*metadata

func newBrokers(nodes ...int32) severalBrokers {
	b := severalBrokers{}
	for _, n := range nodes {
		b[n] = newMetadata()
		for _, other := range nodes {
			b[n].racks[other] = "r"
		}
		b[n].topic("log", 99, 1)
	}
	return b
}

func (b severalBrokers) topics(deleted func(string)) *Topics {
	return NewTopics(TopicsConfig{
		Client: b[1], Broker: func(n int32) kmsg.Requestor { return b[n] }, Witness: "log", OnDeleted: deleted,
	})
}

func refTo(name string, id byte) offsets.TopicRef {
	r := offsets.TopicRef{Name: name}
	if id > 0 {
		r.ID = [16]byte{id}
	}
	return r
}

func TestGoneNeedsTheWordOfAllBrokers(t *testing.T) {
	asked := []offsets.TopicRef{refTo("there", 1), refTo("there", 0), refTo("deleted", 2), refTo("again", 3), refTo("again", 0), refTo("noid", 0)}
	for _, c := range []struct {
		name    string
		prepare func(severalBrokers)
		want    []offsets.TopicRef
		fails   bool
	}{
		{name: "all agree", prepare: func(severalBrokers) {}, want: []offsets.TopicRef{refTo("deleted", 2), refTo("deleted", 0), refTo("again", 3), refTo("noid", 0)}},
		{name: "one broker still has it", prepare: func(b severalBrokers) { b[2].topic("deleted", 2, 1); b[3].topic("again", 3, 1) }, want: []offsets.TopicRef{refTo("noid", 0)}},
		{name: "one broker has another one of the name", prepare: func(b severalBrokers) { b[3].topic("deleted", 8, 1) }, want: []offsets.TopicRef{refTo("deleted", 2), refTo("again", 3), refTo("noid", 0)}},
		{name: "a broker that knows nothing yet", prepare: func(b severalBrokers) { clear(b[2].topics) }, fails: true},
		{name: "a broker that does not answer", prepare: func(b severalBrokers) { b[3].fail = errors.New("down") }, fails: true},
		{name: "the first does not answer", prepare: func(b severalBrokers) { b[1].fail = errors.New("down") }, fails: true},
		{name: "a broker that may not tell", prepare: func(b severalBrokers) {
			b[2].topic("noid", 5, 1)
			t := b[2].topics["noid"]
			t.ErrorCode = kerr.TopicAuthorizationFailed.Code
			b[2].topics["noid"] = t
		}, want: []offsets.TopicRef{refTo("deleted", 2), refTo("deleted", 0), refTo("again", 3)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				brokers := newBrokers(1, 2, 3)
				for _, b := range brokers {
					b.topic("there", 1, 1)
					b.topic("again", 4, 1)
				}
				c.prepare(brokers)
				gone, err := brokers.topics(nil).Gone(t.Context(), asked)
				if (err != nil) != c.fails {
					t.Fatalf("error %v", err)
				}
				got := slices.Collect(maps.Keys(gone))
				order := func(a, b offsets.TopicRef) int {
					return slices.Compare([]byte(a.Name+string(a.ID[:])), []byte(b.Name+string(b.ID[:])))
				}
				slices.SortFunc(got, order)
				slices.SortFunc(c.want, order)
				if !slices.Equal(got, c.want) {
					t.Errorf("gone %v, want %v", got, c.want)
				}
			})
		})
	}
}

// A topic that one answer lacks, and that a broker knows three seconds later, was never gone.
func TestGoneAsksAgainAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		brokers := newBrokers(1)
		time.AfterFunc(gonePause/2, func() { brokers[1].topic("in", 1, 1) })
		if gone, err := brokers.topics(nil).Gone(t.Context(), []offsets.TopicRef{refTo("in", 1)}); err != nil || len(gone) != 0 {
			t.Errorf("%v, %v", gone, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), gonePause/2)
		defer cancel()
		if gone, err := brokers.topics(nil).Gone(ctx, []offsets.TopicRef{refTo("out", 1)}); !errors.Is(err, context.DeadlineExceeded) || gone != nil {
			t.Errorf("%v, %v", gone, err)
		}
	})
}

func TestADeletionIsToldOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		brokers := newBrokers(1)
		m := brokers[1]
		var told []string
		topics := brokers.topics(func(name string) { told = append(told, name) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); topics.Run(ctx) }()
		m.topic("gone", 1, 1)
		m.topic("again", 2, 1)
		m.topic("stays", 3, 1)
		if err := topics.Ensure(t.Context(), []string{"gone", "again", "stays", "never"}, nil); err != nil {
			t.Fatal(err)
		}
		m.set(func() { delete(m.topics, "gone") })
		m.topic("again", 4, 1)
		time.Sleep(5 * topicPollInterval)
		cancel()
		<-done
		slices.Sort(told)
		if want := []string{"again", "gone"}; !slices.Equal(told, want) {
			t.Errorf("told of %v, want %v", told, want)
		}
	})
}
