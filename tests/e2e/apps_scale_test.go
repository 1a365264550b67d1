package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/client"
	"streamkeeper/internal/kafkatest"
)

// words is how many different words are counted.
const words = 50

// waitSpread waits until the instances have so many tasks, and in no order of instances.
func waitSpread(t *testing.T, want []int, apps ...*kafkatest.App) {
	t.Helper()
	kafkatest.Eventually(t, outcome, func() error {
		var got []int
		for _, a := range apps {
			if a.State() != "RUNNING" {
				return fmt.Errorf("instance %s is %s", a.Name(), a.State())
			}
			got = append(got, len(a.Tasks()))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Errorf("tasks of the instances: %v, want %v", got, want)
		}
		return nil
	})
}

// scaled: one instance, then three, each of them restarted once, then one again, under load all the time. Everything is counted once.
func scaled(t *testing.T, c *cast) {
	p := c.stage(t, partitions)
	load := kafkatest.NewWords(t, p.direct, p.in, words)
	counted := kafkatest.AppOptions{Topology: "counted"}
	load.Run(50)
	a := p.start("a", counted)
	a.WaitTasks(2 * partitions)
	apps := []*kafkatest.App{a, p.start("b", counted), p.start("c", counted)}
	waitSpread(t, []int{2, 3, 3}, apps...)
	for i, old := range apps {
		mark := p.sink.Mark()
		old.Stop()
		p.calm(old)
		apps[i] = p.host.Start(t, old.Options())
		waitSpread(t, []int{2, 3, 3}, apps...)
		kafkatest.Eventually(t, outcome, func() error {
			if by := p.sink.WritersSince(mark); len(by) != len(apps) {
				return fmt.Errorf("since %s was restarted the counts were written by %v", old.Name(), by)
			}
			return nil
		})
	}
	for _, b := range apps[1:] {
		b.Stop()
	}
	apps[0].WaitTasks(2 * partitions)
	load.Halt()
	p.sink.WaitCounts(load.Counts(), outcome)
	kafkatest.WaitCommitted(t, p.streams, p.group, p.in, outcome)
	p.oneOwner(nil)
	p.calm(apps...)
}

// crashing: an instance dies again and again, with tasks and before it has any. The other one goes on with its own tasks all the time.
func crashing(t *testing.T, c *cast) {
	p := c.stage(t, partitions)
	load := kafkatest.NewLoad(t, p.direct, p.in)
	a := p.start("a", kafkatest.AppOptions{})
	a.WaitTasks(partitions)
	load.Run(50)
	crashes := 2
	if *long {
		crashes = 10
	}
	o := kafkatest.AppOptions{State: t.TempDir()}
	for i := range crashes {
		b := p.startAlone("b", o)
		if i%2 == 0 {
			b.WaitTasks(partitions / 2)
			b.WaitCount(1)
		} else {
			b.WaitPassed("REBALANCING")
		}
		b.Kill()
	}
	b := p.startAlone("b", o)
	b.WaitTasks(partitions / 2)
	a.WaitTasks(partitions / 2) // when the sessions of the dead are over
	load.Send(20)
	n := load.Halt()
	p.sink.WaitAll(n, outcome)
	p.oneOwner(nil)
	p.calm(a, b)
	b.Stop()
	a.WaitTasks(partitions)
}

// slow: a member that is busy with one record for longer than its session keeps its tasks, and gives up what it is asked for when it
// is done.
func slow(t *testing.T, c *cast) {
	p := c.stage(t, 2)
	const (
		session = 6 * time.Second
		busy    = 2 * session
		late    = 4 * time.Second // what a slow machine may need to tell us that it is busy
	)
	load := kafkatest.NewLoad(t, p.direct, p.in)
	a := p.start("a", kafkatest.AppOptions{})
	a.WaitTasks(2)
	load.Send(20)
	p.sink.WaitAll(20, outcome)
	a.Slow(int(busy.Milliseconds()))
	load.Send(1)
	a.WaitCount(21)
	began := time.Now()
	b := p.start("b", kafkatest.AppOptions{})
	b.WaitTasks(1)
	if took := time.Since(began); took < busy-late { // which is longer than the session
		t.Errorf("the other instance got a task after %s, while the first one was busy for %s", took, busy)
	}
	a.Slow(0)
	a.WaitTasks(1)
	load.Send(20)
	p.sink.WaitAll(41, outcome)
	if kept := tenuresOf(p.sink, "a"); len(kept) != 2 {
		t.Errorf("the busy instance had the tenures %v, it should have kept one of the two tasks that it began with", kept)
	}
	p.oneOwner(nil)
	p.calm(a, b)
}

