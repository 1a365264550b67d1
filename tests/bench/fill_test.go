package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

// Filling a log with many groups at the speed of the log, not of joins: a coordinator writes one group, and its records are written again
// under other names. So both systems get what they would have written themselves, in the same bytes but for the ids of topics.
//
//	sample    two groups join, settle and commit; the records of one with a member and of one without are kept
//	stop      the coordinator writes no more: streamkeeper is stopped (a broker of Kafka's stays up until it is restarted, idle)
//	fill      streamkeeper's log through a proper claim of each partition; Kafka's __consumer_offsets by a client that may write it
//	start     each coordinator loads what it finds

// bulk is what a log is filled with: the groups "<prefix>-000000" and so on.
type bulk struct {
	prefix  string
	groups  int
	active  int // the first so many have a member
	offsets int // committed offsets of each group, one for each partition of the topic
	// age is how long ago the offsets were committed.
	age time.Duration
	// gone: the offsets of one group in so many are of topicGone; 0: of none.
	gone int
}

// topicGone is a topic that is deleted while idle groups have offsets of it.
const topicGone = "bench-gone"

// id is the name of group i. Six digits, so that all names are of one length.
func (b bulk) id(i int) string { return fmt.Sprintf("%s-%06d", b.prefix, i) }

// member is the id of the member of group i, as long as a client's own.
func (b bulk) member(i int) string { return fmt.Sprintf("member-%015d", i) }

// group is group i for the load generator, with the epoch that the sample's member had.
func (b bulk) group(i int, s samples) *group {
	return &group{id: b.id(i), member: b.member(i), epoch: s.epoch}
}

// samples are the records of two groups as a coordinator wrote them, in the order of the log and without what compaction removes.
type samples struct {
	active, idle []eventlog.Record
	epoch        int32 // of the active one's member
	// owners are the last ownership records by partition; none in Kafka's topic.
	owners map[int32]eventlog.Ownership
}

const (
	keeperLog = "__streams_groups"
	kafkaLog  = "__consumer_offsets"
	// fillTimeout bounds the filling of a log; a million groups take about a minute.
	fillTimeout = 10 * time.Minute
	// fillBatchRecords is how many records go into the log at once. They are far from a batch's size.
	fillBatchRecords = 1000
	// fillBacklogMax is how much of one partition may wait for its acknowledgement, far from the writer's own limit.
	fillBacklogMax = 4 << 20
)

// takeSamples has the coordinators at the addresses write the two groups into logTopic, and reads them from there. The source topic must exist.
func takeSamples(t *testing.T, addrs []string, broker, logTopic string) samples {
	t.Helper()
	const active, idle = "sample-active", "sample-idle"
	l := newLanes(1, requestTimeout)
	defer l.close()
	f := &fleet{addrs: addrs}
	groups := []*group{{id: active, member: "sample-member-active"}, {id: idle, member: "sample-member-idle"}}
	all := func(do func(*group, context.Context, *wire.Client) error) {
		t.Helper()
		for _, g := range groups {
			c := newCaller(g, 0, f, l)
			kafkatest.Eventually(t, 90*time.Second, func() error {
				ok, err := c.try(t.Context(), do)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					return fmt.Errorf("%v", c.failures)
				}
				return nil
			})
		}
	}
	all((*group).join)
	all((*group).settle)
	all((*group).commit)
	s := samples{epoch: groups[0].epoch}
	s.active, _ = readGroup(t, broker, logTopic, active)
	all((*group).leave)
	s.idle, s.owners = readGroup(t, broker, logTopic, idle)
	for what, recs := range map[string][]eventlog.Record{"with": s.active, "without": s.idle} {
		types := map[eventlog.Type]bool{}
		for _, r := range recs {
			types[r.Key.Type] = true
		}
		if !types[eventlog.TypeGroup] || !types[eventlog.TypeTopology] || !types[eventlog.TypeOffsetCommit] || types[eventlog.TypeMember] != (what == "with") {
			t.Fatalf("the sample of a group %s a member has records of the types %v", what, slices.Collect(maps.Keys(types)))
		}
	}
	return s
}

