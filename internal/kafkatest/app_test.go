package kafkatest

import (
	"testing"
	"time"
)

// TestAppOnKafkasOwnCoordinator is the harness against the real thing: two instances share the work, nothing is lost,
// offsets are committed.
func TestAppOnKafkasOwnCoordinator(t *testing.T) {
	c := Start(t, Options{Streams: true, Properties: map[string]string{"group.streams.initial.rebalance.delay.ms": "500"}})
	CreateTopics(t, c.Bootstrap(), 4, "g-in", "g-out")
	load := NewLoad(t, c.Bootstrap(), "g-in")
	sink := Watch(t, c.Bootstrap(), "g-out")
	load.Send(200)

	a := StartApp(t, AppOptions{Bootstrap: c.Bootstrap(), Group: "g", Name: "a"})
	a.WaitTasks(4)
	if dup := sink.WaitAll(200, 30*time.Second); dup != 0 {
		t.Errorf("%d duplicates although nothing was restarted", dup)
	}
	b := StartApp(t, AppOptions{Bootstrap: c.Bootstrap(), Group: "g", Name: "b"})
	b.WaitTasks(2)
	a.WaitTasks(2)
	mark := sink.Mark()
	load.Run(200)
	b.WaitCount(50)
	a.WaitCount(250)
	n := load.Halt()
	sink.WaitAll(n, 30*time.Second)
	if by := sink.WritersSince(mark); by["a"] == 0 || by["b"] == 0 || len(by) != 2 {
		t.Errorf("with two instances the records were written by %v", by)
	}
	WaitCommitted(t, c.Bootstrap(), "g", "g-in", 20*time.Second)
	b.Stop()
	a.WaitTasks(4)
	if out, errOut, exit := Tool(t, c.Bootstrap(), "kafka-streams-groups", "--list"); out != "g\n" || exit != 0 {
		t.Errorf("exit %d: %s%s", exit, out, errOut)
	}
}
