package kafkatest

import (
	"testing"
	"time"
)

// TestAppOnKafkasOwnCoordinator is the harness against the real thing: instances in a host and one of its own share the work, nothing
// is lost, no task has two owners, offsets are committed.
func TestAppOnKafkasOwnCoordinator(t *testing.T) {
	c := Start(t, Options{Streams: true, Properties: map[string]string{"group.streams.initial.rebalance.delay.ms": "500"}})
	CreateTopics(t, c.Bootstrap(), 4, "g-in", "g-out")
	load := NewLoad(t, c.Bootstrap(), "g-in")
	sink := Watch(t, c.Bootstrap(), "g-out")
	load.Send(200)

	host := StartAppHost(t, V44)
	a := host.Start(t, AppOptions{Bootstrap: c.Bootstrap(), Group: "g", Name: "a"})
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
	// the host takes an instance of the name again, and begins its events anew
	a.Stop()
	again := host.Start(t, a.Options())
	if again.Count() > 0 {
		t.Errorf("a new instance has processed %d records at its start", again.Count())
	}
	again.WaitTasks(4)
	load.Send(200)
	sink.WaitAll(n+200, 30*time.Second)
	for _, b := range CheckTenures(sink.Seen()) {
		t.Error(b)
	}
	tenures := map[string]bool{}
	for _, s := range sink.Seen() {
		tenures[s.Task+" "+s.Tenure] = true
		if s.Thread == "" || s.Source.Topic != "g-in" || s.Source.Partition != s.Partition || s.At == 0 {
			t.Fatalf("the tag of a record: %+v", s)
		}
	}
	if len(tenures) != 4+2+4 { // a all, b half, a that half again but without records, again all
		t.Errorf("%d tenures: %v", len(tenures), tenures)
	}
	if out, errOut, exit := Tool(t, c.Bootstrap(), "kafka-streams-groups", "--list"); out != "g\n" || exit != 0 {
		t.Errorf("exit %d: %s%s", exit, out, errOut)
	}
}
