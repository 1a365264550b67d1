package offsets

import (
	"iter"
	"maps"
	"slices"

	"streamkeeper/eventlog"
)

// fakeView is a View of maps. All goes through them in no particular order, as a projection under an overlay does.
type fakeView struct {
	committed map[TopicPartition]eventlog.OffsetCommit
	open      map[TopicPartition]bool
}

func (v *fakeView) Get(topic string, p int32) (eventlog.OffsetCommit, bool) {
	c, ok := v.committed[TopicPartition{topic, p}]
	return c, ok
}
func (v *fakeView) All() iter.Seq2[TopicPartition, eventlog.OffsetCommit] {
	return maps.All(v.committed)
}
func (v *fakeView) Open(topic string, p int32) bool   { return v.open[TopicPartition{topic, p}] }
func (v *fakeView) OpenAll() iter.Seq[TopicPartition] { return maps.Keys(v.open) }

// apply is what the projection does with the records.
func (v *fakeView) apply(recs []eventlog.Record) {
	if v.committed == nil {
		v.committed = map[TopicPartition]eventlog.OffsetCommit{}
	}
	for _, r := range recs {
		tp := TopicPartition{r.Key.Topic, r.Key.Partition}
		if r.Value == nil {
			delete(v.committed, tp)
			delete(v.open, tp)
			continue
		}
		v.committed[tp] = *r.Value.(*eventlog.OffsetCommit)
	}
}

func (v *fakeView) keys() []TopicPartition {
	return slices.SortedFunc(maps.Keys(v.committed), compareTP)
}

func at(offset int64) eventlog.OffsetCommit {
	return eventlog.OffsetCommit{Offset: offset, LeaderEpoch: -1, ExpireTimestamp: -1}
}

func tombstonesOf(group string, tps ...TopicPartition) []eventlog.Record {
	recs := []eventlog.Record{}
	for _, tp := range tps {
		recs = append(recs, eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: group, Topic: tp.Topic, Partition: tp.Partition}})
	}
	return recs
}
