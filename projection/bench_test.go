package projection

import (
	"fmt"
	"testing"
	"time"

	"streamkeeper/eventlog"
)

// benchEntries are offset commits of a busy cluster: 20,000 groups, 50 partitions of a topic each.
func benchEntries(n int) []eventlog.Entry {
	entries := make([]eventlog.Entry, n)
	for i := range entries {
		raw := eventlog.Encode(eventlog.Record{
			Key: eventlog.Key{
				Type: eventlog.TypeOffsetCommit, Group: fmt.Sprintf("application-%05d", i/50%20000), Topic: "orders-repartition", Partition: int32(i % 50),
			},
			Value: &eventlog.OffsetCommit{Offset: int64(i), LeaderEpoch: 1, Metadata: "AgAAAaIo/GFS", CommitTimestamp: 1_800_000_000_000, ExpireTimestamp: -1, TopicID: [16]byte{1}},
		})
		entries[i] = eventlog.Entry{Offset: int64(i), ProducerID: -1, Key: raw.Key, Value: raw.Value}
	}
	return entries
}

// benchGroup are the records of a group with ten members and four subtopologies.
func benchGroup(offset int64, group string) []eventlog.Entry {
	var entries []eventlog.Entry
	add := func(k eventlog.Key, v eventlog.Value) {
		k.Type, k.Group = v.Type(), group
		raw := eventlog.Encode(eventlog.Record{Key: k, Value: v})
		entries = append(entries, eventlog.Entry{Offset: offset + int64(len(entries)), ProducerID: -1, Key: raw.Key, Value: raw.Value})
	}
	topology := &eventlog.Topology{}
	for i := range 4 {
		topology.Subtopologies = append(topology.Subtopologies, eventlog.Subtopology{
			SubtopologyID: fmt.Sprint(i), SourceTopics: []string{"orders"},
			StateChangelogTopics: []eventlog.TopicInfo{{Name: fmt.Sprintf("%s-store-%d-changelog", group, i), TopicConfigs: []eventlog.KeyValue{{Key: "cleanup.policy", Value: "compact"}}}},
		})
	}
	add(eventlog.Key{}, topology)
	add(eventlog.Key{}, &eventlog.Group{Epoch: 3, LastAssignmentConfigs: []eventlog.KeyValue{{Key: "num.standby.replicas", Value: "0"}}})
	for m := range 10 {
		k := eventlog.Key{Member: fmt.Sprintf("member-%02d-aaaaaaaaaaaa", m)}
		tasks := []eventlog.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0, 1, 2, 3}}, {SubtopologyID: "1", Partitions: []int32{0, 1}}}
		add(k, &eventlog.Member{ClientID: "client", ClientHost: "/10.0.0.1", ProcessID: "4df94bfe-6257-4260-a7de-172329a9e745"})
		add(k, &eventlog.TargetAssignmentMember{Active: tasks})
		add(k, &eventlog.CurrentMemberAssignment{MemberEpoch: 3, State: eventlog.MemberStable, Active: tasks})
	}
	add(eventlog.Key{}, &eventlog.TargetAssignment{AssignmentEpoch: 3})
	return entries
}

func benchStore(b *testing.B) (*Store, Config) {
	b.Helper()
	cfg := testConfig(nil)
	cfg.Dir, cfg.CacheBytes = b.TempDir(), 0
	return open(b, cfg), cfg
}

// BenchmarkApply is the apply of one record in a long catch-up: batches of 5,000, one partition. "pending" has a
// transaction open, so that each batch keeps an index of its own changes.
func BenchmarkApply(b *testing.B) {
	for _, pending := range []bool{false, true} {
		b.Run(fmt.Sprintf("pending=%v", pending), func(b *testing.B) {
			const batch = 5000
			entries := benchEntries(1_000_000)
			s, _ := benchStore(b)
			if pending {
				e := entries[0]
				e.ProducerID, e.Transactional = 99, true
				must(b, s.Batch(0, batchOf([]eventlog.Entry{e}, 0, 1)))
			}
			b.ReportAllocs()
			b.ResetTimer()
			next := int64(0)
			for done := 0; done < b.N; done += batch {
				from := done % len(entries)
				chunk := entries[from:min(from+batch, len(entries))]
				for i := range chunk {
					chunk[i].Offset = next
					next++
				}
				must(b, s.Batch(0, batchOf(chunk, next, 1<<40)))
			}
			b.StopTimer()
			b.ReportMetric(float64(s.Stats().Bytes)/1e6, "MB")
			must(b, s.Close())
		})
	}
}

