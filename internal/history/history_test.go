package history

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"

	"streamkeeper/eventlog"
)

// at makes ops with times in milliseconds.
func at(begin, end int, op Op) Op {
	op.Begin, op.End = time.Duration(begin)*time.Millisecond, time.Duration(end)*time.Millisecond
	op.Group, op.Outcome = "g", Done
	if op.Node == 0 {
		op.Node = NodeUnknown
	}
	switch op.Kind {
	case Commit, Fetch, Remove:
		op.Topic = "in"
	}
	return op
}

func unanswered(begin int, op Op) Op {
	op = at(begin, begin+1, op)
	op.Outcome = Unknown
	return op
}

func commit(offset int64) Op { return Op{Kind: Commit, Offset: offset} }
func fetch(offset int64) Op  { return Op{Kind: Fetch, Offset: offset} }
func beat(member string, sent, epoch int32) Op {
	return Op{Kind: Heartbeat, Member: member, Sent: sent, Epoch: epoch}
}

func rules(bad []Violation) []string {
	var out []string
	for _, v := range bad {
		if !slices.Contains(out, v.Rule) {
			out = append(out, v.Rule)
		}
	}
	return out
}

func wantRules(t *testing.T, bad []Violation, want ...string) {
	t.Helper()
	if got := rules(bad); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q\n%v", got, want, bad)
	}
	for _, v := range bad {
		if v.What == "" || v.String() == "" {
			t.Errorf("a violation says nothing: %+v", v)
		}
	}
}

func TestCheckFindsWhatCantBe(t *testing.T) {
	for _, c := range []struct {
		name  string
		h     History
		stale time.Duration
		want  []string
	}{
		{name: "nothing"},
		{name: "a commit is read back", h: History{Ops: []Op{at(1, 2, commit(5)), at(3, 4, fetch(5))}}},
		{name: "nothing is committed at first", h: History{Ops: []Op{at(1, 2, fetch(None)), at(3, 4, commit(5)), at(5, 6, fetch(5))}}},
		{name: "an acknowledged commit is lost", h: History{Ops: []Op{at(1, 2, commit(5)), at(3, 4, fetch(None))}}, want: []string{RuleLinearizable}},
		{name: "an acknowledged commit went back", h: History{Ops: []Op{at(1, 2, commit(5)), at(3, 4, commit(6)), at(5, 6, fetch(5))}}, want: []string{RuleLinearizable}},
		{name: "two fetches see it come and go", h: History{Ops: []Op{at(1, 9, commit(5)), at(2, 3, fetch(5)), at(4, 5, fetch(None))}}, want: []string{RuleLinearizable}},
		{name: "a fetch under way may see either", h: History{Ops: []Op{at(1, 9, commit(5)), at(2, 3, fetch(None)), at(4, 5, fetch(5))}}},
		{name: "without an answer it may come later", h: History{Ops: []Op{unanswered(1, commit(5)), at(3, 4, fetch(None)), at(5, 6, fetch(5))}}},
		{name: "and does not go again", h: History{Ops: []Op{unanswered(1, commit(5)), at(3, 4, fetch(5)), at(5, 6, fetch(None))}}, want: []string{RuleLinearizable}},
		{name: "a late effect undoes an acknowledged commit", h: History{Ops: []Op{unanswered(1, commit(5)), at(3, 4, commit(6)), at(5, 6, fetch(5))}}},
		{name: "what was never committed", h: History{Ops: []Op{at(1, 2, commit(5)), at(3, 4, fetch(7))}}, want: []string{RuleLinearizable}},
		{name: "removed", h: History{Ops: []Op{at(1, 2, commit(5)), at(3, 4, Op{Kind: Remove}), at(5, 6, fetch(None))}}},
		{name: "removed, and back", h: History{Ops: []Op{at(1, 2, commit(5)), at(3, 4, Op{Kind: Remove}), at(5, 6, fetch(5))}}, want: []string{RuleLinearizable}},

		{name: "epochs grow", h: History{Ops: []Op{at(1, 2, beat("a", 0, 2)), at(3, 4, beat("a", 2, 3))}}},
		{name: "a member's epoch goes back", h: History{Ops: []Op{at(1, 2, beat("a", 0, 2)), at(3, 4, beat("a", 2, 3)), at(5, 6, beat("a", 2, 2))}}, want: []string{RuleMemberEpoch}},
		{name: "a member joins again after the group was removed", h: History{Ops: []Op{at(1, 2, beat("a", 0, 4)), at(3, 4, beat("a", 0, 2)), at(5, 6, beat("a", 2, 3))}}},
		{name: "its epoch goes back in its second membership", h: History{Ops: []Op{at(1, 2, beat("a", 0, 4)), at(3, 4, beat("a", 0, 2)), at(5, 6, beat("a", 2, 1))}}, want: []string{RuleMemberEpoch}},
		{name: "within what may be stale", stale: 10 * time.Millisecond, h: History{Ops: []Op{at(1, 2, beat("a", 0, 2)), at(3, 4, beat("a", 2, 3)), at(5, 6, beat("a", 2, 2))}}},
		{name: "answers that cross", h: History{Ops: []Op{at(1, 2, beat("a", 0, 2)), at(3, 6, beat("a", 2, 2)), at(4, 5, beat("a", 2, 3))}}},
		{name: "it joins again", h: History{Ops: []Op{at(1, 2, beat("a", 0, 4)), at(3, 4, beat("a", 0, 2))}}},
		{name: "a group's epoch goes back", h: History{Ops: []Op{at(1, 2, Op{Kind: Describe, Epoch: 7}), at(3, 4, Op{Kind: Describe, Epoch: 6})}}, want: []string{RuleGroupEpoch}},
		{name: "a group is behind its member", h: History{Ops: []Op{at(1, 2, beat("a", 0, 7)), at(3, 4, Op{Kind: Describe, Epoch: 6})}}, want: []string{RuleGroupEpoch}},

		{name: "two owners, one of them forgotten", h: History{Holds: []Hold{hold("a", 1, 20), hold("b", 10, 20)}, Ops: []Op{at(2, 3, beat("a", 2, 2))}}},
		{name: "two owners, both recognized", h: History{Holds: []Hold{hold("a", 1, 20), hold("b", 10, 20)}, Ops: []Op{at(2, 3, beat("a", 2, 2)), at(12, 13, beat("a", 2, 2))}}, want: []string{RuleOneOwner}},
		{name: "two owners, the former commits", h: History{Holds: []Hold{hold("a", 1, 20), hold("b", 10, 20)},
			Ops: []Op{at(12, 13, Op{Kind: Commit, Offset: 1, Member: "a", Sent: 2})}}, want: []string{RuleOneOwner}},
		{name: "one after the other", h: History{Holds: []Hold{hold("a", 1, 10), hold("b", 10, 20)}, Ops: []Op{at(2, 3, beat("a", 2, 2)), at(12, 13, beat("a", 2, 2))}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantRules(t, c.h.Check(Options{Stale: c.stale}), c.want...)
		})
	}
}

