package e2e

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"streamkeeper/internal/kafkatest"
)

// TestAnotherTransactionalID: the producer id of a shard's owner is fenced at the partition's leader while the transaction coordinator goes on giving it, as a claimer
// leaves it that was misled and died. The owner takes the partition's next transactional id under two running applications; the next owner begins with that.
func TestAnotherTransactionalID(t *testing.T) {
	if !*long {
		t.Skip("with -long: eventlog has the claims of it on real brokers")
	}
	r := startFleet(t, kafkatest.Shared(t, kafka44), 2, "--plugin", "none")
	r.waitSpread(r.nodes...)
	shards := int32(len(r.owners()))
	first := oneGroupEach(t, r, "spent")[0]
	p := partitionOf(first, shards)
	groups := []string{first, groupIn("spent-too", p, shards)}
	host := kafkatest.StartAppHost(t, kafkatest.V44)
	c := &cast{place: &place{streams: r.bootstrap(), direct: r.cluster.Bootstrap(), cluster: r.cluster}, host: host}
	var loads []*kafkatest.Load
	var plays []*play
	var apps []*kafkatest.App
	for _, group := range groups {
		pl := c.stageAs(t, group, partitions)
		a := pl.start("a", kafkatest.AppOptions{})
		a.WaitTasks(partitions)
		l := kafkatest.NewLoad(t, r.cluster.Bootstrap(), pl.in)
		l.Run(20)
		plays, apps, loads = append(plays, pl), append(apps, a), append(loads, l)
	}
	number := func() int { // of the transactional id, as Kafka's tool lists them
		out, errOut, exit := kafkatest.Tool(t, r.cluster.Bootstrap(), "kafka-transactions", "list")
		if exit != 0 {
			t.Fatalf("kafka-transactions list: exit %d\n%s", exit, errOut)
		}
		n := 0
		for _, word := range strings.Fields(out) {
			if rest, ok := strings.CutPrefix(word, fmt.Sprintf("%s-%d.", r.topic, p)); ok {
				var i int
				if _, err := fmt.Sscan(rest, &i); err == nil {
					n = max(n, i)
				}
			}
		}
		return n
	}
	producing := func() int64 { return r.owners()[p].ProducerID }
	goesOn := func(what string) {
		t.Helper()
		for i, pl := range plays {
			mark := pl.sink.Mark()
			kafkatest.Eventually(t, outcome, func() error {
				if n := len(pl.sink.Seen()) - mark; n < 50 {
					return fmt.Errorf("%s: %d records of %s", what, n, groups[i])
				}
				return nil
			})
			t.Logf("%s: %s had no record for %v", what, groups[i], pl.sink.Longest(0))
		}
		for i, pl := range plays { // commits go on
			before := kafkatest.Committed(t, r.bootstrap(), groups[i], pl.in)
			kafkatest.Eventually(t, outcome, func() error {
				now := kafkatest.Committed(t, r.bootstrap(), groups[i], pl.in)
				for q, at := range before {
					if now[q] <= at {
						return fmt.Errorf("%s: %s has committed %v, and had %v", what, groups[i], now, before)
					}
				}
				return nil
			})
		}
	}
	goesOn("before")
	for i := 1; i <= 2; i++ {
		was := producing()
		if err := kafkatest.WriteAs(t, r.cluster.Addr(1), r.topic, p, was, math.MaxInt16, []byte("\x7d\x64stranger"), []byte("nobody's")); err != nil {
			t.Fatal(err)
		}
		kafkatest.Eventually(t, takeover, func() error {
			if producing() == was {
				return fmt.Errorf("producer %d still has the shard", was)
			}
			return nil
		})
		goesOn(fmt.Sprintf("fenced %d times", i))
		if n := number(); n != i {
			t.Errorf("kafka-transactions lists the number %d, want %d", n, i)
		}
		owner, other := r.ownerOf(first)
		producer := producing()
		r.replicas[owner].Stop()
		r.waitOwner(first, other)
		if now := producing(); now != producer {
			t.Errorf("the next owner has producer %d, the one before had %d: it did not begin with its transactional id", now, producer)
		}
		r.replicas[owner].Restart()
		r.waitSpread(r.nodes...)
		goesOn("at another owner")
	}
	out, errOut, exit := kafkatest.Tool(t, r.cluster.Bootstrap(), "kafka-transactions", "describe", "--transactional-id", fmt.Sprintf("%s-%d.2", r.topic, p))
	if exit != 0 || !strings.Contains(out, fmt.Sprint(producing())) {
		t.Errorf("kafka-transactions describe: exit %d, producer %d has the shard\n%s%s", exit, producing(), out, errOut)
	}
	for i, pl := range plays {
		n := loads[i].Halt()
		pl.sink.WaitAll(n, outcome)
		kafkatest.WaitCommitted(t, r.bootstrap(), groups[i], pl.in, outcome)
		pl.oneOwner(nil)
		pl.calm(apps[i])
	}
}