// tenuresOf are the tenures in which the instance wrote something, each with its task.
func tenuresOf(s *kafkatest.Sink, by string) []string {
	var found []string
	for _, r := range s.Seen() {
		if tenure := r.Task + " " + r.Tenure; r.By == by && !slices.Contains(found, tenure) {
			found = append(found, tenure)
		}
	}
	return found
}

// paused: an instance stops for longer than its session and wakes up as if nothing had happened. It may write once more what it had read
// before, as before Kafka itself: nothing can take that back with at_least_once. It takes part again afterwards.
func paused(t *testing.T, c *cast) {
	p := c.stage(t, partitions)
	load := kafkatest.NewLoad(t, p.direct, p.in)
	a, b := p.start("a", kafkatest.AppOptions{}), p.startAlone("b", kafkatest.AppOptions{})
	waitSpread(t, []int{2, 2}, a, b)
	load.Run(50)
	b.WaitCount(20)
	b.Pause()
	pausedAt := time.Now().UnixMicro()
	a.WaitTasks(partitions)
	mark := p.sink.Mark()
	b.Resume()
	resumed := time.Now()
	kafkatest.Eventually(t, outcome, func() error { // it has found out, and joined again
		if a, b := len(a.Tasks()), len(b.Tasks()); a != 2 || b != 2 {
			return fmt.Errorf("a has %d tasks and b %d", a, b)
		}
		if by := p.sink.WritersSince(mark); by["b"] == 0 {
			return fmt.Errorf("since then %v wrote", by)
		}
		return nil
	})
	t.Logf("the paused instance takes part again after %s", time.Since(resumed).Round(time.Millisecond))
	n := load.Halt()
	p.sink.WaitAll(n, outcome)
	began := map[string]int64{} // tenures, by their first record
	for _, s := range p.sink.Seen() {
		if at, ok := began[s.Tenure]; !ok || s.At < at {
			began[s.Tenure] = s.At
		}
	}
	late := 0
	p.oneOwner(func(b kafkatest.Breach) bool {
		if b.Late.By != "b" || began[b.Late.Tenure] > pausedAt {
			return false
		}
		late++
		return true
	})
	t.Logf("%d places where it wrote after the pause what it had read before", late)
	p.calm(a)
}

// clinging: a member that heartbeats and never gives up the tasks it is asked for keeps them until its rebalance time-out, and nobody
// else gets them before.
func clinging(t *testing.T, c *cast) {
	p := c.stage(t, partitions)
	const patience, grace = 8 * time.Second, 3 * time.Second // grace is for the answer that asks, which may be late on a busy machine
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.streams))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	ctx, stop := context.WithCancel(t.Context())
	asked := make(chan time.Time, 1)
	lost := make(chan time.Time, 1)
	m, err := client.NewMember(cl, client.MemberConfig{
		Group: p.group, RebalanceTimeout: patience,
		Subtopologies: []client.Subtopology{{ID: "0", SourceTopics: []string{p.in}}},
		Revoke: func(context.Context, client.Tasks) error {
			asked <- time.Now()
			<-ctx.Done()
			return nil
		},
		Lose: func(client.Tasks) { lost <- time.Now() },
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	kafkatest.Eventually(t, outcome, func() error {
		if n := len(m.Tasks().Active); n != partitions {
			return fmt.Errorf("the member has %d tasks", n)
		}
		return nil
	})
	load := kafkatest.NewLoad(t, p.direct, p.in)
	load.Send(100)
	b := p.start("b", kafkatest.AppOptions{})
	var since time.Time
	select {
	case since = <-asked:
	case <-time.After(outcome):
		t.Fatalf("the member was not asked to give up anything within %s", outcome)
	}
	b.WaitState("RUNNING")
	for time.Since(since) < patience-grace {
		if tasks := b.Tasks(); len(tasks) > 0 {
			t.Fatalf("the other member got %v %s after the first was asked to give up some of them, and it has not", tasks, time.Since(since))
		}
		time.Sleep(100 * time.Millisecond) // what must not happen can only be waited for
	}
	kafkatest.Eventually(t, outcome, func() error {
		if len(b.Tasks()) < partitions/2 {
			return fmt.Errorf("it has %v", b.Tasks())
		}
		return nil
	})
	if took := time.Since(since); took < patience-grace {
		t.Errorf("the tasks were given away after %s, the rebalance time-out is %s", took, patience)
	}
	stop()
	b.WaitTasks(partitions)
	p.sink.WaitAll(100, outcome)
	p.oneOwner(nil)
	p.calm(b)
}