func hold(member string, from, to int) Hold {
	return Hold{Group: "g", Task: "0_0", Member: member, From: time.Duration(from) * time.Millisecond, To: time.Duration(to) * time.Millisecond}
}

// TestTheRecorderTakesOutcomes: what a recorder is told comes out as it was, and twice is a mistake.
func TestTheRecorderTakesOutcomes(t *testing.T) {
	now := time.Duration(0)
	r := NewRecorder(func() time.Duration { now += time.Millisecond; return now })
	a := r.Begin(Op{Kind: Commit, Group: "g", Topic: "in", Offset: 1})
	b := r.Begin(Op{Kind: Fetch, Group: "g", Topic: "in"})
	c := r.Begin(Op{Kind: Commit, Group: "g", Topic: "in", Offset: 3})
	r.Begin(Op{Kind: Commit, Group: "g", Topic: "in", Offset: 4})
	r.Begin(Op{Kind: Commit, Group: "g", Topic: "in", Offset: 5}).Failed(fmt.Errorf("commit: %w", kerr.NotCoordinator))
	r.Begin(Op{Kind: Commit, Group: "g", Topic: "in", Offset: 6}).Failed(kerr.UnknownServerError)
	r.Begin(Op{Kind: Commit, Group: "g", Topic: "in", Offset: 7}).Failed(kerr.UnknownMemberID)
	h := r.Take("g", "0_0", "m")
	a.Unknown(errors.New("time-out"))
	b.Done(func(o *Op) { o.Offset, o.Node = 1, 7 })
	c.Refused(errors.New("NOT_COORDINATOR"))
	h.Drop()
	h.Drop()
	got := r.History()
	var outcomes []Outcome
	for _, o := range got.Ops {
		outcomes = append(outcomes, o.Outcome)
	}
	if want := []Outcome{Unknown, Done, Refused, Pending, Unknown, Unknown, Refused}; !slices.Equal(outcomes, want) {
		t.Errorf("outcomes %v, want %v", outcomes, want)
	}
	if o := got.Ops[1]; o.Node != 7 || o.Offset != 1 || o.Begin >= o.End || got.Ops[0].Node != NodeUnknown {
		t.Errorf("ops %v", got.Ops)
	}
	if len(got.Holds) != 1 || got.Holds[0].From >= got.Holds[0].To {
		t.Errorf("holds %+v", got.Holds)
	}
	defer func() {
		if recover() == nil {
			t.Error("a request could end twice")
		}
	}()
	a.Done(nil)
}

