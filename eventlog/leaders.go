package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// metadataInterval is how often the topic is looked at without a reason: a topic that was made again, or got more
	// partitions, is noticed even where every partition reads and writes well.
	metadataInterval = 30 * time.Second
	// failedPause is when the topic is looked at again where it was not seen: the cluster did not let us, did not know it, did not answer. It may have been one broker, for
	// a moment, and what was found then counts until there is an answer.
	failedPause = time.Second
	// metadataPauseMin spaces requests for metadata: fifty partitions that lost their leader ask once.
	metadataPauseMin = 20 * time.Millisecond
)

// leadership is who leads a partition: node is -1 where nobody does.
type leadership struct {
	node  int32
	epoch int32
}

// leaders knows the leader of each partition. It asks the cluster when told to, and now and then.
type leaders struct {
	client *kgo.Client
	log    *slog.Logger
	id     Identity

	annex    Annexing      // of OpenAnnex
	want     chan struct{} // one refresh is wanted
	patience time.Duration // missingMax, but in tests
	roster   *roster

	mu      sync.Mutex
	parts   []leadership
	copies  [][]int32     // the brokers that have each partition
	changed chan struct{} // closed and replaced when parts or err change
	err     error         // the topic is not the one that was opened
	missing time.Time     // since when answers do not know the topic; zero: the last one did
	denied  error         // the last answer refused to tell of the topic
	heard   time.Time     // when an answer told of the topic last
}

func newLeaders(client *kgo.Client, log *slog.Logger, id Identity) *leaders {
	l := &leaders{client: client, log: log, id: id, want: make(chan struct{}, 1), patience: missingMax, roster: &roster{}, parts: make([]leadership, id.Partitions), copies: make([][]int32, id.Partitions), changed: make(chan struct{})}
	for p := range l.parts {
		l.parts[p] = leadership{-1, -1}
	}
	return l
}

func (l *leaders) get(p int32) leadership {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.parts[p]
}

// told is the leader of p, and when the cluster said so last.
func (l *leaders) told(p int32) (leadership, time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.parts[p], l.heard
}

// replicas are the brokers that have p, its leader among them. They must not be changed.
func (l *leaders) replicas(p int32) []int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.copies[p]
}

// all is a copy of what is known, and a channel that is closed when it changes.
func (l *leaders) all() ([]leadership, <-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]leadership(nil), l.parts...), l.changed, l.err
}

// failed is why the topic can't be used any more.
func (l *leaders) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// denial is why the cluster does not tell of the topic any more; nil where it does.
func (l *leaders) denial() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.denied
}

// refresh asks for new metadata soon.
func (l *leaders) refresh() {
	select {
	case l.want <- struct{}{}:
	default: // it is wanted already
	}
}

func (l *leaders) run(ctx context.Context) {
	t := time.NewTicker(metadataInterval)
	defer t.Stop()
	var again <-chan time.Time // nothing else asks again: reads and writes may go on
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.want:
		case <-t.C:
		case <-again:
		}
		err := l.load(ctx)
		if err != nil && ctx.Err() == nil {
			l.log.Debug("metadata of the log topic", "topic", l.id.Topic, "err", err)
		}
		if again = nil; err != nil {
			again = time.After(failedPause)
		}
		sleep(ctx, metadataPauseMin)
	}
}

// missingMax is how long answers may not know the topic before it counts as deleted: a broker that has just started
// answers so for a moment.
const missingMax = 10 * time.Second

