package chaos

import (
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

// judgedOf is a log of one partition.
func judgedOf(records ...history.Stood) history.Judged {
	return history.Judged{Records: map[int32][]history.Stood{0: records}}
}

func stood(at time.Time, key eventlog.Key, value eventlog.Value) history.Stood {
	s := history.Stood{Record: eventlog.Record{Key: key, Value: value}}
	s.Timestamp = at.UnixMilli()
	return s
}

// TestApplicationsAreJudged: what the judge of applications is to find, and what it is not to.
func TestApplicationsAreJudged(t *testing.T) {
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	member := eventlog.Key{Type: eventlog.TypeMember, Group: "app", Member: "m"}
	joined := stood(at(0), member, &eventlog.Member{ClientID: "a-StreamThread-1-consumer"})
	offset := eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: "app", Topic: "in"}
	committed := func(n int64) history.Stood { return stood(at(1), offset, &eventlog.OffsetCommit{Offset: n}) }
	topology := stood(at(0), eventlog.Key{Type: eventlog.TypeTopology, Group: "app"},
		&eventlog.Topology{Subtopologies: []eventlog.Subtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}})
	assignment := func(member string) eventlog.Key {
		return eventlog.Key{Type: eventlog.TypeCurrentMemberAssignment, Group: "app", Member: member}
	}
	givenTask := func(member string, partition int32) history.Stood {
		return stood(at(1), assignment(member), &eventlog.CurrentMemberAssignment{Active: []eventlog.TaskIDs{{SubtopologyID: "0", Partitions: []int32{partition}}}})
	}
	given := func(member string) history.Stood { return givenTask(member, 0) }
	void := func(s history.Stood) history.Stood { s.Void = true; return s }
	made := func(seconds int, by string, offset, source int64) kafkatest.Seen {
		return kafkatest.Seen{Partition: 0, Offset: offset, Tag: kafkatest.Tag{By: by, Thread: by + "-StreamThread-1", Task: "0_0", Tenure: by + ".1",
			At: at(seconds).UnixMicro(), Source: kafkatest.Source{Topic: "in", Offset: source}}}
	}
	// a works from 1 to 20 s, b from 10 s on.
	overlap := []kafkatest.Seen{made(1, "a", 0, 0), made(10, "b", 1, 1), made(20, "a", 2, 1)}
	for _, c := range []struct {
		name   string
		seen   []kafkatest.Seen
		log    history.Judged
		skewed bool
		wrong  int
	}{
		{name: "one after the other", seen: []kafkatest.Seen{made(1, "a", 0, 0), made(2, "a", 1, 1), made(3, "b", 2, 2)}, log: judgedOf(joined, committed(1), committed(1), committed(3))},
		{name: "two owners", seen: overlap, log: judgedOf(joined), wrong: 2}, // by the log of the output, and by the clock
		{name: "two owners, one of them removed", seen: overlap, log: judgedOf(joined, stood(at(9), member, nil))},
		{name: "two owners, one removed afterwards", seen: overlap, log: judgedOf(joined, stood(at(15), member, nil)), wrong: 2},
		{name: "two owners, the removal is void", seen: overlap, log: judgedOf(joined, void(stood(at(9), member, nil))), wrong: 2},
		{name: "two owners, removed by a replica whose clock is wrong", seen: overlap, log: judgedOf(joined, stood(at(9).Add(clockSkew), member, nil)), skewed: true},
		{name: "two owners, removed at another time, no clock is wrong", seen: overlap, log: judgedOf(joined, stood(at(9).Add(clockSkew), member, nil)), wrong: 2},
		{name: "the former was paused, and removed, and what it had made came later", seen: []kafkatest.Seen{made(10, "b", 0, 0), made(1, "a", 1, 0), made(11, "b", 2, 1)}, log: judgedOf(joined, stood(at(9), member, nil))},
		{name: "what a former owner had made came later, and it was not removed", seen: []kafkatest.Seen{made(10, "b", 0, 0), made(1, "a", 1, 0), made(11, "b", 2, 1)}, log: judgedOf(joined), wrong: 1},
		{name: "out of order, and removed", seen: []kafkatest.Seen{made(1, "a", 0, 5), made(2, "a", 1, 4)}, log: judgedOf(joined, stood(at(1), member, nil)), wrong: 1},
		{name: "a commit goes back within a tenure", log: judgedOf(topology, given("a"), committed(3), committed(5), committed(4))},
		{name: "a commit goes back before what its owner began with", log: judgedOf(topology, given("a"), committed(3), committed(5), stood(at(2), assignment("a"), nil), given("b"), committed(6), committed(4)), wrong: 1},
		{name: "a member that was removed and has the task again", log: judgedOf(topology, given("a"), committed(5), stood(at(2), assignment("a"), nil), given("a"), committed(4)), wrong: 1},
		{name: "another task is given", log: judgedOf(topology, given("a"), committed(5), givenTask("b", 1), committed(4))},
		{name: "a void commit goes back", log: judgedOf(topology, given("a"), committed(5), stood(at(2), assignment("a"), nil), given("b"), void(committed(4)), committed(6))},
		{name: "a committed offset is removed", log: judgedOf(committed(5), stood(at(2), offset, nil)), wrong: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong, _ := judgeApp("app", c.seen, c.log, c.skewed)
			if len(wrong) != c.wrong {
				t.Errorf("found %d: %q, want %d", len(wrong), wrong, c.wrong)
			}
		})
	}
}

