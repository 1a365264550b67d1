package bench

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"

	"context"
)

// grown is a replica before a broker whose log has many idle groups.
type grown struct {
	t    *testing.T
	g    growth
	b    bulk
	f    *figures
	c    *kafkatest.Cluster
	k    *kafkatest.Keeper
	idle []*group // one of each shard
	live []*group // the same, with a member
}

func (x *grown) put(row string, v float64) {
	x.t.Helper()
	x.f.put(x.t, nameKeeper, x.b.groups, row, v)
}
func (x *grown) took(row string, began time.Time) {
	x.t.Helper()
	x.put(row+", s", time.Since(began).Seconds())
}
func (x *grown) times(what string, d []time.Duration) {
	x.t.Helper()
	x.f.latencies(x.t, nameKeeper, x.b.groups, what, d)
}
func (x *grown) beats(do func()) []time.Duration {
	x.t.Helper()
	return beatWhile(x.t, x.k.Bootstrap(), x.live, do)
}
func (x *grown) logMiB() float64                         { return diskMiB(x.t, x.c.DataDir(1), keeperLog) }
func (x *grown) set(k *kafkatest.Keeper, name, v string) { k.Set("--set="+name, v) }

func newGrownKeeper(t *testing.T, c *kafkatest.Cluster, i int) *kafkatest.Keeper {
	args := []string{"serve", "--bootstrap-servers", c.Bootstrap(), "--log-partitions", shards, "--node-id", fmt.Sprint(fleetNode + i), "--log-level", *logLevel,
		"--set=offsets.retention.minutes=" + retentionLong, "--set=offsets.retention.check.interval.ms=600000"}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "--set", name+"="+settings[name])
	}
	return kafkatest.NewStreamkeeper(t, args...)
}

// keeper measures streamkeeper with n groups.
func (g growth) keeper(t *testing.T, n int, f *figures) {
	c := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V44, HeapMB: brokerHeapMB, JVM: jvm})
	kafkatest.CreateTopics(t, c.Addr(1), growthOffsets, topic, topicGone)
	x := &grown{t: t, g: g, b: g.bulk(n), f: f, c: c, k: newGrownKeeper(t, c, 0)}
	x.fill()
	x.rebuild()
	x.quiet()
	x.list()
	x.checkpoint()
	x.sweepNothing()
	x.killed()
	x.takeover()
	x.sweepAll()
}

func (x *grown) fill() {
	x.k.Start()
	x.k.WaitReady()
	sample := takeSamples(x.t, []string{x.k.Bootstrap()}, x.c.Addr(1), keeperLog)
	x.k.Stop()
	began := time.Now()
	fillKeeper(x.t, x.c.Addr(1), sample, x.b)
	x.t.Logf("filled in %s", time.Since(began).Round(time.Millisecond))
	x.idle = idleProbes(x.b, sample)
	x.put("disk: the log, MiB", x.logMiB())
}

// started waits until a replica is ready, and every shard answers for its idle groups.
func (x *grown) started(k *kafkatest.Keeper) {
	x.t.Helper()
	deadline := time.Now().Add(growthWithin)
	for err := k.Ready(); err != nil; err = k.Ready() {
		if time.Now().After(deadline) || !k.Running() {
			x.t.Fatalf("not ready within %s: %v", growthWithin, err)
		}
		time.Sleep(10 * time.Millisecond) // /readyz is what tells
	}
	if err := answerWithin(x.t.Context(), k.Bootstrap(), x.idle, growthWithin, (*group).fetchSample); err != nil {
		x.t.Fatal(err)
	}
}

func (x *grown) memory(when string) {
	x.t.Helper()
	x.put("memory "+when+", MiB", residentMiB(x.t, x.k.Pid()))
	x.put("… of that Go's heap that is alive, MiB", x.metric("go_memstats_next_gc_bytes")/2/(1<<20)) // GOGC is 100
}

// metric is one of /metrics, summed over its labels.
func (x *grown) metric(name string) (sum float64) {
	x.t.Helper()
	_, body := x.k.Get("/metrics")
	for s := bufio.NewScanner(strings.NewReader(body)); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), name); ok && (rest[0] == ' ' || rest[0] == '{') {
			v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
			if err != nil {
				x.t.Fatal(err)
			}
			sum += v
		}
	}
	return sum
}

func (x *grown) rebuild() {
	if err := os.RemoveAll(x.k.DataDir()); err != nil {
		x.t.Fatal(err)
	}
	began := time.Now()
	x.k.Start()
	x.started(x.k)
	x.took("cold start, the log read from its beginning, until every shard answers", began)
	x.memory("after it")
	x.put("… at most, MiB", peakMiB(x.t, x.k.Pid()))
	x.live = awaitCoordinator(x.t, x.k.Bootstrap())
}

