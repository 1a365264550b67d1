package e2e

import (
	"testing"

	"streamkeeper/internal/kafkatest"
)

// olderClient: an application of an earlier Kafka Streams, which speaks version 0 of the heartbeat. Instance after instance it goes on to
// 4.4, and back.
func olderClient(t *testing.T, c *cast, version string) {
	p := (&cast{place: c.place, host: kafkatest.StartAppHost(t, version)}).stage(t, partitions)
	load := kafkatest.NewWords(t, p.direct, p.in, words)
	load.Send(4 * words)
	o := kafkatest.AppOptions{Topology: "counted"}
	a := p.start("a", o)
	a.WaitTasks(2 * partitions)
	p.sink.WaitCounts(load.Counts(), outcome)
	b := p.start("b", o)
	waitSpread(t, []int{partitions, partitions}, a, b)
	mark := p.sink.Mark()
	load.Send(4 * words)
	p.sink.WaitCounts(load.Counts(), outcome)
	if by := p.sink.WritersSince(mark); len(by) != 2 {
		t.Errorf("with two instances %v wrote", by)
	}
	b.Stop()
	a.WaitTasks(2 * partitions)

	newer := c.host.Start(t, p.options("newer", o))
	waitSpread(t, []int{partitions, partitions}, a, newer)
	load.Send(words)
	a.Stop()
	newer.WaitTasks(2 * partitions)
	load.Send(words)
	p.sink.WaitCounts(load.Counts(), outcome)
	back := p.start("back", o)
	waitSpread(t, []int{partitions, partitions}, newer, back)
	newer.Stop()
	back.WaitTasks(2 * partitions)
	load.Send(words)
	p.sink.WaitCounts(load.Counts(), outcome)

	kafkatest.WaitCommitted(t, p.streams, p.group, p.in, outcome)
	back.Stop()
	p.oneOwner(nil)
	p.calm(a, b, newer, back)
	deleteWithInternalTopics(t, p.place, p.group)
}
