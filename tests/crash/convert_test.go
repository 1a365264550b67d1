package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/client"
	"streamkeeper/internal/kafkatest"
)

// conversionPoints are those of a conversion to a classic group, after the description is gone.
var conversionPoints = around("frozen", "commit at the cluster", "tombstone")

// committedAt are the offsets of the groups that are converted, per partition of the input.
var committedAt = map[int32]int64{0: 3, 1: 5}

// A conversion, killed at each of its points. A classic consumer goes on where the application was; or the application comes back, and
// goes on where it was, as long as the group is not the cluster's yet.
func TestKilledInAConversion(t *testing.T) {
	notShort(t)
	t.Parallel()
	for _, replicas := range []int{1, 2} {
		for _, next := range []string{"the consumer goes on", "the application comes back"} {
			t.Run(fmt.Sprintf("%s, %d replicas", next, replicas), func(t *testing.T) {
				t.Parallel() // most of the time is waiting for sessions to end
				w := newWorld(t, inCatalogue, replicas)
				w.fillInput()
				for i, p := range conversionPoints {
					g := &scene{group: fmt.Sprintf("moved-%d-%s", i, strings.ReplaceAll(p.String(), " ", "-"))}
					w.prepare(g)
					w.commit(g.group)
					g.death = w.arm(p, g.group)
					c := w.consume(g.group)
					w.wait(g.death)
					died := time.Now()
					if next == "the application comes back" {
						c.stop()
					}
					if replicas == 1 {
						w.revive()
					}
					if next == "the consumer goes on" {
						w.isClassic(g.group)
						c.wentOn()
						c.stop()
					} else {
						w.comesBack(g.group)
					}
					t.Logf("%s %s: settled after %s", g.death.by, p, time.Since(died).Round(time.Millisecond))
					w.revive()
				}
			})
		}
	}
}

// takeOverPoints are those of the way from a classic group to a streams group.
var takeOverPoints = around("taken over", "deletion at the cluster")

// An application that moves from the classic protocol, with a death at each point of the take-over of its group. Its member gets in, its
// offsets are there, and the cluster has nothing left that would come back when the group is deleted.
func TestKilledInATakeOver(t *testing.T) {
	notShort(t)
	t.Parallel()
	for _, replicas := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d replicas", replicas), func(t *testing.T) {
			t.Parallel() // most of the time is waiting for sessions to end
			w := newWorld(t, inCatalogue, replicas)
			for i, p := range takeOverPoints {
				g := &scene{group: fmt.Sprintf("came-%d-%s", i, strings.ReplaceAll(p.String(), " ", "-"))}
				if err := kadm.NewClient(w.direct()).CommitAllOffsets(t.Context(), g.group, committedOffsets()); err != nil {
					t.Fatal(err)
				}
				g.death = w.arm(p, g.group)
				g.member = w.join(g.group)
				w.wait(g.death)
				died := time.Now()
				if replicas == 1 {
					w.revive()
				}
				w.stored(g.group)
				w.hasOffsets(g.group)
				w.leave(g)
				w.delete(g.group)
				if got := w.atCluster(g.group); len(got) > 0 {
					t.Errorf("%s: after the deletion the cluster has %v", g.group, got)
				}
				t.Logf("%s %s: settled after %s", g.death.by, p, time.Since(died).Round(time.Millisecond))
				w.revive()
			}
		})
	}
}

