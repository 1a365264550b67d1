package streams

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/client/explain"
)

// due is when a timer of the story ends.
func (c *clock) due(key TimerKey) (int64, bool) {
	for _, t := range c.set {
		if t.Key == key {
			return t.at, true
		}
	}
	return 0, false
}

// explain prints the reasons of the group's state, and what of them programs read.
func (s *story) explain() {
	s.print("%s\n", s.g.State())
	for _, r := range s.g.Explain(s.env(), s.timers.due) {
		s.print("%s: %s\n", r.Code, r.TextAt(time.UnixMilli(s.now)))
		for _, t := range r.Topics {
			s.print("  topic %s expected=%d found=%d\n", t.Name, t.Expected, t.Found)
		}
		if len(r.Tasks) > 0 {
			s.print("  tasks %v holders %v\n", r.Tasks, r.Holders)
		}
	}
}

// A rebalance of very many members is told of in a bounded number of reasons.
func TestReasonsAreBounded(t *testing.T) {
	g, env := grown(t, 200, 1, 400)
	// Everybody is a heartbeat behind: nobody has heard of the last join's assignment.
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Group, req.MemberID, req.ProcessID = "g", "late", kmsg.StringPtr("late")
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	req.RebalanceTimeoutMillis = 1000
	r, err := g.Heartbeat(env, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range r.Records {
		if err := g.Apply(rec); err != nil {
			t.Fatal(err)
		}
	}
	env.Now += 60_000 // and everybody is silent
	reasons := g.Explain(env, func(k TimerKey) (int64, bool) { return env.Now - 15_000, k.Kind == TimerSession })
	by := map[explain.Code]int{}
	left := 0
	for _, r := range reasons {
		by[r.Code]++
		left += r.Count
	}
	if by[explain.SilentMember] != reasonsPerCodeMax || by[explain.BehindTarget] > reasonsPerCodeMax || len(reasons) > 4*reasonsPerCodeMax || left < 2*(200-reasonsPerCodeMax) {
		t.Errorf("%d reasons, %v, %d left out", len(reasons), by, left)
	}
	if last := reasons[len(reasons)-1]; last.Code != explain.MoreOfTheseLeft || !strings.Contains(last.Text, "more members") {
		t.Errorf("the last one is %+v", last)
	}
}

func TestAGroupOnItsWayToTheClusterSaysSo(t *testing.T) {
	g := describedGroup(t, 0, "", 0, -1, -1)
	records, ok := g.BeginConversion(false)
	if !ok {
		t.Fatal("no conversion")
	}
	for _, r := range records {
		if err := g.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
	reasons := g.Explain(Env{Config: DefaultConfig()}, func(TimerKey) (int64, bool) { return 0, false })
	if len(reasons) != 1 || reasons[0].Code != explain.Converting {
		t.Errorf("%+v", reasons)
	}
}
