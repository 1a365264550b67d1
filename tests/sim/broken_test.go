package sim

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
)

// broken is a log of one group, written by hand, and what clients say of it.
type broken struct {
	*checker
	next int64
}

const brokenGroup = "group-0"

// put appends records as one batch. A key without a value is a tombstone.
func (b *broken) put(records ...eventlog.Record) {
	var batch eventlog.Batch
	for _, r := range records {
		r.Key.Group = brokenGroup
		raw := eventlog.Encode(r)
		batch.Entries = append(batch.Entries, eventlog.Entry{Offset: b.next, ProducerID: -1, ProducerEpoch: -1, Key: raw.Key, Value: raw.Value})
		b.next++
	}
	batch.Next, batch.HighWatermark = b.next, b.next
	if err := b.Batch(0, batch); err != nil {
		panic(err)
	}
}

func groupAt(epoch int32) eventlog.Record {
	return eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeGroup}, Value: &eventlog.Group{
		Epoch: epoch, ValidatedTopologyEpoch: eventlog.EpochNone, StoredDescriptionTopologyEpoch: eventlog.EpochNone, FailedDescriptionTopologyEpoch: eventlog.EpochNone,
	}}
}

func targetAt(epoch int32) eventlog.Record {
	return eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeTargetAssignment}, Value: &eventlog.TargetAssignment{AssignmentEpoch: epoch}}
}

func memberOf(id, process string) eventlog.Record {
	return eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeMember, Member: id}, Value: &eventlog.Member{ProcessID: process}}
}

func current(id string, v eventlog.CurrentMemberAssignment) eventlog.Record {
	return eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeCurrentMemberAssignment, Member: id}, Value: &v}
}

func gone(t eventlog.Type, member string) eventlog.Record {
	return eventlog.Record{Key: eventlog.Key{Type: t, Member: member}}
}

func offsetOf(partition int32, topic byte, offset int64) eventlog.Record {
	return eventlog.Record{
		Key:   eventlog.Key{Type: eventlog.TypeOffsetCommit, Topic: source, Partition: partition},
		Value: &eventlog.OffsetCommit{Offset: offset, LeaderEpoch: -1, TopicID: [16]byte{15: topic}, ExpireTimestamp: -1},
	}
}

// converting is the record of the empty group on its way from one protocol to the other.
func converting(epoch int32, c eventlog.Conversion) eventlog.Record {
	r := groupAt(epoch)
	r.Value.(*eventlog.Group).Conversion = c
	return r
}

// standing is an offset of partition 0 of the topic that is there.
func (b *broken) standing(offset int64) eventlog.Record {
	r := offsetOf(0, 0, offset)
	t, _ := b.w.cluster.now(source)
	r.Value.(*eventlog.OffsetCommit).TopicID = t.ID
	return r
}

var inZero = topicPartition{source, 0}

// atCluster is the same offset as the cluster's coordinator has it.
func (b *broken) atCluster(offset int64) committed {
	t, _ := b.w.cluster.now(source)
	return committed{t.ID, offset}
}

// copies: a conversion of the replica commits an offset at the cluster, within its lease.
func (b *broken) copies(offset int64) {
	b.theirCommit(brokenGroup, inZero, b.atCluster(offset), &looked{&conversion{w: b.w, r: b.w.replicas[0]}, time.Now()})
}

// emptied takes all members out.
func (b *broken) emptied() {
	b.put(gone(eventlog.TypeCurrentMemberAssignment, "m1"), gone(eventlog.TypeMember, "m1"),
		gone(eventlog.TypeCurrentMemberAssignment, "m2"), gone(eventlog.TypeMember, "m2"), groupAt(3), targetAt(3))
}

// removed removes the group, and its offset where it has one.
func (b *broken) removed() {
	b.put(gone(eventlog.TypeTargetAssignment, ""), gone(eventlog.TypeGroup, ""))
}

func noOffset() eventlog.Record {
	return eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeOffsetCommit, Topic: source}}
}

// ids are tasks of a subtopology, given at epoch 2.
func ids(sub string, partitions ...int32) []eventlog.TaskIDs {
	epochs := make([]int32, len(partitions))
	for i := range epochs {
		epochs[i] = 2
	}
	return []eventlog.TaskIDs{{SubtopologyID: sub, Partitions: partitions, Epochs: epochs}}
}

// begun is a group of two members of one process, at epoch 2: m1 has task 0_0, m2 task 1_0.
func (b *broken) begun() {
	b.put(memberOf("m1", "p"), memberOf("m2", "p"), groupAt(2), targetAt(2),
		current("m1", eventlog.CurrentMemberAssignment{MemberEpoch: 2, Active: ids(sourced, 0)}),
		current("m2", eventlog.CurrentMemberAssignment{MemberEpoch: 2, Active: ids(stateful, 0)}))
}