// load asks for the topic's metadata once and takes it over.
func (l *leaders) load(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*requestOverhead)
	defer cancel()
	topic, err := topicMetadata(ctx, l.client, l.roster, l.id.Topic)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil || unauthorized(err) {
		l.denied = err
	}
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		l.missing = time.Time{} // nobody says that it is not there
		return err
	}
	if l.err != nil {
		return l.err
	}
	if err != nil {
		if l.missing.IsZero() {
			l.missing = time.Now()
		}
		if time.Since(l.missing) > l.patience {
			l.fail(l.gone())
		}
		return err
	}
	l.missing = time.Time{}
	var unknown [16]byte
	switch {
	case topic.TopicID != l.id.TopicID && topic.TopicID != unknown && l.id.TopicID != unknown && l.annex.What != "":
		l.fail(fmt.Errorf("%w: %s %s was deleted and made again: its id was %x, is %x", ErrTopicGone, l.annex.What, l.id.Topic, l.id.TopicID, topic.TopicID))
	case topic.TopicID != l.id.TopicID && topic.TopicID != unknown && l.id.TopicID != unknown:
		l.fail(fmt.Errorf("log topic %s is another one: its id was %x, is %x; it was deleted and made again while the process ran; start again to read the new one", l.id.Topic, l.id.TopicID, topic.TopicID))
	case int32(len(topic.Partitions)) != l.id.Partitions && l.annex.What != "":
		l.fail(fmt.Errorf("%s %s has %d partitions, must have %d, as the log has: %s", l.annex.What, l.id.Topic, len(topic.Partitions), l.id.Partitions, l.annex.Advice))
	case int32(len(topic.Partitions)) != l.id.Partitions:
		l.fail(fmt.Errorf("log topic %s has %d partitions, had %d when the process started: groups would change their partition; the count must not be changed. Use a topic with %d; one that is made anew begins without groups and committed offsets", l.id.Topic, len(topic.Partitions), l.id.Partitions, l.id.Partitions))
	}
	if l.err != nil {
		return l.err
	}
	l.take(topic)
	l.heard = time.Now()
	return nil
}

// gone is the error of a topic that was deleted.
func (l *leaders) gone() error {
	if l.annex.What != "" {
		return fmt.Errorf("%w: %s %s was deleted while the process ran", ErrTopicGone, l.annex.What, l.id.Topic)
	}
	return fmt.Errorf("log topic %s is gone: it was deleted while the process ran. The data directories of the replicas may be the last copies of the groups and their committed offsets: keep them, and restore the topic from the newest with streamkeeper restore", l.id.Topic)
}

func (l *leaders) fail(err error) {
	l.err = err
	close(l.changed)
	l.changed = make(chan struct{})
}

// take takes over the leaders of topic. What is older than what is known (a broker that lags) changes nothing.
func (l *leaders) take(topic *kmsg.MetadataResponseTopic) {
	changed := false
	for _, p := range topic.Partitions {
		if p.Partition < 0 || p.Partition >= l.id.Partitions {
			continue
		}
		now := leadership{p.Leader, p.LeaderEpoch}
		if p.ErrorCode != 0 && p.ErrorCode != kerr.ReplicaNotAvailable.Code {
			now.node = -1
		}
		was := l.parts[p.Partition]
		if now.epoch >= 0 && now.epoch < was.epoch {
			continue
		}
		l.copies[p.Partition] = p.Replicas
		if was == now {
			continue
		}
		l.parts[p.Partition] = now
		changed = true
	}
	if changed {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

// topicMetadata asks any broker for the metadata of a topic, which is not created by that.
func topicMetadata(ctx context.Context, client *kgo.Client, r *roster, name string) (*kmsg.MetadataResponseTopic, error) {
	asked := time.Now()
	resp, err := anyBroker(ctx, client, r, true, func(ctx context.Context, to kmsg.Requestor) (*kmsg.MetadataResponse, error) {
		req := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, rt)
		req.AllowAutoTopicCreation = false
		return req.RequestWith(ctx, to)
	})
	if err != nil {
		return nil, fmt.Errorf("metadata of %s: %w", name, err)
	}
	nodes := make([]int32, len(resp.Brokers))
	for i, b := range resp.Brokers {
		nodes[i] = b.NodeID
	}
	r.list(nodes, asked)
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("metadata of %s: the answer has %d topics", name, len(resp.Topics))
	}
	if err := kerr.ErrorForCode(resp.Topics[0].ErrorCode); err != nil && !errors.Is(err, kerr.LeaderNotAvailable) {
		return nil, fmt.Errorf("metadata of %s: %w", name, err)
	}
	return &resp.Topics[0], nil
}