func (x *grown) quiet() {
	x.times("heartbeat, nothing else happens", x.beats(func() { pause(x.t.Context(), x.g.lasting) }))
	x.times("describe an idle group", describeSome(x.t, x.k.Bootstrap(), x.idle))
	x.times("fetch an idle group's offset", phase(x.t, x.k.Bootstrap(), 1, x.idle, 0, (*group).fetchSample).latencies)
	var scrapes []time.Duration
	for range 20 {
		began := time.Now()
		x.metric("go_goroutines")
		scrapes = append(scrapes, time.Since(began))
	}
	x.times("scrape of /metrics", sorted(scrapes))
	if got, want := x.metric("streamkeeper_offset_count"), float64(x.b.groups*x.b.offsets); got < want {
		x.t.Logf("streamkeeper_offset_count is %v before the first count is complete, stored are %v", got, want)
	}
}

func (x *grown) list() {
	resetPeak(x.t, x.k.Pid())
	var list []string
	beats := x.beats(func() {
		var bytes int
		var took time.Duration
		list, bytes, took = listAll(x.t, x.k.Bootstrap())
		x.put("ListGroups, s", took.Seconds())
		x.put("… its answer, MiB", float64(bytes)/(1<<20))
	})
	x.times("heartbeat beside it", beats)
	x.put("memory at it, at most, MiB", peakMiB(x.t, x.k.Pid()))
	if n := x.b.missing(list); n > 0 || !slices.IsSorted(list) {
		x.t.Fatalf("a list of %d groups lacks %d, or is not sorted", len(list), n)
	}
	began := time.Now()
	out, errOut, exit := kafkatest.Streamkeeper(x.t, "list", "--bootstrap-servers", x.k.Bootstrap())
	if lines := strings.Count(out, "\n"); exit != 0 || lines < x.b.groups {
		x.t.Fatalf("streamkeeper list: exit %d, %d lines\n%.1000s", exit, lines, errOut)
	}
	x.took("streamkeeper list", began)
}

func (x *grown) checkpoint() {
	began := time.Now()
	x.k.Stop()
	x.took("stop", began)
	x.put("disk: the data directory, MiB", diskMiB(x.t, x.k.DataDir(), ""))
	began = time.Now()
	x.k.Start()
	x.started(x.k)
	x.took("start from the checkpoint, until every shard answers", began)
}

// sweepNothing measures while one sweep follows the other and nothing has expired, and has a topic deleted of which idle groups have offsets.
func (x *grown) sweepNothing() {
	x.k.Stop()
	x.set(x.k, "offsets.retention.check.interval.ms", "100") // one after the other
	x.k.Start()
	x.started(x.k)
	if err := answerWithin(x.t.Context(), x.k.Bootstrap(), x.live, growthWithin, (*group).beat); err != nil {
		x.t.Fatal(err)
	}
	sweeps := func(more float64) {
		deadline := time.Now().Add(growthWithin)
		for until := x.metric("streamkeeper_cleanup_cycles_total") + more; x.metric("streamkeeper_cleanup_cycles_total") < until; {
			if time.Now().After(deadline) {
				x.t.Fatal("no cleanup cycle has ended")
			}
			time.Sleep(20 * time.Millisecond) // the metric is what tells
		}
	}
	const cycles = "streamkeeper_cleanup_cycles_total"
	sweeps(1) // what a start takes is over
	cpu, done := cpuTime(x.t, x.k.Pid()), x.metric(cycles)
	x.times("heartbeat beside sweeps", x.beats(func() { pause(x.t.Context(), x.g.lasting); sweeps(1) }))
	x.put("processor time of a sweep that finds nothing, and of what is asked beside it, s", (cpuTime(x.t, x.k.Pid())-cpu).Seconds()/(x.metric(cycles)-done))
	x.put("a sweep that finds nothing, s", x.metric("streamkeeper_cleanup_last_duration_ms")/1000)
	x.memory("after sweeps")

	want := float64(x.b.goneGroups() * x.b.offsets)
	kafkatest.Eventually(x.t, time.Minute, func() error { return deleteTopic(x.t, x.c.Addr(1), topicGone) })
	began := time.Now()
	x.times("heartbeat beside that of a deleted topic", x.beats(func() {
		for deadline := time.Now().Add(growthWithin); x.metric("streamkeeper_cleanup_deleted_topics_offsets_total") < want; {
			if time.Now().After(deadline) {
				x.t.Fatalf("%v offsets of a deleted topic were removed, not %v", x.metric("streamkeeper_cleanup_deleted_topics_offsets_total"), want)
			}
			time.Sleep(20 * time.Millisecond) // the metric is what tells
		}
	}))
	x.took(fmt.Sprintf("a topic deleted that one group in %d has offsets of, until they are gone", goneOne), began)
}