// TestBrokenHistoriesAreSeen: each check of the checker sees the history that breaks it, and the one beside it that does not is fine.
func TestBrokenHistoriesAreSeen(t *testing.T) {
	topic7 := [16]byte{15: 7}
	for _, c := range []struct {
		name string
		want string // "": nothing is wrong
		run  func(b *broken)
	}{
		{"begun", "", func(b *broken) {}},
		{"group epoch goes back", "group epoch went back from 2 to 1", func(b *broken) { b.put(groupAt(1), targetAt(2)) }},
		{"group epoch goes on", "", func(b *broken) { b.put(groupAt(3)) }},
		{"assignment epoch goes back", "assignment epoch went back from 2 to 1", func(b *broken) { b.put(targetAt(1)) }},
		{"assignment beyond the group", "assignment epoch 3 is beyond the group epoch 2", func(b *broken) { b.put(targetAt(3)) }},
		{"member epoch goes back", "epoch of member m1 went back from 2 to 1", func(b *broken) {
			b.put(current("m1", eventlog.CurrentMemberAssignment{MemberEpoch: 1, Active: ids(sourced, 0)}))
		}},
		{"member beyond the assignment", "m1 is at epoch 3, beyond the assignment's 2", func(b *broken) {
			b.put(current("m1", eventlog.CurrentMemberAssignment{MemberEpoch: 3, Active: ids(sourced, 0)}))
		}},
		{"active twice", "active task 0_0 belongs to m1 and m2", func(b *broken) {
			b.put(memberOf("m2", "q"), current("m2", eventlog.CurrentMemberAssignment{MemberEpoch: 2, Active: ids(sourced, 0)}))
		}},
		{"active and still to be given up", "active task 1_0 belongs to m2 and m3", func(b *broken) {
			b.put(current("m2", eventlog.CurrentMemberAssignment{MemberEpoch: 2, State: eventlog.MemberUnrevokedTasks, ActivePendingRevocation: ids(stateful, 0)}),
				memberOf("m3", "q"), current("m3", eventlog.CurrentMemberAssignment{MemberEpoch: 2, Active: ids(stateful, 0)}))
		}},
		{"given up, then active elsewhere", "", func(b *broken) {
			b.put(current("m2", eventlog.CurrentMemberAssignment{MemberEpoch: 2}),
				memberOf("m3", "q"), current("m3", eventlog.CurrentMemberAssignment{MemberEpoch: 2, Active: ids(stateful, 0)}))
		}},
		{"twice in a process", "m1 and m2 of one process (p) both have task 0_0", func(b *broken) {
			b.put(current("m2", eventlog.CurrentMemberAssignment{MemberEpoch: 2, Standby: ids(sourced, 0)}))
		}},
		{"standby in another process", "", func(b *broken) {
			b.put(memberOf("m3", "q"), current("m3", eventlog.CurrentMemberAssignment{MemberEpoch: 2, Standby: ids(sourced, 0)}))
		}},
		{"assignment of nobody", "m3 has an assignment and is no member", func(b *broken) {
			b.put(current("m3", eventlog.CurrentMemberAssignment{MemberEpoch: 2}))
		}},
		{"taken without asking", "task 0_0 is taken from m1, which works on it", func(b *broken) {
			b.w.clients = append(b.w.clients, &client{w: b.w, group: brokenGroup, id: "m1", epoch: 2, alive: true, owned: tasks{task{sourced, 0}: false}})
			b.put(current("m1", eventlog.CurrentMemberAssignment{MemberEpoch: 2}))
		}},
		{"told to give up", "", func(b *broken) {
			b.w.clients = append(b.w.clients, &client{w: b.w, group: brokenGroup, id: "m1", epoch: 2, alive: true, owned: tasks{task{sourced, 0}: false}})
			b.put(current("m1", eventlog.CurrentMemberAssignment{MemberEpoch: 2, State: eventlog.MemberUnrevokedTasks, ActivePendingRevocation: ids(sourced, 0)}))
		}},
		{"empty with unequal epochs", "empty, with group epoch 3 and assignment epoch 2", func(b *broken) {
			b.put(gone(eventlog.TypeCurrentMemberAssignment, "m1"), gone(eventlog.TypeMember, "m1"),
				gone(eventlog.TypeCurrentMemberAssignment, "m2"), gone(eventlog.TypeMember, "m2"), groupAt(3))
		}},
		{"emptied", "", func(b *broken) {
			b.put(gone(eventlog.TypeCurrentMemberAssignment, "m1"), gone(eventlog.TypeMember, "m1"),
				gone(eventlog.TypeCurrentMemberAssignment, "m2"), gone(eventlog.TypeMember, "m2"), groupAt(3), targetAt(3))
		}},
		{"removed with members", "Apply: tombstone of group group-0: it has 2 members", func(b *broken) {
			b.put(gone(eventlog.TypeTargetAssignment, ""), gone(eventlog.TypeGroup, ""))
		}},
		{"tombstones in a wrong order", "Apply: tombstone of member m1", func(b *broken) { b.put(gone(eventlog.TypeMember, "m1")) }},
		{"offset goes back", "committed offset of in-0 went back from 5 of topic 7 to 4 of topic 7", func(b *broken) {
			b.put(offsetOf(0, 7, 5))
			b.put(offsetOf(0, 7, 4))
		}},
		{"offset of a topic that was made again", "", func(b *broken) {
			b.put(offsetOf(0, 7, 5))
			b.put(offsetOf(0, 8, 1))
		}},
		{"a commit that is nowhere", "the commit of 6 of topic 7 to in-0 was acknowledged, and the log has it not", func(b *broken) {
			b.put(offsetOf(0, 7, 5))
			b.ackedOffset(brokenGroup, source, 0, topic7, 6, 0)
		}},
		{"an older offset is fetched", "m1 fetched 5 for in-0 although 6 was acknowledged before", func(b *broken) {
			b.put(offsetOf(0, 7, 5), offsetOf(0, 7, 6))
			b.ackedOffset(brokenGroup, source, 0, topic7, 6, 0)
			b.fetched(brokenGroup, "m1", source, 0, topic7, b.floor(brokenGroup, source, 0, topic7), 5, b.arrival(brokenGroup, source, 0, topic7))
		}},
		{"none is fetched", "m1 fetched -1 for in-0 although 6 was acknowledged before", func(b *broken) {
			b.put(offsetOf(0, 7, 6))
			b.ackedOffset(brokenGroup, source, 0, topic7, 6, 0)
			b.fetched(brokenGroup, "m1", source, 0, topic7, b.floor(brokenGroup, source, 0, topic7), -1, b.arrival(brokenGroup, source, 0, topic7))
		}},
		{"less than what is in the log is fetched", "m1 fetched 5 for in-0, and the log had 6 when it was asked", func(b *broken) {
			b.put(offsetOf(0, 7, 5))
			b.put(offsetOf(0, 7, 6)) // not acknowledged
			b.fetched(brokenGroup, "m1", source, 0, topic7, -1, 5, b.arrival(brokenGroup, source, 0, topic7))
		}},
		{"none is fetched of what is removed meanwhile", "", func(b *broken) {
			b.put(offsetOf(0, 7, 6))
			had := b.arrival(brokenGroup, source, 0, topic7)
			b.put(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeOffsetCommit, Topic: source}})
			b.fetched(brokenGroup, "m1", source, 0, topic7, -1, -1, had)
		}},
		{"less is fetched of what is removed, and committed again, meanwhile", "", func(b *broken) {
			b.put(offsetOf(0, 7, 6))
			b.ackedOffset(brokenGroup, source, 0, topic7, 6, 0)
			had, floor := b.arrival(brokenGroup, source, 0, topic7), b.floor(brokenGroup, source, 0, topic7)
			b.put(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeOffsetCommit, Topic: source}})
			b.put(offsetOf(0, 7, 1))
			b.ackedOffset(brokenGroup, source, 0, topic7, 1, 0)
			b.fetched(brokenGroup, "m1", source, 0, topic7, floor, 1, had)
		}},
		{"an offset that nobody committed is fetched", "m1 fetched 7 for in-0, which the log has not", func(b *broken) {
			b.put(offsetOf(0, 7, 6))
			b.fetched(brokenGroup, "m1", source, 0, topic7, -1, 7, arrival{offset: -1})
		}},
		{"the offset of another topic is fetched", "m1 fetched 6 for in-0, which the log has not", func(b *broken) {
			b.put(offsetOf(0, 7, 6))
			b.fetched(brokenGroup, "m1", source, 0, [16]byte{15: 8}, -1, 6, arrival{offset: -1})
		}},
		{"the newest is fetched", "", func(b *broken) {
			b.put(offsetOf(0, 7, 6))
			b.ackedOffset(brokenGroup, source, 0, topic7, 6, 0)
			b.fetched(brokenGroup, "m1", source, 0, topic7, b.floor(brokenGroup, source, 0, topic7), 6, b.arrival(brokenGroup, source, 0, topic7))
		}},
		{"an epoch that is nowhere", "m1 was told epoch 3, which the log has not", func(b *broken) { b.ackedEpoch(brokenGroup, "m1", 3, 0) }},
		{"a task that somebody works on is taken", "m3 takes task 0_0, and m1 works on it at its epoch 2", func(b *broken) {
			m1 := &client{w: b.w, group: brokenGroup, id: "m1", epoch: 2, alive: true, owned: tasks{task{sourced, 0}: false}}
			m3 := &client{w: b.w, group: brokenGroup, id: "m3", epoch: 2, alive: true}
			b.w.clients = append(b.w.clients, m1, m3)
			m3.take(task{sourced, 0})
		}},
		{"converted to a classic group", "", func(b *broken) {
			b.put(b.standing(5))
			b.emptied()
			b.put(converting(3, eventlog.ConversionBegun))
			b.copies(5)
			b.put(noOffset(), gone(eventlog.TypeTargetAssignment, ""), gone(eventlog.TypeGroup, ""))
			b.theirCommit(brokenGroup, inZero, b.atCluster(6), nil)
		}},
		{"converted without its offset", "the conversion to a classic group lost the offset of in-0", func(b *broken) {
			b.put(b.standing(5))
			b.emptied()
			b.put(converting(3, eventlog.ConversionBegun))
			b.put(noOffset(), gone(eventlog.TypeTargetAssignment, ""), gone(eventlog.TypeGroup, ""))
		}},
		{"marked as copied, and it is not", "the conversion to a classic group lost the offset of in-0", func(b *broken) {
			b.put(b.standing(5))
			b.emptied()
			b.put(converting(3, eventlog.ConversionBegun))
			b.put(converting(3, eventlog.ConversionCopied))
		}},
		{"an old offset is copied", "a conversion commits 4 of topic", func(b *broken) {
			b.put(b.standing(5))
			b.emptied()
			b.put(converting(3, eventlog.ConversionBegun))
			b.copies(4)
		}},
		{"what a conversion sends comes after its end", "and the group is not being converted", func(b *broken) {
			b.put(b.standing(5))
			b.emptied()
			b.copies(5)
		}},
		{"a member joins on the way to a classic group", "m3 joins, and the group is on its way to a classic one", func(b *broken) {
			b.emptied()
			b.put(converting(3, eventlog.ConversionBegun))
			b.put(memberOf("m3", "q"))
		}},
		{"a commit on the way to a classic group", "offset of in-0 is committed, and the group is on its way to a classic one", func(b *broken) {
			b.emptied()
			b.put(converting(3, eventlog.ConversionBegun))
			b.put(b.standing(5))
		}},
		{"a classic member commits in a streams group", "the cluster takes 5 of topic 1 for in-0 from a classic member, and the group is a streams group", func(b *broken) {
			b.theirCommit(brokenGroup, inZero, b.atCluster(5), nil)
		}},
		{"taken over", "", func(b *broken) {
			b.emptied()
			b.removed()
			b.theirCommit(brokenGroup, inZero, b.atCluster(5), nil)
			b.put(b.standing(5), converting(2, eventlog.ConversionTaken), targetAt(2))
		}},
		{"taken over without its offset", "a streams group was made over a classic one (taken over: true), and the offset of in-0 is lost", func(b *broken) {
			b.emptied()
			b.removed()
			b.theirCommit(brokenGroup, inZero, b.atCluster(5), nil)
			b.put(converting(2, eventlog.ConversionTaken), targetAt(2))
		}},
		{"taken over, and there again when it is removed", "removed, and there again as a classic group with 5 of topic 1 for in-0", func(b *broken) {
			b.emptied()
			b.removed()
			b.theirCommit(brokenGroup, inZero, b.atCluster(5), nil)
			b.put(b.standing(5), converting(2, eventlog.ConversionTaken), targetAt(2))
			b.put(converting(2, eventlog.ConversionNone))
			b.put(noOffset(), gone(eventlog.TypeTargetAssignment, ""), gone(eventlog.TypeGroup, ""))
		}},
		{"the cluster's offset goes back", "committed offset of in-0 at the cluster went back from 5 of topic 1 to 4 of topic 1", func(b *broken) {
			b.emptied()
			b.removed()
			b.theirCommit(brokenGroup, inZero, b.atCluster(5), nil)
			b.theirCommit(brokenGroup, inZero, b.atCluster(4), nil)
		}},
		{"the task of one that was fenced is taken", "", func(b *broken) {
			m1 := &client{w: b.w, group: brokenGroup, id: "m1", epoch: 1, alive: true, owned: tasks{task{sourced, 0}: false}}
			m3 := &client{w: b.w, group: brokenGroup, id: "m3", epoch: 2, alive: true}
			b.w.clients = append(b.w.clients, m1, m3)
			m3.take(task{sourced, 0})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1, options{})
				defer w.log.Close()
				b := &broken{checker: w.checker}
				b.begun()
				c.run(b)
				if c.want == "" && w.violation != "" || c.want != "" && !strings.Contains(w.violation, c.want) {
					t.Errorf("violation %q, want %q", w.violation, c.want)
				}
			})
		})
	}
}
