package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
	"streamkeeper/shard"
)

// withoutPlugin keeps no descriptions: all that a sweep does is in the log.
var withoutPlugin = backend{name: "none", settings: func(*world, int) []string { return []string{"--plugin", "none"} }}

const (
	// sweptGroups are enough for both kills in the largest partition, however quick the machine: of each partition no more than shard.SweepGroupsMax go in a turn, and
	// the next turn waits for its batch.
	sweptGroups = 3200
	// sweptOffsets is how many offsets each has.
	sweptOffsets = 2
)

// A sweep over many groups, killed between the batches of a partition: before a batch is in the log, and when it is there and not acknowledged.
// Whatever was written, a group and its offsets go together, and the next sweep does the rest; what has not expired stays.
func TestKilledInASweepOverManyGroups(t *testing.T) {
	notShort(t)
	t.Parallel()
	w := newWorld(t, withoutPlugin, 1, "--set=offsets.retention.check.interval.ms=600000")
	var groups []string
	for i := range sweptGroups {
		groups = append(groups, fmt.Sprintf("swept-%04d", i))
	}
	const kept = "kept"
	w.idle(groups, time.Millisecond)
	w.idle([]string{kept}, -time.Millisecond) // the default: a week

	k := w.replicas[0]
	k.Stop()
	k.Set("--set=offsets.retention.check.interval.ms", "100")
	for _, after := range []bool{false, true} {
		rest := w.leftIn(groups, 0)
		for p := range int32(logPartitions) {
			if in := w.leftIn(groups, p); len(in) > len(rest) {
				rest = in
			}
		}
		victim := rest[shard.SweepGroupsMax] // never in the first turn, and what is left is enough for the second kill
		if after {
			victim = rest[0] // in the first
		}
		d := w.arm(point{"tombstone", after}, victim)
		k.Start()
		w.wait(d)
		now := w.leftIn(groups, eventlog.Partition(victim, logPartitions))
		gone := len(rest) - len(now)
		t.Logf("killed %s: of %d groups of the partition %d are gone", d.point, len(rest), gone)
		if gone == 0 || len(now) == 0 {
			t.Errorf("killed %s: of %d groups of the partition %d are gone; the cut was not between two batches", d.point, len(rest), gone)
		}
		if slices.Contains(now, victim) == after {
			t.Errorf("killed %s: the group is there: %v", d.point, !after)
		}
		w.whole(groups)
	}
	k.Start()
	k.WaitReady()
	kafkatest.Eventually(t, settled, func() error {
		if left := w.left(groups); len(left) > 0 {
			return fmt.Errorf("%d groups are left", len(left))
		}
		return nil
	})
	w.whole(groups)
	if len(w.left([]string{kept})) != 1 || len(w.records()[kept]) <= 2 {
		t.Errorf("of %s is left: %v", kept, w.records()[kept])
	}
}

// idle makes groups without members, whose offsets expire so long after they were committed; negative: after the retention.
func (w *world) idle(groups []string, after time.Duration) {
	w.t.Helper()
	const atOnce = 8 // lanes, so that their records share the log's batches
	errs := make([]error, atOnce)
	var wg sync.WaitGroup
	for lane := range atOnce {
		wg.Go(func() {
			deadline := time.Now().Add(settled)
			for i := lane; i < len(groups); {
				errs[lane] = w.idleOne(groups[i], after)
				switch {
				case errs[lane] == nil:
					i += atOnce
				case time.Now().After(deadline):
					return
				default:
					time.Sleep(50 * time.Millisecond) // it was told to try again
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) idleOne(group string, after time.Duration) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	c, err := wire.Dial(ctx, w.replicas[0].Bootstrap(), "idle")
	if err != nil {
		return err
	}
	defer c.Close()
	m := kafkatest.Member{Group: group, ID: "m", Topic: input}
	commit := m.Commit(0, 1)
	commit.Version, commit.MemberID, commit.Generation, commit.RetentionTimeMillis = 4, "", -1, after.Milliseconds() // version 4 is the last with a time
	for p := range int32(sweptOffsets - 1) {
		part := kmsg.NewOffsetCommitRequestTopicPartition()
		part.Partition, part.Offset = p+1, 1
		commit.Topics[0].Partitions = append(commit.Topics[0].Partitions, part)
	}
	for _, req := range []kmsg.Request{m.Heartbeat(), m.Leave(), commit} {
		resp, err := c.Exchange(ctx, req)
		if err == nil {
			err = kafkatest.Refusal(resp)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", group, err)
		}
	}
	return nil
}

// records are the live records of the log by group: what compaction would leave.
func (w *world) records() map[string]map[eventlog.Key]struct{} {
	w.t.Helper()
	broker := strings.Join(w.cluster.ListenAddrs(), ",")
	ends := kafkatest.EndOffsets(w.t, broker, logTopic)
	left := map[int32]struct{}{}
	from := map[int32]kgo.Offset{}
	for p, end := range ends {
		if end > 0 {
			left[p], from[p] = struct{}{}, kgo.NewOffset().AtStart()
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.cluster.ListenAddrs()...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{logTopic: from}))
	if err != nil {
		w.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), settled)
	defer cancel()
	out := map[string]map[eventlog.Key]struct{}{}
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			w.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset >= ends[r.Partition]-1 {
				delete(left, r.Partition)
			}
			key, err := eventlog.DecodeKey(r.Key)
			switch {
			case err != nil || key.Type == eventlog.TypeOwnership:
			case r.Value == nil:
				delete(out[key.Group], key)
			default:
				if out[key.Group] == nil {
					out[key.Group] = map[eventlog.Key]struct{}{}
				}
				out[key.Group][key] = struct{}{}
			}
		})
	}
	return out
}

// left are those of the groups that the log has, ascending.
func (w *world) left(groups []string) []string {
	w.t.Helper()
	var left []string
	records := w.records()
	for _, id := range groups {
		if _, ok := records[id][eventlog.Key{Type: eventlog.TypeGroup, Group: id}]; ok {
			left = append(left, id)
		}
	}
	return left
}

// leftIn are those that are left in a partition.
func (w *world) leftIn(groups []string, p int32) []string {
	w.t.Helper()
	return slices.DeleteFunc(w.left(groups), func(id string) bool { return eventlog.Partition(id, logPartitions) != p })
}

// whole says that each group is in the log with all its offsets, or not at all.
func (w *world) whole(groups []string) {
	w.t.Helper()
	records := w.records()
	for _, id := range groups {
		if _, ok := records[id][eventlog.Key{Type: eventlog.TypeGroup, Group: id}]; !ok && len(records[id]) > 0 {
			w.t.Errorf("%s is gone, and left are %v", id, records[id])
		} else if ok {
			n := 0
			for key := range records[id] {
				if key.Type == eventlog.TypeOffsetCommit {
					n++
				}
			}
			if n != sweptOffsets {
				w.t.Errorf("%s is there with %d offsets of %d", id, n, sweptOffsets)
			}
		}
	}
}
