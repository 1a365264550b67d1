package shard

import (
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"streamkeeper/eventlog"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// commits is the view of a group's offsets.
type commits map[offsets.TopicPartition]eventlog.OffsetCommit

func (c commits) Get(topic string, p int32) (eventlog.OffsetCommit, bool) {
	v, ok := c[offsets.TopicPartition{Topic: topic, Partition: p}]
	return v, ok
}
func (c commits) All() iter.Seq2[offsets.TopicPartition, eventlog.OffsetCommit] { return maps.All(c) }
func (c commits) Open(string, int32) bool                                       { return false }
func (c commits) OpenAll() iter.Seq[offsets.TopicPartition] {
	return func(func(offsets.TopicPartition) bool) {}
}

// Whatever becomes of a group's members and its topology, no offset of a topic that the active group reads ever expires, be it a source
// or a repartition topic; and everything else goes when its time is over.
func TestOffsetsOfWhatAnActiveGroupReadsNeverExpire(t *testing.T) {
	topics := []string{"in", "other", "g-repartition", "g-changelog", "unread"}
	rapid.Check(t, func(rt *rapid.T) {
		g := streams.NewGroup("g")
		apply := func(typ eventlog.Type, member string, v eventlog.Value) {
			if err := g.Apply(eventlog.Record{Key: eventlog.Key{Type: typ, Group: "g", Member: member}, Value: v}); err != nil {
				rt.Fatal(err)
			}
		}
		apply(eventlog.TypeGroup, "", &eventlog.Group{Epoch: 1, ValidatedTopologyEpoch: -1, StoredDescriptionTopologyEpoch: -1, FailedDescriptionTopologyEpoch: -1})
		env := offsets.Env{Now: 1_000_000, MetadataBytesMax: offsets.MetadataMaxDefault, Retention: 10 * time.Second}
		stored := commits{}
		reads, members := map[string]bool{}, map[string]bool{}
		some := func(label string) (out []string) {
			for _, topic := range topics {
				if rapid.IntRange(0, 2).Draw(rt, label+" "+topic) == 0 {
					out = append(out, topic)
				}
			}
			return out
		}
		rt.Repeat(map[string]func(*rapid.T){
			"topology": func(rt *rapid.T) { // another one than before: what was read may be read no longer
				sources, internal := some("source"), some("repartition source")
				sub := eventlog.Subtopology{SubtopologyID: "0", SourceTopics: sources, StateChangelogTopics: []eventlog.TopicInfo{{Name: "g-changelog"}}}
				clear(reads)
				for _, topic := range sources {
					reads[topic] = true
				}
				for _, topic := range internal {
					sub.RepartitionSourceTopics = append(sub.RepartitionSourceTopics, eventlog.TopicInfo{Name: topic})
					reads[topic] = true
				}
				apply(eventlog.TypeTopology, "", &eventlog.Topology{Subtopologies: []eventlog.Subtopology{sub}})
			},
			"join": func(rt *rapid.T) {
				m := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "member")
				members[m] = true
				apply(eventlog.TypeMember, m, &eventlog.Member{ProcessID: "p"})
			},
			"leave": func(rt *rapid.T) {
				for _, m := range slices.Sorted(maps.Keys(members)) {
					delete(members, m)
					apply(eventlog.TypeCurrentMemberAssignment, m, nil)
					apply(eventlog.TypeTargetAssignmentMember, m, nil)
					apply(eventlog.TypeMember, m, nil)
					return
				}
			},
			"commit": func(rt *rapid.T) {
				c := eventlog.OffsetCommit{Offset: 1, LeaderEpoch: -1, CommitTimestamp: env.Now, ExpireTimestamp: -1}
				if rapid.IntRange(0, 3).Draw(rt, "for a time") == 0 {
					c.ExpireTimestamp = env.Now + rapid.Int64Range(0, 20_000).Draw(rt, "ms")
				}
				stored[offsets.TopicPartition{Topic: rapid.SampledFrom(topics).Draw(rt, "topic"), Partition: rapid.Int32Range(0, 1).Draw(rt, "partition")}] = c
			},
			"wait":    func(rt *rapid.T) { env.Now += rapid.Int64Range(1, 12_000).Draw(rt, "ms") },
			"restart": func(*rapid.T) { g = hydratedAgain(rt, g, reads, members) },
			"sweep": func(rt *rapid.T) {
				recs, allGone := offsets.Expire(env, stored, "g", g.Subscribed)
				gone := map[offsets.TopicPartition]bool{}
				for _, r := range recs {
					gone[offsets.TopicPartition{Topic: r.Key.Topic, Partition: r.Key.Partition}] = true
				}
				left := 0
				for tp, c := range stored {
					past := env.Now-c.CommitTimestamp >= 10_000
					if c.ExpireTimestamp >= 0 {
						past = env.Now >= c.ExpireTimestamp
					}
					want := past && !(len(members) > 0 && reads[tp.Topic])
					if gone[tp] != want {
						rt.Fatalf("%v expires: %v, want %v; members %v read %v", tp, gone[tp], want, members, reads)
					}
					if !want {
						left++
					}
				}
				if allGone != (left == 0) {
					rt.Fatalf("all gone %v with %d left", allGone, left)
				}
				for tp := range gone {
					delete(stored, tp)
				}
			},
		})
	})
}

// hydratedAgain is the group as its stored records make it.
func hydratedAgain(rt *rapid.T, g *streams.Group, reads, members map[string]bool) *streams.Group {
	again := streams.NewGroup("g")
	var sources []string
	for _, topic := range slices.Sorted(maps.Keys(reads)) {
		sources = append(sources, topic)
	}
	records := []eventlog.Record{
		{Key: eventlog.Key{Type: eventlog.TypeTopology, Group: "g"}, Value: &eventlog.Topology{Subtopologies: []eventlog.Subtopology{{SubtopologyID: "0", SourceTopics: sources}}}},
		{Key: eventlog.Key{Type: eventlog.TypeGroup, Group: "g"}, Value: &eventlog.Group{Epoch: g.Epoch(), ValidatedTopologyEpoch: -1, StoredDescriptionTopologyEpoch: -1, FailedDescriptionTopologyEpoch: -1}},
	}
	for _, m := range slices.Sorted(maps.Keys(members)) {
		records = append(records, eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeMember, Group: "g", Member: m}, Value: &eventlog.Member{ProcessID: "p"}})
	}
	for _, r := range records {
		if err := again.Apply(r); err != nil {
			rt.Fatal(err)
		}
	}
	return again
}