// TestARegisterAlwaysPasses draws histories of a register that is right, and changes one answer so that it can't be.
func TestARegisterAlwaysPasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h History
		state, now := None, 0
		var fetches []int
		for i := range rapid.IntRange(1, 40).Draw(t, "ops") {
			begin := now + rapid.IntRange(0, 2).Draw(t, "gap")
			took := rapid.IntRange(1, 8).Draw(t, "took")
			now = begin + rapid.IntRange(0, took).Draw(t, "when") // it has its effect here
			op := fetch(state)
			if rapid.Bool().Draw(t, "commit") {
				op = commit(int64(i))
				state = int64(i)
				if rapid.IntRange(0, 5).Draw(t, "answered") == 0 {
					h.Ops = append(h.Ops, unanswered(begin, op))
					continue
				}
			} else {
				fetches = append(fetches, len(h.Ops))
			}
			h.Ops = append(h.Ops, at(begin, begin+took, op))
		}
		if bad := h.Check(Options{}); len(bad) > 0 {
			t.Fatalf("a register that is right: %v", bad)
		}
		if len(fetches) == 0 {
			return
		}
		h.Ops[fetches[rapid.IntRange(0, len(fetches)-1).Draw(t, "which")]].Offset = 1000
		if !slices.Contains(rules(h.Check(Options{})), RuleLinearizable) {
			t.Fatal("an offset that nobody committed was not found")
		}
	})
}

// logOf builds a log of one partition: claims (node, producer id, epoch), and commits by a producer.
type logOf struct {
	entries  []eventlog.Entry
	pid      int64
	epoch    int16
	node     int32
	instance string
}

func (l *logOf) add(raw eventlog.Raw, pid int64, epoch int16) {
	l.entries = append(l.entries, eventlog.Entry{Offset: int64(len(l.entries)), ProducerID: pid, ProducerEpoch: epoch, Key: raw.Key, Value: raw.Value})
}

func (l *logOf) claim(node int32, pid int64, epoch int16) *logOf {
	l.pid, l.epoch, l.node = pid, epoch, node
	l.add(eventlog.Encode(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeOwnership},
		Value: &eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: node, Address: "h:1", ProducerID: pid, ProducerEpoch: epoch, Claim: -1}}), pid, epoch)
	return l
}

func (l *logOf) commit(offset int64) *logOf { return l.commitBy(offset, l.pid, l.epoch) }

func (l *logOf) commitBy(offset int64, pid int64, epoch int16) *logOf {
	l.add(eventlog.Encode(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: "g", Topic: "in"},
		Value: &eventlog.OffsetCommit{Offset: offset, LeaderEpoch: -1, ExpireTimestamp: -1}}), pid, epoch)
	return l
}

func (l *logOf) member(epoch int32) *logOf {
	l.add(eventlog.Encode(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeCurrentMemberAssignment, Group: "g", Member: "a"},
		Value: &eventlog.CurrentMemberAssignment{MemberEpoch: epoch}}), l.pid, l.epoch)
	return l
}

func (l *logOf) group(epoch int32) *logOf { return l.groupBy(epoch, l.pid, l.epoch) }

func (l *logOf) groupBy(epoch int32, pid int64, producerEpoch int16) *logOf {
	l.add(eventlog.Encode(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeGroup, Group: "g"}, Value: &eventlog.Group{Epoch: epoch}}), pid, producerEpoch)
	return l
}

// given has a member's current assignment be one active task, and tasks that it still has to give back; none of them: it is gone.
func (l *logOf) given(member string, active []int32, revoked ...int32) *logOf {
	l.add(eventlog.Encode(assignmentOf(member, active, revoked)), l.pid, l.epoch)
	return l
}

func assignmentOf(member string, active, revoked []int32) eventlog.Record {
	rec := eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeCurrentMemberAssignment, Group: "g", Member: member}}
	tasks := func(partitions []int32) []eventlog.TaskIDs {
		if len(partitions) == 0 {
			return nil
		}
		return []eventlog.TaskIDs{{SubtopologyID: "0", Partitions: partitions, Epochs: make([]int32, len(partitions))}}
	}
	if len(active)+len(revoked) > 0 {
		rec.Value = &eventlog.CurrentMemberAssignment{MemberEpoch: 1, State: eventlog.MemberStable, Active: tasks(active), ActivePendingRevocation: tasks(revoked)}
	}
	return rec
}

func (l *logOf) log() Log { return Log{0: l.entries} }

