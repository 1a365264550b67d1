package cleanup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/projection"
	"streamkeeper/shard"
)

// described is a shard with descriptions; what happens to it is told in order.
type described struct {
	fakeShard
	ids     []string
	listErr error // after the ids
	markErr error
	busy    []string // have a member by now
	endErr  error
	tenure  context.Context // nil: for ever

	tmu  sync.Mutex
	told []string
}

func (s *described) tell(format string, args ...any) {
	s.tmu.Lock()
	defer s.tmu.Unlock()
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

func (s *described) Tenure() context.Context {
	if s.tenure == nil {
		return context.Background()
	}
	return s.tenure
}
func (s *described) Described(context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, g := range s.ids {
			if !yield(g, nil) {
				return
			}
		}
		if s.listErr != nil {
			yield("", s.listErr)
		}
	}
}
func (s *described) MarkExpired(_ context.Context, group string) (bool, error) {
	s.tell("mark %s", group)
	return !slices.Contains(s.busy, group), s.markErr
}
func (s *described) DescriptionDeleted(_ context.Context, group string) error {
	s.tell("deleted %s", group)
	return s.endErr
}

// describedCycle makes a cycle whose plugin fails for the groups whose ids begin with "bad".
func describedCycle(s *described) (*Cycle, *plugin.Counters, *plugin.Backoff) {
	counters, backoff := new(plugin.Counters), plugin.NewBackoff(func() float64 { return 0 }, 0)
	return New(Config{
		Shards: func() []Shard { return []Shard{s} }, Logger: slog.New(slog.DiscardHandler),
		Descriptions: &Descriptions{Counters: counters, Backoff: backoff, DeleteAll: func(_ context.Context, groups []string) []plugin.Outcome {
			out := make([]plugin.Outcome, len(groups))
			for i, g := range groups {
				s.tell("plugin %s", g)
				if strings.HasPrefix(g, "bad") {
					out[i] = plugin.Outcome{Kind: plugin.TransientFailure, Err: errors.New("down")}
				} else {
					out[i] = plugin.Outcome{Kind: plugin.Deleted}
				}
			}
			return out
		}},
	}), counters, backoff
}

func TestDescriptionsGoBeforeTheSweep(t *testing.T) {
	s := &described{ids: []string{"a"}}
	s.groups, s.judge = []string{"a"}, func(group string) shard.Judged {
		s.tell("expire %s", group)
		return shard.Judged{Removed: true}
	}
	c, counters, backoff := describedCycle(s)
	backoff.Arm("a", 0, time.Now())
	report, err := c.Sweep(t.Context())
	if err != nil || report.DescriptionsDeleted != 1 || report.GroupsRemoved != 1 || report.Failures != 0 {
		t.Errorf("%+v %v", report, err)
	}
	if want := []string{"mark a", "plugin a", "deleted a", "expire a"}; !slices.Equal(s.told, want) {
		t.Errorf("got %v, want %v", s.told, want)
	}
	if st := counters.Stats(); st.CleanupCycles != 1 || st.CleanupEligible != 1 {
		t.Errorf("counters %+v", st)
	}
	if backoff.Len() != 0 {
		t.Error("a back-off entry outlives its description")
	}
}

func TestWhatFailsIsLeftToTheNextCycle(t *testing.T) {
	for _, c := range []struct {
		name     string
		shard    *described
		want     []string
		failures int
	}{
		{"plugin", &described{ids: []string{"bad1"}}, []string{"mark bad1", "plugin bad1"}, 1},
		{"barrier", &described{ids: []string{"a"}, markErr: errors.New("moved")}, []string{"mark a"}, 1},
		{"outcome", &described{ids: []string{"a"}, endErr: errors.New("moved")}, []string{"mark a", "plugin a", "deleted a"}, 1},
		{"a member came", &described{ids: []string{"a"}, busy: []string{"a"}}, []string{"mark a"}, 0},
		{"list", &described{ids: []string{"a"}, listErr: errors.New("gone")}, []string{"mark a", "plugin a", "deleted a"}, 1},
	} {
		cycle, _, _ := describedCycle(c.shard)
		report, err := cycle.Sweep(t.Context())
		if err != nil || report.Failures != c.failures || !slices.Equal(c.shard.told, c.want) {
			t.Errorf("%s: %v, report %+v, %v; want %v and %d failures", c.name, c.shard.told, report, err, c.want, c.failures)
		}
	}
}