// leave removes the group's member.
func (g *group) leave(ctx context.Context, c *wire.Client) error {
	req := g.heartbeat()
	req.MemberEpoch = -1
	return g.exchange(ctx, c, req)
}

// readGroup reads a log topic and returns the records of a group that compaction would leave, and the last ownership records of all partitions.
func readGroup(t *testing.T, broker, topic, id string) ([]eventlog.Record, map[int32]eventlog.Ownership) {
	t.Helper()
	last := map[eventlog.Key]eventlog.Record{}
	var order []eventlog.Key
	owners := map[int32]eventlog.Ownership{}
	readTopic(t, broker, topic, func(r *kgo.Record) {
		key, err := eventlog.DecodeKey(r.Key)
		if err != nil || r.Value == nil && key.Group != id {
			return
		}
		rec := eventlog.Record{Key: key}
		if r.Value != nil {
			if rec.Value, err = eventlog.DecodeValue(key.Type, r.Value); err != nil {
				t.Fatalf("%s-%d@%d: %v", topic, r.Partition, r.Offset, err)
			}
		}
		switch {
		case key.Type == eventlog.TypeOwnership:
			owners[r.Partition] = *rec.Value.(*eventlog.Ownership)
		case key.Group == id:
			last[key] = rec
			order = append(slices.DeleteFunc(order, func(k eventlog.Key) bool { return k == key }), key)
		}
	})
	var recs []eventlog.Record
	for _, key := range order {
		if last[key].Value != nil {
			recs = append(recs, last[key])
		}
	}
	return recs, owners
}

// readTopic calls f with every record of a topic up to its present end.
func readTopic(t *testing.T, broker, topic string, f func(*kgo.Record)) {
	t.Helper()
	ends := kafkatest.EndOffsets(t, broker, topic)
	left := map[int32]int64{}
	from := map[int32]kgo.Offset{}
	for p, end := range ends {
		if end > 0 {
			left[p], from[p] = end, kgo.NewOffset().AtStart()
		}
	}
	if len(left) == 0 {
		return
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(broker, ",")...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.KeepControlRecords(), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), fillTimeout)
	defer cancel()
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s: %v", topic, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset < ends[r.Partition] && !r.Attrs.IsControl() {
				f(r)
			}
			if r.Offset >= ends[r.Partition]-1 {
				delete(left, r.Partition)
			}
		})
	}
}

// records are those of group i, encoded.
func (b bulk) records(i int, s samples) []eventlog.Raw {
	sample := s.idle
	if i < b.active {
		sample = s.active
	}
	committed := time.Now().Add(-b.age).UnixMilli()
	var out []eventlog.Raw
	add := func(r eventlog.Record) {
		out = append(out, eventlog.Raw{Key: eventlog.AppendKey(nil, r.Key), Value: eventlog.AppendValue(nil, r.Value)})
	}
	written := false
	for _, r := range sample {
		r.Key.Group = b.id(i)
		if r.Key.Member != "" {
			r.Key.Member = b.member(i)
		}
		switch v := r.Value.(type) {
		case *eventlog.Member:
			m := *v
			m.ProcessID = b.member(i)
			r.Value = &m
		case *eventlog.OffsetCommit:
			if written {
				continue
			}
			written = true
			commit := *v
			commit.CommitTimestamp = committed
			if b.gone > 0 && i%b.gone == 0 {
				r.Key.Topic, commit.TopicID = topicGone, [16]byte{}
			}
			r.Value = &commit
			for p := range int32(b.offsets) {
				r.Key.Partition = p
				add(r)
			}
			continue
		}
		add(r)
	}
	return out
}

