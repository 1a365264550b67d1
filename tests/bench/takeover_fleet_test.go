package bench

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"streamkeeper/internal/kafkatest"
)

// fleet is several coordinators that share the groups: replicas of streamkeeper before one broker, or brokers of Kafka.
type fleet struct {
	name  string
	what  string   // one of it, for the table
	addrs []string // where clients reach them

	fill func(t *testing.T, b bulk) samples
	stop func(i int) // SIGTERM, and waits for the end
	kill func(i int)
	// start starts one that was stopped or killed, and waits until it is ready.
	start         func(i int)
	pause, resume func(i int)
	// balance has the shards come back to one that was started again, where that does not happen by itself.
	balance func()
	pids    func() []int
}

const (
	fleetNode = 1_000_001 // the first replica's node id
	// fleetHeapMB is the heap of each of several brokers. They were never short of it.
	fleetHeapMB = 1024
)

// keeperFleet is n replicas before one broker.
func keeperFleet(t *testing.T, n int) *fleet {
	c := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V44, HeapMB: brokerHeapMB, JVM: jvm})
	kafkatest.CreateTopics(t, c.Addr(1), partitions, topic)
	f := &fleet{name: nameKeeper, what: "replica"}
	var ks []*kafkatest.Keeper
	for i := range n {
		args := []string{"serve", "--bootstrap-servers", c.Bootstrap(), "--log-partitions", shards, "--node-id", fmt.Sprint(fleetNode + i), "--log-level", *logLevel}
		for _, name := range slices.Sorted(maps.Keys(settings)) {
			args = append(args, "--set", name+"="+settings[name])
		}
		k := kafkatest.NewStreamkeeper(t, args...)
		ks, f.addrs = append(ks, k), append(f.addrs, k.Bootstrap())
	}
	f.fill = func(t *testing.T, b bulk) samples {
		ks[0].Start()
		ks[0].WaitReady()
		sample := takeSamples(t, f.addrs[:1], c.Addr(1), keeperLog)
		ks[0].Stop()
		fillKeeper(t, c.Addr(1), sample, b)
		for _, k := range ks {
			k.Start()
		}
		for _, k := range ks {
			k.WaitReady()
		}
		return sample
	}
	f.stop = func(i int) { ks[i].Stop() }
	f.kill = func(i int) { ks[i].Kill() }
	f.start = func(i int) { ks[i].Start(); ks[i].WaitReady() }
	f.pause = func(i int) { ks[i].Pause() }
	f.resume = func(i int) { ks[i].Resume() }
	f.balance = func() {}
	f.pids = func() (pids []int) {
		for _, k := range ks {
			if k.Running() {
				pids = append(pids, k.Pid())
			}
		}
		return pids
	}
	return f
}

// kafkaFleet is n brokers with streams groups, each group's records on all of them.
func kafkaFleet(t *testing.T, n int) *fleet {
	properties := map[string]string{"offsets.topic.num.partitions": shards}
	maps.Copy(properties, settings)
	c := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V44, Brokers: n, Streams: true, HeapMB: fleetHeapMB, JVM: jvm, Properties: properties})
	kafkatest.CreateTopics(t, c.Addr(1), partitions, topic)
	f := &fleet{name: nameKafka, what: "broker"}
	for i := range n {
		f.addrs = append(f.addrs, c.Addr(i+1))
	}
	f.fill = func(t *testing.T, b bulk) samples {
		sample := takeSamples(t, f.addrs, c.Bootstrap(), kafkaLog)
		fillKafka(t, c.Bootstrap(), sample, b)
		for i := range n {
			c.Stop(i + 1)
			c.Restart(i + 1)
		}
		f.balance()
		return sample
	}
	f.stop = func(i int) { c.Stop(i + 1) }
	f.kill = func(i int) { c.Kill(i + 1) }
	f.start = func(i int) { c.Restart(i + 1) }
	f.pause = func(i int) { c.Pause(i + 1) }
	f.resume = func(i int) { c.Resume(i + 1) }
	f.balance = func() {
		if n == 1 {
			return
		}
		// The broker does this by itself every five minutes (auto.leader.rebalance.enable).
		kafkatest.Eventually(t, time.Minute, func() error {
			results, err := kafkatest.Admin(t, c.Bootstrap()).ElectLeaders(t.Context(), kadm.ElectPreferredReplica, nil)
			if err != nil {
				return err
			}
			for _, p := range results[kafkaLog] {
				if p.Err != nil {
					return fmt.Errorf("%s-%d: %w", p.Topic, p.Partition, p.Err)
				}
			}
			return nil
		})
	}
	f.pids = func() (pids []int) {
		for i := range n {
			pids = append(pids, c.Pid(i+1))
		}
		return pids
	}
	return f
}
