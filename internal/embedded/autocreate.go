package embedded

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// creatingMax bounds the topics that are being made at a time: a client that asks for more has to ask again.
const creatingMax = 100

// autoCreate makes the topics that a producer asks for, as a broker with auto.create.topics.enable does. kfake can do it too,
// but does not write such a topic to disk: after a kill the topic is gone, with everything that was acknowledged in it.
type autoCreate struct {
	fake *kfake.Cluster
	log  *slog.Logger

	mu       sync.Mutex
	creating map[string]struct{}
	closed   bool
	wg       sync.WaitGroup
}

func newAutoCreate(fake *kfake.Cluster, log *slog.Logger) *autoCreate {
	a := &autoCreate{fake: fake, log: log, creating: map[string]struct{}{}}
	fake.ControlKey(kmsg.Metadata.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
		if m, ok := r.(*kmsg.MetadataRequest); ok && m.AllowAutoTopicCreation {
			for _, t := range m.Topics {
				if t.Topic != nil && t.TopicID == ([16]byte{}) {
					a.create(*t.Topic)
				}
			}
		}
		// The request itself is answered as if nobody had asked: like a real broker's, this answer does not know the
		// topic yet, and the client asks again.
		return nil, nil, false
	})
	return a
}

// create runs in kfake's loop and must not wait for it.
func (a *autoCreate) create(topic string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.creating[topic]; ok || a.closed || len(a.creating) >= creatingMax {
		return
	}
	a.creating[topic] = struct{}{}
	a.wg.Go(func() {
		switch err := a.fake.CreateTopic(topic, defaultPartitions, nil); {
		case err == nil:
			a.log.Info("topic made because a client asked for it", "topic", topic, "partitions", defaultPartitions)
		case !errors.Is(err, kerr.TopicAlreadyExists):
			a.log.Warn("topic that a client asked for can't be made", "topic", topic, "err", err)
		}
		a.mu.Lock()
		delete(a.creating, topic)
		a.mu.Unlock()
	})
}

// close waits for what is under way; kfake must still run.
func (a *autoCreate) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.wg.Wait()
}
