package shard

import (
	"context"
	"fmt"
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// BenchmarkSweep has idle groups with five expired offsets each judged and removed, in turns, from a projection on disk and with a log that takes an
// append at once. Figures: µs/group, of which loop-µs/group the shard's loop was at work, and groups/turn.
func BenchmarkSweep(b *testing.B) {
	turns, removed := 0, 0
	var busy int64
	for b.Loop() {
		b.StopTimer()
		h, ids, end := idleGroups(b, 20_000, 5)
		before := h.Timings().Busy()
		b.StartTimer()
		for left := ids; len(left) > 0; turns++ {
			judged, err := h.ExpireGroups(b.Context(), 0, left)
			if err != nil {
				b.Fatal(err)
			}
			for _, j := range judged {
				if j.Removed {
					removed++
				}
			}
			left = left[len(judged):]
		}
		b.StopTimer()
		busy += h.Timings().Busy() - before
		end()
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(removed), "µs/group")
	b.ReportMetric(float64(busy)/1000/float64(removed), "loop-µs/group")
	b.ReportMetric(float64(removed)/float64(turns), "groups/turn")
}

// idleGroups starts a replica whose log has groups without members, with so many offsets each, whose time is over.
func idleGroups(b *testing.B, groups, committed int) (h *Host, ids []string, end func()) {
	log := eventlog.NewFake(eventlog.FakeOptions{})
	var entries []eventlog.Entry
	add := func(t eventlog.Type, id string, p int32, v eventlog.Value) {
		k := eventlog.Key{Type: t, Group: id}
		if t == eventlog.TypeOffsetCommit {
			k.Topic, k.Partition = "in", p
		}
		raw := eventlog.Encode(eventlog.Record{Key: k, Value: v})
		entries = append(entries, eventlog.Entry{ProducerID: -1, ProducerEpoch: -1, Key: raw.Key, Value: raw.Value})
	}
	for i := range groups {
		id := fmt.Sprintf("idle-%06d", i)
		ids = append(ids, id)
		add(eventlog.TypeTopology, id, 0, &eventlog.Topology{Epoch: 1, Subtopologies: []eventlog.Subtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}})
		add(eventlog.TypeGroup, id, 0, &eventlog.Group{Epoch: 3, StoredDescriptionTopologyEpoch: -1, FailedDescriptionTopologyEpoch: -1})
		for p := range int32(committed) {
			add(eventlog.TypeOffsetCommit, id, p, &eventlog.OffsetCommit{Offset: 1, ExpireTimestamp: -1})
		}
	}
	log.Inject(0, entries...)
	store, err := projection.Open(projection.Config{Dir: b.TempDir(), Identity: log.Identity(), DeleteRetention: 24 * time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	m := newFakeMembership()
	h = New(Config{
		Log: log, Store: store, Membership: m, Self: eventlog.Ownership{Format: eventlog.OwnershipFormat, Instance: "a"},
		Topics: func() streams.Topics { return oneTopic{} }, Groups: groupconfig.Default(),
		Offsets: offsets.Env{MetadataBytesMax: offsets.MetadataMaxDefault, Retention: time.Hour},
	})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{}, 2)
	go func() { _ = log.Follow(ctx, store); ended <- struct{}{} }()
	go func() { _ = h.Run(ctx); ended <- struct{}{} }()
	m.assign(24*time.Hour, 0)
	for !h.Owns(0) {
		time.Sleep(time.Millisecond) // nothing tells of it
	}
	return h, ids, func() {
		cancel()
		<-ended
		<-ended
		_ = store.Close()
		log.Close()
	}
}