// A shard whose barriers fail as a whole is not asked group after group.
func TestAShardThatMovedIsLeft(t *testing.T) {
	s := &described{markErr: errors.New("moved")}
	for i := range 10 * describedAtOnce {
		s.ids = append(s.ids, fmt.Sprint("g", i))
	}
	cycle, counters, _ := describedCycle(s)
	if _, err := cycle.Sweep(t.Context()); err != nil || len(s.told) != describedAtOnce {
		t.Errorf("%d marks, want %d; %v", len(s.told), describedAtOnce, err)
	}
	if n := counters.Stats().CleanupEligible; n != describedAtOnce {
		t.Errorf("%d eligible", n)
	}
}

func TestTheStepEndsWithTheShard(t *testing.T) {
	tenure, end := context.WithCancel(t.Context())
	s := &described{ids: []string{"a"}, tenure: tenure}
	cycle, _, _ := describedCycle(s)
	remove := cycle.cfg.Descriptions.DeleteAll
	cycle.cfg.Descriptions.DeleteAll = func(ctx context.Context, groups []string) []plugin.Outcome {
		end()
		<-ctx.Done()
		return remove(ctx, groups)
	}
	report, err := cycle.Sweep(t.Context())
	if want := []string{"mark a", "plugin a"}; err != nil || !slices.Equal(s.told, want) || report.Failures != 0 {
		t.Errorf("%v, %+v, %v; want %v, and no outcome of a shard that moved", s.told, report, err, want)
	}
}

func TestManyDescriptionsGoInBatches(t *testing.T) {
	s := &described{}
	for i := range 2*describedAtOnce + 3 {
		s.ids = append(s.ids, fmt.Sprint("g", i))
	}
	cycle, _, _ := describedCycle(s)
	report, err := cycle.Sweep(t.Context())
	if err != nil || report.DescriptionsDeleted != len(s.ids) || len(s.told) != 3*len(s.ids) {
		t.Errorf("%+v, %d steps, %v", report, len(s.told), err)
	}
}

func TestWithoutPluginDescriptionsAreLeftAlone(t *testing.T) {
	s := &described{ids: []string{"a"}}
	if _, err := newCycle(s).Sweep(t.Context()); err != nil || len(s.told) != 0 {
		t.Errorf("%v %v", s.told, err)
	}
}

// describedSource adds what the log says of descriptions.
type describedSource struct {
	fakeSource
	stored  map[string]int32
	pending map[string]bool
}

func (s *describedSource) Group(_ int32, group string) ([]projection.Stored, error) {
	v := &eventlog.Group{StoredDescriptionTopologyEpoch: eventlog.EpochNone}
	if e, ok := s.stored[group]; ok {
		v.StoredDescriptionTopologyEpoch = e
	}
	return []projection.Stored{{Record: eventlog.Record{Value: &eventlog.Topology{}}}, {Record: eventlog.Record{Value: v}}}, nil
}
func (s *describedSource) Pending(_ int32, group string, f func(int64, projection.Stored) bool) error {
	if s.pending[group] {
		f(1, projection.Stored{})
	}
	return nil
}

func TestDescribedCandidates(t *testing.T) {
	src := &describedSource{stored: map[string]int32{"active": 0, "gone": eventlog.EpochNone, "open": 0, "offsets": 0, "odd": 0, "stored": 3, "unsure": eventlog.EpochUncertain},
		pending: map[string]bool{"open": true}}
	src.groups = []string{"active", "gone", "never", "odd", "offsets", "open", "stored", "unsure"}
	src.members = []string{"active"}
	src.commits = map[string][]eventlog.OffsetCommit{"offsets": {{CommitTimestamp: 1, ExpireTimestamp: -1}}, "odd": {{CommitTimestamp: 1, ExpireTimestamp: 0}}}
	var got []string
	for g, err := range DescribedCandidates(t.Context(), src, 3) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, g)
	}
	if want := []string{"stored", "unsure"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	src.err = errors.New("disk")
	for _, err := range DescribedCandidates(t.Context(), src, 3) {
		if err == nil {
			t.Error("a group was yielded although its offsets can't be read")
		}
	}
}
