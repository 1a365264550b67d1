package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

// saboteur breaks what a replica relies on, for one commit of one group: the cluster that it writes to is not the cluster that it believes in.
type saboteur struct {
	group string
	// how does it to one append.
	how func(*saboteur, *kafkatest.Relay)
	// verdict is what the run must say of the commit in the end.
	verdict string

	mu  sync.Mutex
	did []string // the commit, as the verdict names it; more than one where the append had more
}

var saboteurs = []saboteur{
	{group: "group-0", how: loseOne, verdict: "is nowhere in the log"},
	{group: "group-1", how: unfenceOne, verdict: "is void"},
}

// absent is a group that nobody has.
const absent = "group-nobody-has"

// strikes says whether it is to be done to this append: the first that has a commit of the group.
func (s *saboteur) strikes(q *kmsg.ProduceRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.did) > 0 {
		return false
	}
	for _, t := range q.Topics {
		for _, p := range t.Partitions {
			for _, r := range history.RecordsOf(p.Records) {
				if v, ok := r.Value.(*eventlog.OffsetCommit); ok && r.Key.Group == s.group {
					s.did = append(s.did, fmt.Sprintf("commit %d of %s-%d", v.Offset, r.Key.Topic, r.Key.Partition))
				}
			}
		}
	}
	return len(s.did) > 0
}

func (s *saboteur) done() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.did)
}

// loseOne has an append acknowledged that is written nowhere.
func loseOne(s *saboteur, relay *kafkatest.Relay) {
	relay.SetAnswer(func(req kmsg.Request) kmsg.Response {
		q, ok := req.(*kmsg.ProduceRequest)
		if !ok || !s.strikes(q) {
			return nil
		}
		return kafkatest.ProduceAnswer(q, func(_ kmsg.ProduceRequestTopicPartition, a *kmsg.ProduceResponseTopicPartition) {
			a.BaseOffset = 1 << 40
		})
	})
}

// unfenceOne has an append written without its producer id: a cluster without a fence takes it from anybody, and no reader counts it.
func unfenceOne(s *saboteur, relay *kafkatest.Relay) {
	relay.SetChange(func(req kmsg.Request) bool {
		q, ok := req.(*kmsg.ProduceRequest)
		if !ok || !s.strikes(q) {
			return false
		}
		for _, t := range q.Topics {
			for _, p := range t.Partitions {
				kafkatest.WithoutProducer(p.Records)
			}
		}
		return true
	})
}

// TestChaosCanFail: one commit in thousands that is acknowledged and lost, or written where the fence does not hold, makes the verdict of a run; it
// says which commit it was. All goes on meanwhile as if nothing had happened: members notice nothing, and the replica looks well.
func TestChaosCanFail(t *testing.T) {
	t.Parallel() // beside a world of its own it mostly waits
	w := newWorld(t, cast{groups: len(saboteurs), relayed: true})
	stop := w.begin()
	for i := range saboteurs {
		s := &saboteurs[i]
		for _, relay := range w.relays { // whoever owns the group's shard
			s.how(s, relay)
		}
		kafkatest.Eventually(t, calmMax, func() error {
			if len(s.done()) == 0 {
				return fmt.Errorf("no commit of %s to break", s.group)
			}
			return nil
		})
		w.calm("the commit of " + s.group + " was broken")
		for _, relay := range w.relays {
			relay.SetAnswer(nil)
			relay.SetChange(nil)
		}
	}
	stop()
	// A replica that denies a group is one that is asked about a group that there is not.
	for range 2 { // the connection may be one that a moved shard has ended
		_ = w.onlookers[0].find(absent)
		_ = w.onlookers[0].describe(absent)
	}
	verdict := w.judge()
	for i := range saboteurs {
		s := &saboteurs[i]
		for _, commit := range s.done() {
			if !slices.ContainsFunc(verdict, func(v string) bool {
				return strings.Contains(v, history.RuleInLog) && strings.Contains(v, s.group) && strings.Contains(v, commit) && strings.Contains(v, s.verdict)
			}) {
				t.Errorf("the verdict does not say that %s, %s, %s:\n%s", s.group, commit, s.verdict, strings.Join(verdict, "\n"))
			}
		}
	}
	if !slices.ContainsFunc(verdict, func(v string) bool { return strings.Contains(v, absent+": replica 0 leads to node 1 ") }) ||
		!slices.ContainsFunc(verdict, func(v string) bool { return strings.Contains(v, absent+": replica 0 describes it: GROUP_ID_NOT_FOUND") }) {
		t.Errorf("the verdict does not say that replica 0 denied a group:\n%s", strings.Join(verdict, "\n"))
	}
	if !t.Failed() {
		t.Logf("found, as it should be: %s", strings.Join(verdict, "\n"))
	}
}
