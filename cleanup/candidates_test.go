package cleanup

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard/offsets"
)

// fakeSource has the groups of partition 3 and nothing elsewhere.
type fakeSource struct {
	groups  []string
	members []string
	commits map[string][]eventlog.OffsetCommit
	err     error // of Offsets
	read    int   // offsets
}

func (s *fakeSource) each(p int32, groups []string, f func(string) bool) error {
	if p != 3 {
		return nil
	}
	for _, g := range groups {
		if !f(g) {
			break
		}
	}
	return nil
}
func (s *fakeSource) Groups(p int32, f func(string) bool) error { return s.each(p, s.groups, f) }
func (s *fakeSource) GroupsWithMembers(p int32, f func(string) bool) error {
	return s.each(p, s.members, f)
}
func (s *fakeSource) GroupsAndOffsets(p int32, after string, f func(string, func(func(projection.Stored) bool) error) bool) error {
	return both(p, after, s.Groups, s.Offsets, f)
}

// both is GroupsAndOffsets made of the two.
func both(p int32, after string, groups func(int32, func(string) bool) error, committed func(int32, string, func(projection.Stored) bool) error,
	f func(string, func(func(projection.Stored) bool) error) bool) error {
	return groups(p, func(group string) bool {
		return group <= after || f(group, func(g func(projection.Stored) bool) error { return committed(p, group, g) })
	})
}

func (s *fakeSource) Offsets(_ int32, group string, f func(projection.Stored) bool) error {
	for i := range s.commits[group] {
		s.read++
		if !f(projection.Stored{Record: eventlog.Record{Value: &s.commits[group][i]}}) {
			break
		}
	}
	return s.err
}

func TestCandidates(t *testing.T) {
	old := eventlog.OffsetCommit{CommitTimestamp: 1_000, ExpireTimestamp: -1}
	fresh := eventlog.OffsetCommit{CommitTimestamp: 99_000, ExpireTimestamp: -1}
	explicit := eventlog.OffsetCommit{CommitTimestamp: 99_000, ExpireTimestamp: 99_500}
	src := &fakeSource{
		groups:  []string{"active-fresh", "active-none", "active-old", "empty-explicit", "empty-fresh", "empty-mixed", "empty-none"},
		members: []string{"active-fresh", "active-none", "active-old"},
		commits: map[string][]eventlog.OffsetCommit{
			"active-fresh": {fresh}, "active-old": {fresh, old, old, old}, "empty-explicit": {explicit}, "empty-fresh": {fresh, fresh}, "empty-mixed": {fresh, old},
		},
	}
	env := offsets.Env{Now: 100_000, Retention: 10 * time.Second}
	want := []string{"active-old", "empty-explicit", "empty-mixed", "empty-none"}
	if got, err := collect(AllCandidates(t.Context(), src, 3, env)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	if src.read != 8 {
		t.Errorf("%d offsets read, want no more of a group than needed", src.read)
	}
	for limit := 1; limit < 6; limit++ {
		if got, err := collect(candidates(t.Context(), src, 3, env, limit)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("pages of %d: %v, %v; want %v", limit, got, err, want)
		}
	}
	for limit, want := range map[int][]string{0: want, 1: want[:1], 3: want[:3]} {
		if got, err := Candidates(t.Context(), src, 3, env, limit); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("the first %d: %v, %v; want %v", limit, got, err, want)
		}
	}
	if got, err := collect(AllCandidates(t.Context(), src, 4, env)); err != nil || len(got) != 0 {
		t.Errorf("another partition: %v, %v", got, err)
	}
	for group, err := range AllCandidates(t.Context(), src, 3, env) {
		if err != nil || group != "active-old" {
			t.Errorf("first %q, %v", group, err)
		}
		break
	}
}

func collect(seq iter.Seq2[string, error]) (list []string, failed error) {
	for group, err := range seq {
		if err != nil {
			failed = err
			continue
		}
		list = append(list, group)
	}
	return list, failed
}

func TestCandidatesFailWhereTheStoreDoes(t *testing.T) {
	broken := errors.New("disk")
	if got, err := collect(AllCandidates(t.Context(), &fakeSource{groups: []string{"a"}, err: broken}, 3, offsets.Env{})); err != broken || got != nil {
		t.Errorf("%v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := collect(AllCandidates(ctx, &fakeSource{groups: slices.Repeat([]string{"a"}, 5)}, 3, offsets.Env{})); !errors.Is(err, context.Canceled) || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}