// BenchmarkApplySmall is the apply of a batch of one heartbeat's records, as a quiet log brings it.
func BenchmarkApplySmall(b *testing.B) {
	entries := benchEntries(100_000)
	s, _ := benchStore(b)
	next := int64(0)
	for b.Loop() {
		e := entries[next%100_000]
		e.Offset = next
		next++
		must(b, s.Batch(0, batchOf([]eventlog.Entry{e}, next, next)))
	}
	must(b, s.Close())
}

func filled(b *testing.B, groups int) (*Store, Config) {
	s, cfg := benchStore(b)
	offsets := make([]int64, 3)
	for i := range groups {
		p := int32(i % 3)
		entries := benchGroup(offsets[p], fmt.Sprintf("application-%05d", i))
		offsets[p] += int64(len(entries))
		must(b, s.Batch(p, batchOf(entries, offsets[p], offsets[p])))
	}
	return s, cfg
}

// BenchmarkHydrate reads a group of 33 records among 20,000 groups.
func BenchmarkHydrate(b *testing.B) {
	s, cfg := filled(b, 20_000)
	must(b, s.Close())
	s = open(b, cfg)
	i := 0
	for b.Loop() {
		i = (i + 7919) % 20_000
		records, err := s.Group(int32(i%3), fmt.Sprintf("application-%05d", i))
		if err != nil || len(records) != 33 {
			b.Fatalf("%d records, %v", len(records), err)
		}
	}
	must(b, s.Close())
}

// BenchmarkOffset reads one committed offset, and one that does not exist.
func BenchmarkOffset(b *testing.B) {
	s, _ := benchStore(b)
	entries := benchEntries(1_000_000)
	for i := 0; i < len(entries); i += 5000 {
		must(b, s.Batch(0, batchOf(entries[i:i+5000], int64(i+5000), 1_000_000)))
	}
	must(b, s.engine.flush())
	for name, topic := range map[string]string{"there": "orders-repartition", "missing": "no-such-topic"} {
		b.Run(name, func(b *testing.B) {
			i := 0
			for b.Loop() {
				i = (i + 7919) % 20_000
				if _, ok, err := s.Offset(0, fmt.Sprintf("application-%05d", i), topic, int32(i%50)); err != nil || ok != (name == "there") {
					b.Fatal(ok, err)
				}
			}
		})
	}
	must(b, s.Close())
}

// BenchmarkOpen opens a store with 20,000 groups of ten members and lists those with members, as a takeover does.
func BenchmarkOpen(b *testing.B) {
	s, cfg := filled(b, 20_000)
	must(b, s.Close())
	var opened, listed time.Duration
	n := 0
	for b.Loop() {
		start := time.Now()
		s = open(b, cfg)
		opened += time.Since(start)
		start = time.Now()
		n = 0
		for p := range int32(3) {
			must(b, s.GroupsWithMembers(p, func(string) bool { n++; return true }))
		}
		listed += time.Since(start)
		must(b, s.Close())
	}
	if n != 20_000 {
		b.Fatalf("%d groups", n)
	}
	b.ReportMetric(float64(opened.Milliseconds())/float64(b.N), "ms/open")
	b.ReportMetric(float64(listed.Milliseconds())/float64(b.N), "ms/list")
}

// BenchmarkHydrateShard reads the groups with members of a partition: 400 among 2,000, as a takeover does.
func BenchmarkHydrateShard(b *testing.B) {
	s, _ := benchStore(b)
	offset := int64(0)
	for i := range 2000 {
		entries := benchGroup(offset, fmt.Sprintf("application-%05d", i))
		if i%5 > 0 { // no members
			entries = append(entries[:2:2], entries[len(entries)-1])
			for j := range entries {
				entries[j].Offset = offset + int64(j)
			}
		}
		must(b, s.Batch(0, batchOf(entries, offset+int64(len(entries)), offset+int64(len(entries)))))
		offset += int64(len(entries))
	}
	must(b, s.engine.flush())
	b.Run("each", func(b *testing.B) {
		for range b.N {
			var ids []string
			must(b, s.GroupsWithMembers(0, func(id string) bool { ids = append(ids, id); return true }))
			for _, id := range ids {
				if _, err := s.Group(0, id); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		for range b.N {
			n := 0
			must(b, s.GroupsToHydrate(0, func(string, []Stored) bool { n++; return true }))
			if n != 400 {
				b.Fatal(n)
			}
		}
	})
}
