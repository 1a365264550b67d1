package bench

import (
	"maps"
	"testing"

	"streamkeeper/internal/kafkatest"
)

// shards is the number of partitions of __consumer_offsets and of the record log: Kafka's default.
const shards = "50"

// settings of the groups, the same for both systems. Members are never expired while the generator is busy with
// others, and a join gets its tasks at once.
var settings = map[string]string{
	"group.streams.initial.rebalance.delay.ms": "0",
	"group.streams.max.session.timeout.ms":     "3600000",
	"group.streams.session.timeout.ms":         "3600000",
	"group.streams.assignment.interval.ms":     "0",
}

// jvm are a broker's options as its start script sets them, but for the heap.
var jvm = []string{"-Xms1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"}

const brokerHeapMB = 1024

// target is a system that is measured.
type target struct {
	name    string
	groups  string // address for group requests
	broker  string // address for produce requests
	pids    func() map[string]int
	restart func(kill bool) // ends the process with the coordinator and starts it again
	// fill writes groups into the log, beside the coordinator, which has loaded them (or is about to) when it returns.
	fill func(t *testing.T, b bulk) samples
}

func kafkaTarget(t *testing.T) *target {
	properties := map[string]string{"offsets.topic.num.partitions": shards}
	maps.Copy(properties, settings)
	c := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V44, Streams: true, HeapMB: brokerHeapMB, JVM: jvm, Properties: properties})
	return &target{
		name: "Kafka 4.4", groups: c.Addr(1), broker: c.Addr(1),
		pids: func() map[string]int { return map[string]int{"broker": c.Pid(1)} },
		restart: func(kill bool) {
			if !kill {
				c.Stop(1)
			}
			c.Restart(1)
		},
		fill: func(t *testing.T, b bulk) samples {
			sample := takeSamples(t, []string{c.Addr(1)}, c.Addr(1), kafkaLog)
			fillKafka(t, c.Addr(1), sample, b)
			c.Stop(1)
			c.Restart(1)
			return sample
		},
	}
}

func keeperTarget(t *testing.T) *target {
	c := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V44, HeapMB: brokerHeapMB, JVM: jvm})
	args := []string{"serve", "--bootstrap-servers", c.Bootstrap(), "--log-partitions", shards, "--log-level", "warn"}
	for k, v := range settings {
		args = append(args, "--set", k+"="+v)
	}
	k := kafkatest.StartStreamkeeper(t, args...)
	return &target{
		name: "streamkeeper", groups: k.Bootstrap(), broker: c.Addr(1),
		pids: func() map[string]int { return map[string]int{"broker": c.Pid(1), "streamkeeper": k.Pid()} },
		restart: func(kill bool) {
			if !kill {
				k.Stop()
			}
			k.Restart()
		},
		fill: func(t *testing.T, b bulk) samples {
			sample := takeSamples(t, []string{k.Bootstrap()}, c.Addr(1), keeperLog)
			k.Stop()
			fillKeeper(t, c.Addr(1), sample, b)
			k.Restart()
			return sample
		},
	}
}
