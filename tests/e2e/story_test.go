package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

const (
	partitions = 4
	// outcome is how long records may take to come out after whatever happened: two session time-outs and a restart.
	outcome = 45 * time.Second
)

func TestStoryKafkaItself(t *testing.T)   { story(t, itself) }
func TestStoryServeBefore39(t *testing.T) { story(t, before39) }
func TestStoryServeBefore44(t *testing.T) { story(t, before44) }
func TestStoryEmbeddedLog(t *testing.T)   { story(t, embedded) }

// story is the life of an at-least-once application with four partitions. Each step starts where the one before ended.
func story(t *testing.T, w world) {
	t.Parallel() // each world has a cluster of its own, and mostly waits
	p := w.build(t)
	group := "story-" + strings.ReplaceAll(w.name, " ", "-")
	in, out := group+"-in", group+"-out"
	kafkatest.CreateTopics(t, p.streams, partitions, in, out)
	load := kafkatest.NewLoad(t, p.direct, in)
	sink := kafkatest.Watch(t, p.direct, out)
	start := func(name string) *kafkatest.App {
		return kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Name: name})
	}
	s := &scene{t: t, p: p, group: group, in: in, load: load, sink: sink}

	s.step("reaches RUNNING, every record comes out, offsets are committed")
	load.Send(400)
	a := start("a")
	a.WaitTasks(partitions)
	if duplicates := sink.WaitAll(400, outcome); duplicates > 0 {
		t.Errorf("%d records came out twice, and nothing had happened", duplicates)
	}
	kafkatest.WaitCommitted(t, p.streams, group, in, outcome)

	s.step("a second instance takes half the tasks")
	b := start("b")
	s.halves(a, b)
	mark := sink.Mark()
	s.underLoad(func() { s.writtenBy(mark, "a", "b") })

	s.step("one is stopped, the other takes over")
	s.underLoad(func() {
		b.Stop()
		a.WaitTasks(partitions)
	})

	s.step("one is killed, the other takes over")
	c := start("c")
	s.halves(a, c)
	s.underLoad(func() {
		c.Kill()
		killed := time.Now()
		a.WaitTasks(partitions)
		// Its session counts from its last heartbeat, which is up to 1 s old, and older where the machine stood still.
		if took := time.Since(killed); took < time.Second {
			t.Errorf("the killed instance lost its tasks after %s, long before its session time-out of 6 s", took)
		}
	})

	s.step("the coordinator is killed and started again under load, the application goes on by itself")
	before := s.members()
	mark = sink.Mark()
	s.underLoad(func() {
		p.killCoordinator()
		n := a.Count()
		a.WaitCount(n + 100) // a second's worth of records, read and written after the restart
	})
	kafkatest.WaitCommitted(t, p.streams, group, in, outcome)
	if after := s.members(); !slices.Equal(before, after) {
		t.Errorf("the members before the restart and after it:\n%s\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	t.Logf("longest time without a record around the restart: %s", sink.Longest(mark).Round(10*time.Millisecond))

	s.step("twice in a row, and an instance that starts afterwards finds the committed offsets")
	s.underLoad(func() {
		p.killCoordinator()
		p.killCoordinator()
	})
	kafkatest.WaitCommitted(t, p.streams, group, in, outcome)
	a.Stop()
	n := load.Sent()
	mark = sink.Mark()
	load.Send(100)
	d := start("d")
	d.WaitTasks(partitions)
	sink.WaitAll(n+100, outcome)
	if by := sink.WritersSince(mark); !maps.Equal(by, map[string]int{"d": 100}) {
		t.Errorf("after a clean stop the next instance began elsewhere than at the committed offsets: written since then %v, want d:100", by)
	}
	s.oneOwner()
	for _, app := range []*kafkatest.App{a, b, d} {
		if u := app.Uncaught(); len(u) > 0 {
			t.Errorf("instance %s had uncaught exceptions: %q", app.Name(), u)
		}
	}
	d.Stop()
	deleteGroup(t, p, group)
}

// deleteGroup leaves a shared cluster as other tests expect it: without groups.
func deleteGroup(t *testing.T, p *place, group string) {
	t.Helper()
	out, errOut, exit := kafkatest.Tool(t, p.streams, "kafka-streams-groups", "--delete", "--group", group)
	if want := fmt.Sprintf("Deletion of requested streams groups ('%s') was successful.\n", group); exit != 0 || out != want {
		t.Errorf("delete group %s: exit %d\n%s%s", group, exit, out, errOut)
	}
}

// scene is what the steps of a story share.
type scene struct {
	t         *testing.T
	p         *place
	group, in string
	load      *kafkatest.Load
	sink      *kafkatest.Sink
}

// oneOwner fails the test if what was written shows that a task was owned twice at a time.
func (s *scene) oneOwner() {
	s.t.Helper()
	for _, b := range kafkatest.CheckTenures(s.sink.Seen()) {
		if b.What == kafkatest.OutOfOrder && s.p.keeper != nil && s.p.cluster == nil {
			s.t.Log(b) // the embedded log does not keep the order of a producer's batches over a kill
			continue
		}
		s.t.Error(b)
	}
}

func (s *scene) step(what string) { s.t.Helper(); s.t.Logf("— %s", what) }

// halves waits until the two instances have the tasks between them, two each and none twice.
func (s *scene) halves(a, b *kafkatest.App) {
	s.t.Helper()
	b.WaitTasks(partitions / 2)
	tasks := append(a.WaitTasks(partitions/2), b.Tasks()...)
	slices.Sort(tasks)
	if want := []string{"0_0", "0_1", "0_2", "0_3"}; !slices.Equal(tasks, want) {
		s.t.Errorf("the two instances have the tasks %v", tasks)
	}
}

// underLoad runs do while records come in, and then waits until all have come out.
func (s *scene) underLoad(do func()) {
	s.t.Helper()
	s.load.Run(100)
	do()
	n := s.load.Halt()
	if duplicates := s.sink.WaitAll(n, outcome); duplicates > 0 {
		s.t.Logf("%d of %d records came out more than once so far", duplicates, n)
	}
}

// writtenBy waits until each of the instances has written something after the mark, and nobody else.
func (s *scene) writtenBy(mark int, names ...string) {
	s.t.Helper()
	kafkatest.Eventually(s.t, outcome, func() error {
		if by := slices.Sorted(maps.Keys(s.sink.WritersSince(mark))); !slices.Equal(by, names) {
			return fmt.Errorf("records written by %v, want %v", by, names)
		}
		return nil
	})
}

// members are the rows of the group's members with ids, epochs and tasks, as kafka-streams-groups prints them.
func (s *scene) members() []string {
	s.t.Helper()
	out, errOut, exit := kafkatest.Tool(s.t, s.p.streams, "kafka-streams-groups", "--describe", "--group", s.group, "--members", "--verbose")
	if exit != 0 {
		s.t.Fatalf("describe the members: exit %d\n%s%s", exit, out, errOut)
	}
	rows := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(rows)
	return rows
}
