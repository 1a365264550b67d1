package shard

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"
)

func TestGroupsAreCountedWithoutBeingInMemory(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		r.m.extend(24 * time.Hour)
		expect := func(when string, want map[streams.State]int64, offsets int64) {
			t.Helper()
			synctest.Wait()
			c := r.Census()
			for _, st := range streams.States {
				if c.Groups[st] != want[st] {
					t.Errorf("%s: %d groups %v, want %d", when, c.Groups[st], st, want[st])
				}
			}
			if c.Offsets != offsets {
				t.Errorf("%s: %d offsets, want %d", when, c.Offsets, offsets)
			}
		}
		expect("at the beginning", nil, 0)
		const groups = 20
		for i := range groups {
			g := fmt.Sprint("g", i)
			epoch := r.join(t, g, "m").MemberEpoch
			if err := r.commit(g, "m", epoch, 3); err != nil {
				t.Fatal(err)
			}
		}
		expect("with a member each", map[streams.State]int64{streams.StateStable: groups}, 0)
		for i := range groups / 2 {
			if _, err := r.beat(fmt.Sprint("g", i), "m", -1); err != nil {
				t.Fatal(err)
			}
		}
		half := map[streams.State]int64{streams.StateStable: groups / 2, streams.StateEmpty: groups / 2}
		expect("half of them left", half, 0)
		for range int(10 * time.Minute / (20 * time.Second)) {
			for i := groups / 2; i < groups; i++ {
				if _, err := r.beat(fmt.Sprint("g", i), "m", 2); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(20 * time.Second) // shorter than the members' session; the bubble's clock
		}
		if n := r.Stats().Evicted; n != groups/2 {
			t.Errorf("%d groups left memory, want %d", n, groups/2)
		}
		expect("those without members out of memory", half, groups)
		if err := r.DeleteGroup(t.Context(), "g0"); err != nil {
			t.Fatal(err)
		}
		expect("one deleted", map[streams.State]int64{streams.StateStable: groups / 2, streams.StateEmpty: groups/2 - 1}, groups)

		// Another owner finds the same numbers.
		r.stop()
		b := start(1)
		b.m.assign(24*time.Hour, 0, 1)
		b.awaitServing(t)
		if b.OwnedCount() != 2 {
			t.Fatalf("%d shards served", b.OwnedCount())
		}
		synctest.Wait()
		c := b.Census()
		if c.Groups[streams.StateEmpty] != groups/2-1 || c.Groups[streams.StateStable] != groups/2 || c.Offsets != groups-1 {
			t.Errorf("after a takeover %+v", c)
		}
	})
}

func TestTimesAreMeasured(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		if _, err := r.beat("g", "m", epoch); err != nil {
			t.Fatal(err)
		}
		tm := r.Timings()
		if q, p, w, l := tm.Queue.Count(), tm.Processing.Count(), tm.Purgatory.Count(), tm.Load.Count(); q != 2 || p != 2 || w != 1 || l != 1 {
			t.Errorf("queued %d, processed %d, waited %d, loaded %d; want 2, 2, 1 (the beat writes nothing), 1", q, p, w, l)
		}
		if r.Queued() != 0 || r.Failed() != 0 {
			t.Errorf("%d queued, %d failed", r.Queued(), r.Failed())
		}
		log.HoldAcks(0)
		commit := async(func() (struct{}, error) { return struct{}{}, r.commit("g", "m", epoch, 3) })
		time.Sleep(2 * time.Second) // the bubble's clock: the log does not acknowledge
		log.ReleaseAcks(0)
		if _, err, done := commit(); !done || err != nil {
			t.Fatal(err, done)
		}
		bounds := []time.Duration{1900 * time.Millisecond, 2100 * time.Millisecond}
		if _, _, below := tm.Purgatory.Cumulative(bounds); below[1]-below[0] != 1 {
			t.Errorf("%d answers waited two seconds, want the one", below[1]-below[0])
		}
	})
}
