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
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"streamkeeper/shard/streams"
)

const (
	// creationTopicsMax bounds the topics that wait to be created or are being created, and with them the memory and the
	// goroutines of a cluster that does not answer. Topics beyond it are left for a later heartbeat.
	creationTopicsMax = 10_000
	// creationRequestsMax is how many CreateTopics may be under way: a controller takes them one after the other anyway, so
	// more of them would only wait there, out of our sight.
	creationRequestsMax = 4
	// creationTopicsPerRequest and creationPartitionsPerRequest bound one request: Kafka's controller refuses a whole request
	// with more than 10,000 new partitions, and a request is carried out or refused within its time-out.
	creationTopicsPerRequest     = 500
	creationPartitionsPerRequest = 5_000
	// creationGrace is what an answer may need on its way, after the time that the controller was given.
	creationGrace = 5 * time.Second
	// appearFor is how long brokers are asked for a topic that was created; the poll finds it if it takes longer.
	appearFor = 10 * time.Second
	// appearAgainMin is the time to the second question, and it doubles with each further one: the broker that is asked has
	// usually heard of the topic before the answer to CreateTopics is here.
	appearAgainMin = 25 * time.Millisecond
	// backOffHeartbeats is how many heartbeat intervals pass before a failed creation is tried again, as in Kafka 4.4.
	backOffHeartbeats = 2
)

// TopicCreator makes topics; UpstreamCreator is one.
type TopicCreator interface {
	// CreateTopics returns one error for each topic, in their order: nil where it was created, errTopicExists, errNotAllowed
	// or an error whose text tells the client why it was not.
	CreateTopics(ctx context.Context, topics []streams.CreatableTopic) []error
}

// CreationStats counts internal topics since the start.
type CreationStats struct{ Created, Failed int64 }

// creation creates the internal topics of groups, beside the heartbeats that ask for them (DefaultAutoTopicCreationManager of
// Kafka 4.4). Safe for concurrent use.
type creation struct {
	creator TopicCreator // nil: nothing is created
	topics  *Topics
	now     func() time.Time
	log     *slog.Logger

	ctx    context.Context // ends at close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	slots  chan struct{}

	created, failed atomic.Int64

	mu       sync.Mutex
	closed   bool
	busy     map[string]struct{} // topics that wait, are being created, or were created and have not been seen yet
	failures creationFailures
}

