package cleanup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/projection"
)

// storing is a shard whose log says of groups that epoch 2 of their descriptions is stored.
type storing struct {
	described
	stored   []string
	storeErr error
	lostErr  error
}

func (s *storing) Stored(_ context.Context, after string, limit int) (calls []plugin.GetCall, next string, err error) {
	s.tell("stored after %q", after)
	if s.storeErr != nil {
		return nil, after, s.storeErr
	}
	for _, g := range s.stored {
		if g <= after {
			continue
		}
		if len(calls) == limit {
			return calls, calls[limit-1].Group, nil
		}
		calls = append(calls, plugin.GetCall{Group: g, TopologyEpoch: 2})
	}
	return calls, "", nil
}

func (s *storing) DescriptionLost(_ context.Context, group string, epoch int32) error {
	s.tell("lost %s %d", group, epoch)
	return s.lostErr
}

// lostCycle has a plugin that has lost the groups whose ids begin with "lost", and fails for those that begin with "down".
func lostCycle(s *storing) (*Cycle, *plugin.Counters, *plugin.Backoff) {
	counters, backoff := new(plugin.Counters), plugin.NewBackoff(func() float64 { return 0.5 }, 0)
	return New(Config{
		Shards: func() []Shard { return []Shard{s} }, Logger: slog.New(slog.DiscardHandler),
		Descriptions: &Descriptions{Counters: counters, Backoff: backoff, Lost: &Lost{GetAll: func(_ context.Context, calls []plugin.GetCall) []plugin.GetResult {
			if len(calls) > lostAtOnceMax {
				s.tell("%d at a time", len(calls))
			}
			out := make([]plugin.GetResult, len(calls))
			for i, c := range calls {
				switch c.Group[:4] {
				case "lost":
					out[i].Outcome = plugin.Outcome{Kind: plugin.NotFound}
				case "down":
					out[i].Outcome = plugin.Outcome{Kind: plugin.TransientFailure, Err: errors.New("down")}
				default:
					out[i] = plugin.GetResult{Description: &plugin.Description{}, Outcome: plugin.Outcome{Kind: plugin.Found}}
				}
			}
			return out
		}}},
	}), counters, backoff
}

func TestTheCycleFindsLostDescriptions(t *testing.T) {
	s := &storing{stored: []string{"down", "here", "lost1", "lost2"}}
	c, counters, backoff := lostCycle(s)
	backoff.Fail("lost2", 2, time.Now(), "pushed a moment ago") // its window is open: nobody could be asked anyway
	r, err := c.Sweep(t.Context())
	if err != nil || r.DescriptionsLost != 1 || r.Failures != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if want := []string{`stored after ""`, "lost lost1 2"}; !slices.Equal(s.told, want) {
		t.Errorf("got %v, want %v", s.told, want)
	}
	if n := counters.Stats().Lost; n != 1 || c.Stats().DescriptionsLost != 1 {
		t.Errorf("counted %d, %+v", n, c.Stats())
	}
	if e, ok := backoff.Entry("lost1"); !ok || e.Lost != 1 || backoff.Active("lost1", 2, time.Now()) {
		t.Errorf("the first time is asked at once: %+v", e)
	}
}

// A cycle looks at a bounded number of groups, a few at a time, and the next one goes on behind them; then from the start.
func TestTheSearchIsBoundedAndGoesOn(t *testing.T) {
	s := &storing{}
	for i := range lostLooksMax + 10 {
		s.stored = append(s.stored, fmt.Sprintf("here%03d", i))
	}
	c, _, _ := lostCycle(s)
	for range 3 {
		if _, err := c.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{`stored after ""`, fmt.Sprintf("stored after %q", s.stored[lostLooksMax-1]), `stored after ""`}
	if !slices.Equal(s.told, want) {
		t.Errorf("got %v, want %v", s.told, want)
	}
}

func TestWhatFailsInTheSearch(t *testing.T) {
	s := &storing{stored: []string{"lost1"}, storeErr: errors.New("closed")}
	c, _, _ := lostCycle(s)
	if r, _ := c.Sweep(t.Context()); r.Failures != 1 {
		t.Errorf("list: %+v", r)
	}
	s = &storing{stored: []string{"lost1"}, lostErr: errors.New("moved")}
	c, _, _ = lostCycle(s)
	if r, _ := c.Sweep(t.Context()); r.Failures != 1 || r.DescriptionsLost != 0 {
		t.Errorf("mark: %+v", r)
	}
	tenure, end := context.WithCancel(t.Context())
	end()
	s = &storing{stored: []string{"lost1"}, described: described{tenure: tenure}}
	c, _, _ = lostCycle(s)
	if r, _ := c.Sweep(t.Context()); r.DescriptionsLost != 0 {
		t.Errorf("a shard that moved: %+v", r)
	}
	s = &storing{stored: []string{"lost1"}}
	c, _, _ = lostCycle(s)
	c.cfg.Descriptions.Lost = nil
	if _, _ = c.Sweep(t.Context()); len(s.told) != 0 {
		t.Errorf("looked for although nobody wants it: %v", s.told)
	}
}

// storedLog is a projection with groups, their topology and stored epochs.
type storedLog map[string][2]int32

func (l storedLog) GroupsWithMembers(_ int32, f func(string) bool) error {
	for _, g := range []string{"a", "b", "c", "d", "e"} {
		if _, ok := l[g]; ok && !f(g) {
			return nil
		}
	}
	return nil
}

func (l storedLog) Group(_ int32, group string) ([]projection.Stored, error) {
	if l[group][0] == 9 {
		return nil, errors.New("damaged")
	}
	return []projection.Stored{{Record: eventlog.Record{Value: &eventlog.Topology{Epoch: l[group][0]}}},
		{Record: eventlog.Record{Value: &eventlog.Group{StoredDescriptionTopologyEpoch: l[group][1]}}}}, nil
}

func TestStoredDescriptions(t *testing.T) {
	log := storedLog{"a": {0, 0}, "b": {0, -2}, "c": {2, 1}, "d": {2, 2}}
	for _, c := range []struct {
		after string
		limit int
		want  string
	}{
		{"", 10, `[{a 0} {d 2}] ""`}, {"", 2, `[{a 0}] "b"`}, {"b", 2, `[{d 2}] ""`}, {"", 4, `[{a 0} {d 2}] ""`}, {"d", 4, `[] ""`},
	} {
		got, next, err := StoredDescriptions(t.Context(), log, 0, c.after, c.limit)
		if s := fmt.Sprintf("%v %q", got, next); err != nil || s != c.want {
			t.Errorf("after %q, %d: %s, %v; want %s", c.after, c.limit, s, err, c.want)
		}
	}
	log["e"] = [2]int32{9, 9}
	if _, next, err := StoredDescriptions(t.Context(), log, 0, "b", 10); err == nil || next != "b" {
		t.Errorf("a damaged store: %q, %v", next, err)
	}
}