// fillKeeper writes b into streamkeeper's log, in the name of the last owners. No replica may run.
func fillKeeper(t *testing.T, broker string, s samples, b bulk) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fillTimeout)
	defer cancel()
	log, err := eventlog.OpenKafka(ctx, eventlog.KafkaConfig{SeedBrokers: strings.Split(broker, ","), Topic: keeperLog})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n := log.Identity().Partitions
	parts := b.byPartition(n)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for p := range n {
		wg.Go(func() { errs[p] = fillPartition(ctx, log, p, s, b, parts[p]) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("fill the log: %v", err)
	}
}

func fillPartition(ctx context.Context, log *eventlog.Kafka, p int32, s samples, b bulk, groups []int) error {
	o := s.owners[p]
	o.Instance = "fill"
	w, err := log.Claim(ctx, p, o)
	if err != nil {
		return err
	}
	defer w.Close()
	failed := make(chan error, 1)
	landed := make(chan struct{}, 1)
	var batch []eventlog.Raw
	flush := func() error {
		for w.Backlog() > fillBacklogMax {
			select {
			case <-landed:
			case err := <-failed:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		w.Append(time.Now().UnixMilli(), batch, func(_ int64, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
			select {
			case landed <- struct{}{}:
			default:
			}
		})
		batch = nil
		return nil
	}
	for _, i := range groups {
		if batch = append(batch, b.records(i, s)...); len(batch) >= fillBatchRecords {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(batch) > 0 {
		if err := flush(); err != nil {
			return err
		}
	}
	if err := w.Release(ctx); err != nil {
		return err
	}
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// byPartition are the numbers of the groups of each partition.
func (b bulk) byPartition(n int32) [][]int {
	parts := make([][]int, n)
	for i := range b.groups {
		p := eventlog.Partition(b.id(i), n)
		parts[p] = append(parts[p], i)
	}
	return parts
}

// fillKafka writes b into Kafka's own topic. A broker loads it when it becomes the partitions' leader: restart it. The client's name is the
// one that brokers let write internal topics, and there is no producer id: Kafka takes offsets of a producer with one as pending.
func fillKafka(t *testing.T, broker string, s samples, b bulk) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(broker, ",")...), kgo.ClientID("__admin_client"), kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(200_000), kgo.ProducerLinger(5*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), fillTimeout)
	defer cancel()
	n := int32(len(kafkatest.EndOffsets(t, broker, kafkaLog)))
	var first error
	var mu sync.Mutex
	for p, groups := range b.byPartition(n) {
		for _, i := range groups {
			for _, r := range b.records(i, s) {
				cl.Produce(ctx, &kgo.Record{Topic: kafkaLog, Partition: int32(p), Key: r.Key, Value: r.Value}, func(_ *kgo.Record, err error) {
					mu.Lock()
					defer mu.Unlock()
					first = cmp.Or(first, err)
				})
			}
		}
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatalf("fill %s: %v", kafkaLog, err)
	}
	mu.Lock()
	defer mu.Unlock()
	if first != nil {
		t.Fatalf("fill %s: %v", kafkaLog, first)
	}
}

// fetch reads a committed offset of a group, which must be there.
func (g *group) fetch(ctx context.Context, c *wire.Client) error {
	_, err := g.fetched(ctx, c)
	return err
}

func (g *group) fetched(ctx context.Context, c *wire.Client) (int64, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.SetVersion(8)
	rg := kmsg.NewOffsetFetchRequestGroup()
	rg.Group = g.id
	rt := kmsg.NewOffsetFetchRequestGroupTopic()
	rt.Topic, rt.Partitions = topic, []int32{0}
	rg.Topics = append(rg.Topics, rt)
	req.Groups = append(req.Groups, rg)
	kresp, err := c.Exchange(ctx, req)
	if err != nil {
		return 0, err
	}
	got := kresp.(*kmsg.OffsetFetchResponse).Groups[0]
	if err := kerr.ErrorForCode(got.ErrorCode); err != nil {
		return 0, err
	}
	part := got.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
		return 0, err
	}
	if part.Offset < 0 {
		return 0, fmt.Errorf("%w: group %s, OffsetFetch says %d", errNoOffset, g.id, part.Offset)
	}
	return part.Offset, nil
}

// errNoOffset: a committed offset was not there. No repeat makes that good.
var errNoOffset = errors.New("a committed offset is lost")