// TestApplicationLogsAreJudged: which lines of an application's log are a failure.
func TestApplicationLogsAreJudged(t *testing.T) {
	const (
		unknown = "[2026-11-30 10:33:47,214] ERROR [Consumer clientId=a-StreamThread-2-consumer, groupId=app-1] OffsetCommit failed with UNKNOWN_MEMBER_ID (org.apache.kafka.clients.consumer.internals.CommitRequestManager)"
		died    = "133466 app-1/b UNCAUGHT java.lang.IllegalStateException: Consumer is not subscribed to any topics or assigned any partitions"
	)
	for _, c := range []struct {
		line    string
		expired bool
		wrong   bool
	}{
		{line: "[2026-11-30 10:33:47,214] WARN something is away (org.apache.kafka.clients.NetworkClient)"},
		{line: "[2026-11-30 10:33:47,214] WARN Error: UNKNOWN_SERVER_ERROR (org.apache.kafka.clients.NetworkClient)", wrong: true},
		{line: "[2026-11-30 10:33:47,214] ERROR something else (org.apache.kafka.streams.KafkaStreams)", expired: true, wrong: true},
		{line: "\tat a.stack.Trace(Trace.java:7)"},
		{line: unknown},
		{line: "[2026-11-30 14:01:59,073] ERROR [Consumer clientId=a-StreamThread-1-consumer, groupId=app-1] OffsetCommit failed for member kw5g with stale member epoch error. Last epoch sent: undefined (org.apache.kafka.clients.consumer.internals.CommitRequestManager)"},
		{line: "[2026-11-30 14:01:59,073] ERROR [Consumer clientId=a-StreamThread-1-consumer, groupId=app-1] OffsetCommit failed for member kw5g with stale member epoch error. Last epoch sent: 7 (org.apache.kafka.clients.consumer.internals.CommitRequestManager)", wrong: true},
		{line: died, wrong: true},
		{line: "[2026-11-30 15:08:01,178] ERROR [Consumer clientId=b-StreamThread-1-consumer, groupId=app-1] StreamsGroupHeartbeatRequest failed due to INVALID_REQUEST: Topology can only be provided when (re-)joining. (org.apache.kafka.clients.consumer.internals.StreamsGroupHeartbeatRequestManager)", wrong: true},
		{line: "[2026-11-30 15:08:01,178] ERROR [Consumer clientId=b-StreamThread-1-consumer, groupId=app-1] Member fYhA with epoch -1 transitioned to fatal state (org.apache.kafka.clients.consumer.internals.StreamsMembershipManager)", expired: true},
		{line: died, expired: true},
		{line: "133466 app-1/b UNCAUGHT java.lang.NullPointerException", expired: true, wrong: true},
	} {
		if got := (&stage{expired: c.expired}).wrong(c.line); got != c.wrong {
			t.Errorf("%q after an expiry (%v): a failure %v, want %v", c.line, c.expired, got, c.wrong)
		}
	}
	if m := expired.FindStringSubmatch(unknown); m == nil || m[1] != "a-StreamThread-2-consumer" || m[2] != "app-1" {
		t.Errorf("found in %q: %q", unknown, m)
	}
}
