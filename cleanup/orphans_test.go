package cleanup

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/plugin/topic"
)

// keeper is a plugin that looks after its own store.
type keeper struct {
	s        *described
	sweepErr error
	repair   func()
}

func (k *keeper) Repair(ctx context.Context, p int32) (int, error) {
	k.s.tell("repair %d", p)
	if k.repair != nil {
		k.repair()
	}
	return 0, context.Cause(ctx)
}

func (k *keeper) Sweep(_ context.Context, p int32, groups topic.Groups) (topic.Swept, error) {
	k.s.tell("look through %d", p)
	if _, ok := groups.(*described); !ok {
		k.s.tell("whose groups are these?")
	}
	return topic.Swept{Groups: 5, Orphans: 2}, k.sweepErr
}

func (s *described) SeemsDescribed(string) (bool, error)                  { return true, nil }
func (s *described) MayBeDescribed(context.Context, string) (bool, error) { return true, nil }

// TestOrphansAreLookedForNowAndThen: first thing in a tenure, then once an hour; void records in each cycle.
func TestOrphansAreLookedForNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &described{}
		c, _, _ := describedCycle(s)
		k := &keeper{s: s}
		c.cfg.Descriptions.Orphans = k
		cycle := func(want ...string) {
			t.Helper()
			s.told = nil
			if _, err := c.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(s.told, want) {
				t.Errorf("got %q, want %q", s.told, want)
			}
		}
		cycle("repair 0", "look through 0")
		cycle("repair 0")
		time.Sleep(orphansInterval - time.Second)
		cycle("repair 0")
		time.Sleep(time.Second)
		cycle("repair 0", "look through 0")

		next, end := context.WithCancel(t.Context())
		s.tenure = next
		k.sweepErr = errors.New("unread")
		cycle("repair 0", "look through 0")
		k.sweepErr = nil
		cycle("repair 0", "look through 0") // the first one failed
		cycle("repair 0")

		k.repair = end // the shard moves
		time.Sleep(orphansInterval)
		cycle("repair 0")
	})
}

func TestOrphansAreReported(t *testing.T) {
	s := &described{}
	c, _, _ := describedCycle(s)
	k := &keeper{s: s}
	c.cfg.Descriptions.Orphans = k
	if r, err := c.Sweep(t.Context()); err != nil || r.DescriptionsDeleted != 2 || r.Failures != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	s.tenure, k.sweepErr = context.WithoutCancel(t.Context()), errors.New("unread")
	if r, err := c.Sweep(t.Context()); err != nil || r.Failures != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
