package bench

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

// broker measures Kafka 4.4 with n groups: what it can load, and how it ends if it can't.
func (g growth) broker(t *testing.T, n int, f *figures) {
	properties := map[string]string{"offsets.topic.num.partitions": shards, "offsets.retention.check.interval.ms": "600000", "offsets.retention.minutes": retentionLong}
	maps.Copy(properties, settings)
	c := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V44, Streams: true, HeapMB: brokerHeapMB, JVM: jvm, Properties: properties})
	kafkatest.CreateTopics(t, c.Addr(1), growthOffsets, topic, topicGone)
	b := g.bulk(n)
	sample := takeSamples(t, []string{c.Addr(1)}, c.Addr(1), kafkaLog)
	fillKafka(t, c.Addr(1), sample, b)
	idle := idleProbes(b, sample)
	put := func(row string, v float64) { t.Helper(); f.put(t, nameKafka, n, row, v) }
	logMiB := func() float64 { return diskMiB(t, c.DataDir(1), kafkaLog) }
	put("disk: the log, MiB", logMiB())

	const start = "cold start, the log read from its beginning, until every shard answers"
	load := func() (time.Duration, error) {
		c.Stop(1)
		began := time.Now()
		c.Restart(1)
		err := answerWithin(t.Context(), c.Addr(1), idle, kafkaLoadsWithin, (*group).fetchSample)
		return time.Since(began), err
	}
	heap := brokerHeapMB
	if n > heapLargeFrom { // with less it runs out of memory after minutes
		heap = heapLargeMB
		c.SetHeapMB(heap)
	}
	took, err := load()
	if err != nil && heap < heapLargeMB {
		t.Logf("with a heap of %d MiB: %v", heap, err)
		f.say(nameKafka, n, "with a heap of 1 GiB", "it ends: "+lastWords(c.Log(1)))
		heap = heapLargeMB
		c.SetHeapMB(heap)
		c.Kill(1)
		took, err = load()
	}
	if err != nil {
		t.Logf("with a heap of %d MiB: %v", heap, err)
		f.say(nameKafka, n, fmt.Sprintf("with a heap of %d MiB", heap), "it ends: "+lastWords(c.Log(1)))
		return
	}
	put("heap given, MiB", float64(heap))
	put(start+", s", took.Seconds())
	put("memory after it, MiB", residentMiB(t, c.Pid(1)))
	put("… of that the heap that is alive, MiB", aliveMiB(t, c.Pid(1)))

	live := awaitCoordinator(t, c.Addr(1))
	f.latencies(t, nameKafka, n, "heartbeat, nothing else happens", beatWhile(t, c.Addr(1), live, func() { pause(t.Context(), g.lasting) }))
	f.latencies(t, nameKafka, n, "describe an idle group", describeSome(t, c.Addr(1), idle))
	f.latencies(t, nameKafka, n, "fetch an idle group's offset", phase(t, c.Addr(1), 1, idle, 0, (*group).fetchSample).latencies)
	var list []string
	beats := beatWhile(t, c.Addr(1), live, func() {
		var bytes int
		var took time.Duration
		list, bytes, took = listAll(t, c.Addr(1))
		put("ListGroups, s", took.Seconds())
		put("… its answer, MiB", float64(bytes)/(1<<20))
	})
	f.latencies(t, nameKafka, n, "heartbeat beside it", beats)
	slices.Sort(list)
	if n := b.missing(list); n > 0 {
		t.Fatalf("a list of %d groups lacks %d", len(list), n)
	}
	// Sweeps that find nothing, and then one in which everything has expired.
	c.SetProperty(1, "offsets.retention.check.interval.ms", "1000")
	if _, err := load(); err != nil {
		t.Fatal(err)
	}
	untilAnswered(t, c.Addr(1), live, (*group).beat)
	f.latencies(t, nameKafka, n, "heartbeat beside sweeps", beatWhile(t, c.Addr(1), live, func() { pause(t.Context(), 2*g.lasting) }))

	c.SetProperty(1, "offsets.retention.minutes", retentionShort)
	c.SetProperty(1, "offsets.retention.check.interval.ms", "30000") // so that nothing has expired before all is loaded
	before := logMiB()
	c.Stop(1)
	c.Restart(1)
	untilAnswered(t, c.Addr(1), live, (*group).beat)
	f.latencies(t, nameKafka, n, "heartbeat beside a sweep in which everything has expired", beatWhile(t, c.Addr(1), live, func() {
		deadline := time.Now().Add(kafkaExpiresWithin)
		began := time.Now()
		for end := stands(t, c.Addr(1), kafkaLog, 200*time.Millisecond, deadline); ; { // until it begins
			if now := stands(t, c.Addr(1), kafkaLog, 0, deadline); now > end+int64(b.groups/1000) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("nothing expires")
			}
			began = time.Now()
			time.Sleep(50 * time.Millisecond) // nothing tells of a log that grows
		}
		const still = 3 * time.Second
		if stands(t, c.Addr(1), kafkaLog, still, deadline); time.Now().After(deadline) {
			f.say(nameKafka, n, "that sweep, s", fmt.Sprintf("more than %.0f", time.Since(began).Seconds()))
			return
		}
		seconds := (time.Since(began) - still).Seconds()
		put("that sweep, s", seconds)
		put("… groups removed per second", float64(b.groups)/seconds)
	}))
	put("… the log grows by, MiB", logMiB()-before)
	if list, _, _ := listAll(t, c.Addr(1)); len(list) > b.groups/10 {
		t.Logf("Kafka still lists %d groups after the sweep", len(list))
	}
}

// aliveMiB is the part of a JVM's heap that a full collection leaves.
func aliveMiB(t *testing.T, pid int) float64 {
	t.Helper()
	run := func(command string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, "jcmd", fmt.Sprint(pid), command).CombinedOutput()
		if err != nil {
			t.Fatalf("jcmd %s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	run("GC.run")
	out := run("GC.heap_info")
	_, used, ok := strings.Cut(out, "used ")
	if ok {
		digits, _, _ := strings.Cut(used, "K")
		if kib, err := strconv.ParseFloat(digits, 64); err == nil {
			return kib / 1024
		}
	}
	t.Fatalf("GC.heap_info says %s", out)
	return 0
}

// lastWords are the first error that a broker's log has of its memory, or its last one.
func lastWords(log string) string {
	last := "no error in its log"
	for line := range strings.Lines(log) {
		if strings.Contains(line, "OutOfMemoryError") {
			return strings.TrimSpace(line)
		}
		if strings.Contains(line, " ERROR ") {
			last = strings.TrimSpace(line)
		}
	}
	return last
}