func newCreation(cfg Config) *creation {
	c := &creation{creator: cfg.Creator, topics: cfg.Topics, now: cfg.Now, log: cfg.Logger,
		slots: make(chan struct{}, creationRequestsMax), busy: map[string]struct{}{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// close ends what is under way and waits for it.
func (c *creation) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.wg.Wait()
}

// want has the topics of a group created, but for those that failed not long ago or are being created already. It does not
// wait. The span in ctx is the parent of the creation's.
func (c *creation) want(ctx context.Context, group string, topics []streams.CreatableTopic, backOff time.Duration) {
	if c.creator == nil {
		return
	}
	ctx = trace.ContextWithSpan(c.ctx, trace.SpanFromContext(ctx))
	for _, part := range c.take(topics) {
		go func() {
			defer c.wg.Done()
			c.create(ctx, group, part, backOff)
		}()
	}
}

// take marks the topics that have to be asked for as busy and returns the requests for them, which are in the wait group already
// so that close can't miss them.
func (c *creation) take(topics []streams.CreatableTopic) [][]streams.CreatableTopic {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	now := c.now()
	var take []streams.CreatableTopic
	for _, t := range topics {
		if _, busy := c.busy[t.Name]; busy || c.failures.held(now, t.Name) {
			continue
		}
		if _, exists := c.topics.Lookup(t.Name); exists {
			continue // it appeared since the handler looked
		}
		if len(c.busy) >= creationTopicsMax {
			break
		}
		c.busy[t.Name] = struct{}{}
		take = append(take, t)
	}
	requests := requestsOf(take)
	c.wg.Add(len(requests))
	return requests
}

// requestsOf divides topics among requests.
func requestsOf(topics []streams.CreatableTopic) (requests [][]streams.CreatableTopic) {
	from, partitions := 0, int64(0)
	for i, t := range topics {
		if i > from && (i-from == creationTopicsPerRequest || partitions+int64(t.Partitions) > creationPartitionsPerRequest) {
			requests = append(requests, topics[from:i])
			from, partitions = i, 0
		}
		partitions += int64(t.Partitions)
	}
	if from < len(topics) {
		requests = append(requests, topics[from:])
	}
	return requests
}

// create is the life of one request.
func (c *creation) create(ctx context.Context, group string, topics []streams.CreatableTopic, backOff time.Duration) {
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Name
	}
	defer c.release(names)
	tracer := trace.SpanFromContext(ctx).TracerProvider().Tracer("streamkeeper")
	ctx, span := tracer.Start(ctx, "create topics", trace.WithAttributes(attribute.String("group", group), attribute.StringSlice("topics", names)))
	defer span.End()

	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	bounded, cancel := context.WithTimeout(ctx, creationTimeout+creationGrace)
	errs := c.creator.CreateTopics(bounded, topics)
	cancel()
	<-c.slots
	if ctx.Err() != nil {
		return // shutting down: not the cluster's failure
	}
	there, existed := c.outcome(group, names, errs, backOff)
	if len(there) < len(names) {
		span.SetStatus(codes.Error, "not all topics were created")
	}
	missing := c.appear(ctx, there)
	// A topic that exists and can't be seen would be asked for at every heartbeat.
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range missing {
		if _, ok := existed[name]; ok {
			c.failures.put(name, creationFailure{text: "Topic '" + name + "' already exists.", retryAt: c.now().Add(backOff)})
		}
	}
}

// outcome notes what became of the topics. It returns those that are there now, and which of them were there before.
func (c *creation) outcome(group string, names []string, errs []error, backOff time.Duration) (there []string, existed map[string]struct{}) {
	existed = map[string]struct{}{}
	var created []string
	failed := map[string][]string{} // by text
	c.mu.Lock()
	defer c.mu.Unlock()
	retryAt := c.now().Add(backOff)
	for i, name := range names {
		switch err := errs[i]; {
		case err == nil:
			created = append(created, name)
		case errors.Is(err, errTopicExists):
			existed[name] = struct{}{}
		default:
			c.failures.put(name, creationFailure{text: clientText(err), refused: errors.Is(err, errNotAllowed), retryAt: retryAt})
			failed[err.Error()] = append(failed[err.Error()], name)
			c.failed.Add(1)
			continue
		}
		there = append(there, name)
		c.failures.remove(name)
	}
	c.created.Add(int64(len(created)))
	if len(created) > 0 {
		c.log.Info("internal topics created", "group", group, "topics", created)
	}
	for _, text := range slices.Sorted(maps.Keys(failed)) {
		c.log.Warn("internal topics can't be created", "group", group, "topics", failed[text], "err", text, "again_in", backOff.String())
	}
	return there, existed
}

// appear asks for topics until brokers tell of them, so that the next heartbeat finds them; it returns those that they do
// not tell of.
func (c *creation) appear(ctx context.Context, names []string) (missing []string) {
	ctx, cancel := context.WithTimeout(ctx, appearFor)
	defer cancel()
	for wait := appearAgainMin; len(names) > 0; wait *= 2 {
		_ = c.topics.Refresh(ctx, names) // asked again, or by the poll
		names = slices.DeleteFunc(names, func(name string) bool { _, ok := c.topics.Lookup(name); return ok })
		if len(names) == 0 {
			break
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return names
		}
	}
	return nil
}

func (c *creation) release(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		delete(c.busy, name)
	}
}

// explain says in the statuses of a response why topics are still missing. The list that it is given is not changed.
func (c *creation) explain(statuses []kmsg.StreamsGroupHeartbeatResponseStatus, topics []streams.CreatableTopic) []kmsg.StreamsGroupHeartbeatResponseStatus {
	c.mu.Lock()
	refused, failed := c.failures.of(c.now(), topics, func(name string) bool { _, ok := c.busy[name]; return ok })
	c.mu.Unlock()
	switch {
	case len(refused) > 0:
		return withRefused(statuses, refused)
	case len(failed) > 0:
		return withFailed(statuses, failed)
	}
	return statuses
}