func TestCheckLogFindsWhatIsNotThere(t *testing.T) {
	by := func(node int32, op Op) Op { op.Node = node; return op }
	for _, c := range []struct {
		name string
		log  *logOf
		ops  []Op
		void int
		want []string
	}{
		{name: "all there", log: new(logOf).claim(1, 9, 0).commit(5).claim(2, 9, 1).commit(6),
			ops: []Op{at(1, 2, by(1, commit(5))), at(3, 4, by(2, commit(6)))}},
		{name: "nowhere", log: new(logOf).claim(1, 9, 0).commit(5), ops: []Op{at(1, 2, commit(6))}, want: []string{RuleInLog}},
		{name: "void", log: new(logOf).claim(1, 9, 0).claim(2, 9, 1).commitBy(5, 9, 0), ops: []Op{at(1, 2, commit(5))}, void: 1, want: []string{RuleInLog}},
		{name: "another producer id", log: new(logOf).claim(1, 9, 0).claim(2, 10, 0).commitBy(5, 9, 0), ops: []Op{at(1, 2, commit(5))}, void: 1, want: []string{RuleInLog}},
		{name: "a replaced producer id claims", log: new(logOf).claim(1, 9, 0).claim(2, 10, 0).claim(1, 9, 1).commitBy(5, 9, 1), ops: []Op{at(1, 2, commit(5))}, void: 1, want: []string{RuleInLog}},
		{name: "in the wrong order", log: new(logOf).claim(1, 9, 0).commit(6).commit(5), ops: []Op{at(1, 2, commit(5)), at(3, 4, commit(6))}, want: []string{RuleLogOrder}},
		{name: "at once in any order", log: new(logOf).claim(1, 9, 0).commit(6).commit(5), ops: []Op{at(1, 4, commit(5)), at(3, 5, commit(6))}},
		{name: "a repeated one counts once", log: new(logOf).claim(1, 9, 0).commit(5).commit(5).commit(6), ops: []Op{at(1, 2, commit(5)), at(3, 4, commit(6))}},
		{name: "two acknowledgements of one record", log: new(logOf).claim(1, 9, 0).commit(5), ops: []Op{at(1, 2, commit(5)), at(3, 4, commit(5))}, want: []string{RuleInLog}},
		{name: "acknowledged by another node", log: new(logOf).claim(1, 9, 0).commit(5), ops: []Op{at(1, 2, by(2, commit(5)))}, want: []string{RuleAnswerer}},
		{name: "a member's epoch", log: new(logOf).claim(1, 9, 0).member(3), ops: []Op{at(1, 2, beat("a", 0, 3))}},
		{name: "a member's epoch that is not there", log: new(logOf).claim(1, 9, 0).member(3), ops: []Op{at(1, 2, beat("a", 0, 4))}, want: []string{RuleInLog}},
		{name: "a member's epoch goes back in the log", log: new(logOf).claim(1, 9, 0).member(3).member(2), want: []string{RuleMemberEpoch}},
		{name: "a static member leaves", log: new(logOf).claim(1, 9, 0).member(3).member(-2)},
		{name: "a member's epoch begins anew when it was removed", log: new(logOf).claim(1, 9, 0).member(3).given("a", nil).member(2)},
		{name: "a group's epoch goes back in the log", log: new(logOf).claim(1, 9, 0).group(3).group(2), want: []string{RuleGroupEpoch}},
		{name: "a void one does not count", log: new(logOf).claim(1, 9, 0).group(3).claim(2, 9, 1).groupBy(2, 9, 0).group(4), void: 1},
		{name: "a task is given back, and given to another", log: new(logOf).claim(1, 9, 0).given("a", []int32{0, 1}).given("a", []int32{0}, 1).given("a", []int32{0}).given("b", []int32{1})},
		{name: "a task is given to another when its member has gone", log: new(logOf).claim(1, 9, 0).given("a", []int32{0, 1}).given("a", nil).given("b", []int32{0, 1})},
		{name: "a task is given to two", log: new(logOf).claim(1, 9, 0).given("a", []int32{0, 1}).given("b", []int32{1}), want: []string{RuleOneOwner}},
		{name: "a task is given on before it is given back", log: new(logOf).claim(1, 9, 0).given("a", []int32{0, 1}).given("a", []int32{0}, 1).given("b", []int32{1}), want: []string{RuleOneOwner}},
		{name: "before any claim", log: new(logOf).commit(5), void: 1, want: []string{RuleLog}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, bad := History{Ops: c.ops}.CheckLog(c.log.log())
			wantRules(t, bad, c.want...)
			if n := len(j.Void()); n != c.void {
				t.Errorf("%d void records, want %d", n, c.void)
			}
		})
	}
}