// fillInput writes ten records to each partition.
func (w *world) fillInput() {
	w.t.Helper()
	for p := range committedAt {
		for n := range 10 {
			r := &kgo.Record{Topic: input, Partition: p, Value: []byte(fmt.Sprint(n))}
			if err := w.direct(kgo.RecordPartitioner(kgo.ManualPartitioner())).ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}

// direct is a client of the cluster, without streamkeeper between.
func (w *world) direct(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(w.cluster.ListenAddrs()...))...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(cl.Close)
	return cl
}

// commit commits the offsets of an empty group, as kafka-streams-groups --reset-offsets does.
func (w *world) commit(group string) {
	w.t.Helper()
	kafkatest.Eventually(w.t, settled, func() error {
		return kadm.NewClient(w.cl).CommitAllOffsets(w.t.Context(), group, committedOffsets())
	})
}

func committedOffsets() kadm.Offsets {
	offsets := kadm.Offsets{}
	for p, at := range committedAt {
		offsets.Add(kadm.Offset{Topic: input, Partition: p, At: at, LeaderEpoch: -1, Metadata: "m"})
	}
	return offsets
}

// consumer is a classic consumer that was started before a replica died.
type consumer struct {
	w    *world
	stop func()

	mu    sync.Mutex
	first map[int32]int64 // offset of the first record that came, per partition
}

func (w *world) consume(group string) *consumer {
	w.t.Helper()
	var seeds []string
	for _, k := range w.replicas {
		seeds = append(seeds, k.Bootstrap())
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumerGroup(group), kgo.ConsumeTopics(input), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.RetryBackoffFn(func(int) time.Duration { return 200 * time.Millisecond })) // its own grows to seconds
	if err != nil {
		w.t.Fatal(err)
	}
	c := &consumer{w: w, first: map[int32]int64{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if _, ok := c.first[r.Partition]; !ok {
					c.first[r.Partition] = r.Offset
				}
			})
		}
	}()
	c.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		cl.Close()
	})
	w.t.Cleanup(c.stop)
	return c
}

// wentOn waits until the consumer has read from both partitions, from the committed offsets on.
func (c *consumer) wentOn() {
	c.w.t.Helper()
	kafkatest.Eventually(c.w.t, settled, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.first) < len(committedAt) {
			return fmt.Errorf("it has read %v", c.first)
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if !maps.Equal(c.first, committedAt) {
		c.w.t.Errorf("the consumer began at %v, committed was %v", c.first, committedAt)
	}
}

// atCluster is what the cluster's own coordinator has of the group; nil where it has none.
func (w *world) atCluster(group string) map[int32]int64 {
	w.t.Helper()
	got, err := kadm.NewClient(w.direct()).FetchOffsets(w.t.Context(), group)
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[int32]int64{}
	for p, o := range got[input] {
		out[p] = o.At
	}
	return out
}

// isClassic waits until the group is the cluster's, and checks that it has everything.
func (w *world) isClassic(group string) {
	w.t.Helper()
	kafkatest.Eventually(w.t, settled, func() error {
		if !w.gone(group) {
			return errors.New("there is still a streams group")
		}
		return nil
	})
	if got := w.atCluster(group); !maps.Equal(got, committedAt) {
		w.t.Errorf("%s: the cluster has %v, want %v", group, got, committedAt)
	}
	if w.holds(group) {
		w.t.Errorf("%s: the description has outlived its group", group)
	}
}

// comesBack runs a member of the application again. It is let in, and the group has its offsets and the cluster nothing; or it is
// refused, because the group is the cluster's and the consumer still a member of it.
func (w *world) comesBack(group string) {
	w.t.Helper()
	m := w.join(group)
	kafkatest.Eventually(w.t, settled, func() error {
		select {
		case err := <-m.ended:
			m.ended <- err
			if !errors.Is(err, kerr.GroupIDNotFound) {
				w.t.Fatalf("%s: the application ended with %v", group, err)
			}
			return nil
		default:
		}
		d := w.describe(group)
		if d.Err == nil && len(d.Description.Members) == 0 {
			return errors.New("no member yet")
		}
		return d.Err
	})
	if len(m.ended) > 0 {
		w.isClassic(group)
		return
	}
	w.hasOffsets(group)
	kafkatest.Eventually(w.t, settled, func() error { // at once, or when the copy of a group that was taken back is deleted
		if got := w.atCluster(group); len(got) > 0 {
			return fmt.Errorf("the cluster has %v of a streams group", got)
		}
		return nil
	})
	w.stored(group)
	if err := m.stop(); err != nil && !errors.Is(err, context.Canceled) {
		w.t.Error(err)
	}
	w.delete(group)
}

// hasOffsets checks that the streams group has its offsets.
func (w *world) hasOffsets(group string) {
	w.t.Helper()
	listed := w.admin.ListStreamsGroupOffsets(w.t.Context(), map[string][]client.TopicPartition{group: nil}, client.OffsetsOptions{})[0]
	got := map[int32]int64{}
	for _, o := range listed.Offsets {
		got[o.Partition] = o.Offset
	}
	if listed.Err != nil || !maps.Equal(got, committedAt) {
		w.t.Errorf("%s: the streams group has %v, want %v; %v", group, got, committedAt, listed.Err)
	}
}