func (x *grown) killed() {
	x.set(x.k, "offsets.retention.check.interval.ms", "600000")
	x.k.Kill()
	began := time.Now()
	x.k.Start()
	x.started(x.k)
	x.took("start after a kill, until every shard answers", began)
}

// takeover has a second replica read the log beside the first, and take everything over when that one is stopped.
func (x *grown) takeover() {
	if err := answerWithin(x.t.Context(), x.k.Bootstrap(), x.live, growthWithin, (*group).beat); err != nil {
		x.t.Fatal(err)
	}
	second := newGrownKeeper(x.t, x.c, 1)
	began := time.Now()
	second.Start()
	for second.Ready() != nil {
		if time.Since(began) > growthWithin {
			x.t.Fatalf("the second replica is not ready: %v", second.Ready())
		}
		time.Sleep(20 * time.Millisecond) // /readyz is what tells
	}
	x.took("a second replica reads the log beside it", began)
	began = time.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.k.Stop()
	}()
	err := answerWithin(x.t.Context(), second.Bootstrap(), x.idle, growthWithin, (*group).fetchSample)
	x.took("the first is stopped, until the second answers for every shard", began)
	<-done
	if err != nil {
		x.t.Fatal(err)
	}
	x.k = second
}

// sweepAll starts again with a retention under which all has expired.
func (x *grown) sweepAll() {
	before := x.logMiB()
	x.k.Stop()
	x.set(x.k, "offsets.retention.minutes", retentionShort)
	x.set(x.k, "offsets.retention.check.interval.ms", "1000")
	x.k.Start()
	x.k.WaitReady()
	if err := answerWithin(x.t.Context(), x.k.Bootstrap(), x.live, growthWithin, (*group).beat); err != nil {
		x.t.Fatal(err)
	}
	want := float64(x.b.groups - x.b.goneGroups()) // the others went with the topic of their offsets
	began, cpu := time.Now(), cpuTime(x.t, x.k.Pid())
	removed := func() float64 { return x.metric("streamkeeper_cleanup_groups_removed_total") }
	first := removed() // the sweep may have begun already
	x.times("heartbeat beside a sweep in which everything has expired", x.beats(func() {
		for deadline := time.Now().Add(growthWithin); removed() < want; {
			if time.Now().After(deadline) || !x.k.Running() {
				x.t.Fatalf("%v groups were removed, not %v", removed(), want)
			}
			time.Sleep(20 * time.Millisecond) // the metric is what tells
		}
	}))
	seconds := time.Since(began).Seconds()
	x.put("that sweep, s", seconds)
	x.put("… groups removed per second", (want-first)/seconds)
	x.put("… processor time, s", (cpuTime(x.t, x.k.Pid()) - cpu).Seconds())
	x.put("… the log grows by, MiB", x.logMiB()-before)
	x.put("… memory at most, MiB", peakMiB(x.t, x.k.Pid()))
	if n := x.metric("streamkeeper_shard_overloaded_total"); n > 0 {
		x.t.Errorf("%v requests were refused beside the sweep", n)
	}
	if list, _, _ := listAll(x.t, x.k.Bootstrap()); x.b.missing(list) < x.b.groups || len(list) < len(x.live) {
		x.t.Errorf("after it %d groups are listed, of which %d should be gone, and the %d with members there", len(list), x.b.groups-x.b.missing(list), len(x.live))
	}
	if err := answerWithin(x.t.Context(), x.k.Bootstrap(), x.live, growthWithin, (*group).beat); err != nil {
		x.t.Fatal(err)
	}
	x.k.Stop()
	x.put("disk: the data directory after it, MiB", diskMiB(x.t, x.k.DataDir(), ""))
}

// deleteTopic deletes a topic at the broker.
func deleteTopic(t *testing.T, broker, name string) error {
	ctx, cancel := context.WithTimeout(t.Context(), requestTimeout)
	defer cancel()
	c, err := wire.Dial(ctx, broker, "bench")
	if err != nil {
		return err
	}
	defer c.Close()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.SetVersion(4)
	req.TopicNames, req.TimeoutMillis = []string{name}, 10_000
	kresp, err := c.Exchange(ctx, req)
	if err != nil {
		return err
	}
	if code := kresp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; code != 0 && code != 3 { // 3: it is gone
		return fmt.Errorf("delete topic %s: error %d", name, code)
	}
	return nil
}
