package crash

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"streamkeeper/internal/kafkatest"
)

// operation is what a process is killed in.
type operation struct {
	name   string
	points []point
	more   []string // settings
	// begin brings the group to where the replica dies; converge says what must become of it.
	begin, converge func(w *world, g *scene)
}

// scene is one group and its member.
type scene struct {
	group  string
	member *member
	death  *death
}

var operations = []operation{
	{name: "push", points: pushPoints,
		begin: func(w *world, g *scene) {
			g.death = w.arm(g.death.point, g.group)
			g.member = w.join(g.group)
		},
		// The member is there all the time: it is asked again, and pushes. Then the group goes with its description.
		converge: func(w *world, g *scene) {
			w.stored(g.group)
			w.leave(g)
			w.delete(g.group)
		}},
	{name: "deletion", points: deletePoints,
		begin: func(w *world, g *scene) {
			w.prepare(g)
			g.death = w.arm(g.death.point, g.group)
			go w.deleteUntil(g.group, g.death.fired)
		},
		converge: func(w *world, g *scene) { w.delete(g.group) }},
	{name: "cleanup", points: deletePoints, more: []string{"--set", "offsets.retention.check.interval.ms=300"},
		begin: func(w *world, g *scene) {
			g.member = w.join(g.group)
			w.stored(g.group)
			g.death = w.arm(g.death.point, g.group)
			w.leave(g)
		},
		converge: func(w *world, g *scene) {
			kafkatest.Eventually(w.t, settled, func() error {
				if !w.gone(g.group) {
					return errors.New("the group is still there")
				}
				return nil
			})
			if w.holds(g.group) {
				w.t.Errorf("%s: the description has outlived its group", g.group)
			}
		}},
}

// prepare makes an empty group whose description is stored.
func (w *world) prepare(g *scene) {
	w.t.Helper()
	g.member = w.join(g.group)
	w.stored(g.group)
	w.leave(g)
	w.empty(g.group)
}

func (w *world) leave(g *scene) {
	w.t.Helper()
	if err := g.member.stop(); err != nil && !errors.Is(err, context.Canceled) {
		w.t.Errorf("%s: the member ended with %v", g.group, err)
	}
}

func (w *world) deleteOnce(group string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return w.admin.DeleteStreamsGroups(ctx, group)[0].Err
}

// deleteUntil deletes the group again and again until a replica has died of it, or time is over.
func (w *world) deleteUntil(group string, fired <-chan struct{}) {
	deadline := time.Now().Add(settled)
	for time.Now().Before(deadline) {
		_ = w.deleteOnce(group) // whose answer is the death
		select {
		case <-fired:
			return
		case <-time.After(100 * time.Millisecond): // a refusal comes at once
		}
	}
}

// delete deletes the group, as an administrator who tries again until it is gone. When it is, so is its description.
func (w *world) delete(group string) {
	w.t.Helper()
	kafkatest.Eventually(w.t, settled, func() error {
		err := w.deleteOnce(group)
		if errors.Is(err, kerr.GroupIDNotFound) && !w.gone(group) {
			return fmt.Errorf("the answer to a deletion is %w, and the group is there", err)
		}
		if errors.Is(err, kerr.GroupIDNotFound) {
			return nil
		}
		return err
	})
	if w.holds(group) {
		w.t.Errorf("%s: the description has outlived its group", group)
	}
}

// Each operation, killed at each of its points, by a replica that comes back and by one whose place another takes. Whatever was under way,
// the group converges: its member's description is stored in the end, or the group goes, and never before its description.
func TestKilledAtEachStep(t *testing.T) {
	notShort(t)
	t.Parallel()
	for _, place := range []struct {
		backend
		replicas int
		then     string
	}{
		{inCatalogue, 1, "the same replica comes back"}, {inCatalogue, 2, "another takes over"}, {inTopic, 2, "another takes over"},
	} {
		for _, op := range operations {
			t.Run(fmt.Sprintf("%s, %s, %s", op.name, place.name, place.then), func(t *testing.T) {
				t.Parallel() // most of the time is waiting for sessions to end
				w := newWorld(t, place.backend, place.replicas, op.more...)
				for i, p := range op.points {
					g := &scene{group: fmt.Sprintf("%s-%d-%s", op.name, i, strings.ReplaceAll(p.String(), " ", "-")), death: &death{point: p}}
					start := time.Now()
					op.begin(w, g)
					w.wait(g.death)
					died := time.Now()
					if place.replicas == 1 {
						w.revive()
					}
					op.converge(w, g)
					t.Logf("%s %s: died after %s, settled after %s", g.death.by, p, died.Sub(start).Round(time.Millisecond), time.Since(died).Round(time.Millisecond))
					w.revive()
				}
				w.nothingHeld()
			})
		}
	}
}
