package offsets

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"streamkeeper/eventlog"
)

func TestExpire(t *testing.T) {
	const retention = 10 * time.Second
	in0, in1, out0 := TopicPartition{"in", 0}, TopicPartition{"in", 1}, TopicPartition{"out", 0}
	old := eventlog.OffsetCommit{Offset: 1, CommitTimestamp: 90_000, ExpireTimestamp: -1}
	fresh := eventlog.OffsetCommit{Offset: 1, CommitTimestamp: 90_001, ExpireTimestamp: -1}
	none := func(string) bool { return false }
	for _, c := range []struct {
		name       string
		committed  map[TopicPartition]eventlog.OffsetCommit
		open       map[TopicPartition]bool
		subscribed func(string) bool
		want       []TopicPartition
		allGone    bool
	}{
		{"no offsets", nil, nil, none, nil, true},
		{"no offsets, open transaction", nil, map[TopicPartition]bool{in0: true}, none, nil, false},
		{"retention is over to the millisecond", map[TopicPartition]eventlog.OffsetCommit{in0: old}, nil, none, []TopicPartition{in0}, true},
		{"a millisecond is left", map[TopicPartition]eventlog.OffsetCommit{in0: fresh}, nil, none, nil, false},
		{"one of two", map[TopicPartition]eventlog.OffsetCommit{in0: old, in1: fresh}, nil, none, []TopicPartition{in0}, false},
		{"subscribed topics never expire", map[TopicPartition]eventlog.OffsetCommit{in0: old, in1: old, out0: old}, nil, func(t string) bool { return t == "in" }, []TopicPartition{out0}, false},
		{"open transaction on the partition", map[TopicPartition]eventlog.OffsetCommit{in0: old, in1: old}, map[TopicPartition]bool{in0: true}, none, []TopicPartition{in1}, false},
		{"open transaction on another partition", map[TopicPartition]eventlog.OffsetCommit{in0: old}, map[TopicPartition]bool{out0: true}, none, []TopicPartition{in0}, false},
		{"explicit expiry reached", map[TopicPartition]eventlog.OffsetCommit{in0: {CommitTimestamp: 99_999, ExpireTimestamp: 100_000}}, nil, none, []TopicPartition{in0}, true},
		{"explicit expiry not reached", map[TopicPartition]eventlog.OffsetCommit{in0: {CommitTimestamp: 1, ExpireTimestamp: 100_001}}, nil, none, nil, false},
		{"explicit expiry of a subscribed topic", map[TopicPartition]eventlog.OffsetCommit{in0: {CommitTimestamp: 1, ExpireTimestamp: 1}}, nil, func(string) bool { return true }, nil, false},
		{"commit in the future", map[TopicPartition]eventlog.OffsetCommit{in0: {CommitTimestamp: 200_000, ExpireTimestamp: -1}}, nil, none, nil, false},
		{"ascending", map[TopicPartition]eventlog.OffsetCommit{out0: old, in1: old, in0: old}, nil, none, []TopicPartition{in0, in1, out0}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := Env{Now: 100_000, Retention: retention}
			recs, allGone := Expire(env, &fakeView{c.committed, c.open}, "g", c.subscribed)
			if want := tombstonesOf("g", c.want...); !reflect.DeepEqual(recs, want) || allGone != c.allGone {
				t.Errorf("records %v, all gone %v; want %v, %v", recs, allGone, want, c.allGone)
			}
		})
	}
}

// After a sweep's records nothing expired is left, nothing else is missing, and allGone says the truth.
func TestExpireLeavesExactlyWhatLives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tp := rapid.Custom(func(t *rapid.T) TopicPartition {
			return TopicPartition{fmt.Sprint("t", rapid.IntRange(0, 2).Draw(t, "topic")), rapid.Int32Range(0, 3).Draw(t, "partition")}
		})
		commit := rapid.Custom(func(t *rapid.T) eventlog.OffsetCommit {
			return eventlog.OffsetCommit{
				CommitTimestamp: rapid.Int64Range(80, 110).Draw(t, "commit"),
				ExpireTimestamp: rapid.SampledFrom([]int64{-1, -1, 99, 100, 101}).Draw(t, "expire"),
			}
		})
		view := &fakeView{
			committed: rapid.MapOf(tp, commit).Draw(t, "committed"),
			open:      rapid.MapOf(tp, rapid.Just(true)).Draw(t, "open"),
		}
		subscribed := rapid.MapOf(rapid.SampledFrom([]string{"t0", "t1", "t2"}), rapid.Just(true)).Draw(t, "subscribed")
		env := Env{Now: 100, Retention: 10 * time.Millisecond}
		before := len(view.committed)
		recs, allGone := Expire(env, view, "g", func(topic string) bool { return subscribed[topic] })
		view.apply(recs)
		if len(view.committed) != before-len(recs) {
			t.Fatalf("%d records removed %d offsets", len(recs), before-len(view.committed))
		}
		if allGone != (len(view.committed) == 0 && len(view.open) == 0) {
			t.Fatalf("all gone %v with %d offsets and %d open", allGone, len(view.committed), len(view.open))
		}
		again, _ := Expire(env, view, "g", func(topic string) bool { return subscribed[topic] })
		if len(again) != 0 {
			t.Fatalf("a second sweep at the same time finds %v", again)
		}
	})
}
