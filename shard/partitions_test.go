package shard

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/streams"
)

// A replica with an empty data directory before a log that was given more partitions serves none of them.
func TestAddedPartitionsAreNoticedWithAnEmptyDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventlog.NewFake(eventlog.FakeOptions{Partitions: 4})
		defer log.Close()
		former := log.Steal(1, eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 3, Instance: "before", Partitions: 2})
		former.Close()
		log.HoldTail(1) // what tells is read last
		store, m := newModelStore(4), newFakeMembership()
		h := New(Config{
			Log: log, Store: store, Membership: m, Self: eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 1, Instance: "b"},
			Topics: func() streams.Topics { return oneTopic{} }, Groups: groupconfig.Fixed(streams.DefaultConfig()),
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { _ = log.Follow(ctx, store) })
		ran := make(chan error, 1)
		wg.Go(func() { ran <- h.Run(ctx) })
		m.assign(time.Hour, 0, 1, 2, 3)
		time.Sleep(10 * time.Second) // the bubble's clock
		if n := h.OwnedCount(); n != 0 {
			t.Errorf("%d shards are served while one partition was not read yet", n)
		}
		log.ReleaseTail(1)
		time.Sleep(10 * time.Second) // the bubble's clock
		select {
		case err := <-ran:
			if !errors.Is(err, ErrPartitions) || !strings.Contains(err.Error(), "has 4 partitions, and had 2 when node 3 claimed one") {
				t.Errorf("it ended with %v", err)
			}
		default:
			t.Error("it runs on")
		}
		if n := h.OwnedCount() + int(h.Stats().Claims); n != 0 {
			t.Errorf("%d shards served or claimed", n)
		}
		cancel()
		wg.Wait()
	})
}

// Records say how many partitions there are, so that the next owner can compare.
func TestClaimsSayHowManyPartitionsThereAre(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		for p := range int32(3) {
			if o, ok := r.store.Owner(p); !ok || o.Partitions != 3 {
				t.Errorf("partition %d: %+v", p, o)
			}
		}
		r.stop()
		b := start(1)
		b.m.assign(time.Hour, 0, 1, 2)
		b.awaitServing(t)
	})
}
