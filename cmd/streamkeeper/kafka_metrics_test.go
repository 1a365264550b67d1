package main

import (
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// kafkaNames are the sensors and gauges of Kafka 4.4's group-coordinator-metrics (GroupCoordinatorMetrics,
// CoordinatorRuntimeMetricsImpl, StreamsGroupTopologyDescriptionManager), without the endings of meters and histograms.
var kafkaNames = []string{
	"group-count", "streams-group-count", "classic-group-count", "consumer-group-count", "share-group-count", "offset-count",
	"offset-commit", "offset-expiration", "offset-deletion", "streams-group-rebalance", "consumer-group-rebalance", "share-group-rebalance",
	"group-completed-rebalance", "num-partitions", "event-queue-size", "batch-buffer-cache-size-bytes", "batch-buffer-cache-discard-count",
	"partition-load-time", "thread-idle-ratio-avg", "background-thread-idle-ratio-avg", "event-queue-time-ms", "event-processing-time-ms",
	"event-purgatory-time-ms", "batch-linger-time-ms", "batch-flush-time-ms", "background-queue-time-ms", "background-processing-time-ms", "batch-flush-rate",
	"streams-group-topology-description-cleanup-cycle", "streams-group-topology-description-cleanup-eligible",
	"streams-group-topology-description-delete-success", "streams-group-topology-description-delete-error",
	"streams-group-topology-description-set-success", "streams-group-topology-description-set-error",
	"streams-group-topology-description-get-success", "streams-group-topology-description-get-error",
}

// kafkaTable reads the table of docs/operations.md: rows of quoted names, Kafka's and ours.
func kafkaTable(t *testing.T) (theirs, ours []string) {
	t.Helper()
	b, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(b), "## Kafka's metrics\n")
	if !ok {
		t.Fatal("docs/operations.md has no section on Kafka's metrics")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !strings.Contains(cells[1], "`") {
			continue
		}
		names := func(cell string) (out []string) {
			for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
				name, _, _ := strings.Cut(m[1], "{")
				out = append(out, name)
			}
			return out
		}
		theirs, ours = append(theirs, names(cells[1])...), append(ours, names(cells[2])...)
	}
	return theirs, ours
}

// scrape reads /metrics into values by name and labels.
func scrape(t *testing.T, d *dev) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for line := range strings.Lines(metricsOf(t, d)) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndexByte(line, ' '); i > 0 && line[0] != '#' { // a label may have blanks
			v, err := strconv.ParseFloat(line[i+1:], 64)
			if err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			out[line[:i]] = v
		}
	}
	return out
}

// Every metric of Kafka's that makes sense is there under the name that the documentation gives it, and moves when what it measures happens.
func TestKafkasMetrics(t *testing.T) {
	theirs, ours := kafkaTable(t)
	for _, name := range kafkaNames {
		if !slices.ContainsFunc(theirs, func(n string) bool { return n == name || strings.HasPrefix(n, name+"-") }) {
			t.Errorf("docs/operations.md says nothing of Kafka's %s", name)
		}
	}

	d := startDev(t, t.TempDir(), "--plugin", "memory", "--set", "offsets.retention.check.interval.ms=200",
		"--set", "group.streams.min.heartbeat.interval.ms=1", "--set", "group.streams.heartbeat.interval.ms=100")
	produce(t, d, 1)
	idle := scrape(t, d)
	for _, name := range ours {
		if !slices.ContainsFunc(keys(idle), func(n string) bool {
			return n == "streamkeeper_"+name || strings.HasPrefix(n, "streamkeeper_"+name+"{") || n == "streamkeeper_"+name+"_count"
		}) {
			t.Errorf("/metrics has no streamkeeper_%s", name)
		}
	}
	for name, v := range map[string]float64{
		`num_partitions{state="active"}`: 4, `num_partitions{state="loading"}`: 0, `num_partitions{state="failed"}`: 0,
		`group_count{protocol="streams"}`: 0, `streams_group_count{state="Stable"}`: 0, "offset_commit_total": 0, "streams_group_rebalance_rate": 0,
	} {
		if got := idle["streamkeeper_"+name]; got != v {
			t.Errorf("before anything happened %s is %v", name, got)
		}
	}
	if load := idle["streamkeeper_partition_load_time_max"]; math.IsNaN(load) || load <= 0 || load < idle["streamkeeper_partition_load_time_avg"] {
		t.Errorf("the shards were loaded in %v ms at most, %v on average", load, idle["streamkeeper_partition_load_time_avg"])
	}

	m := newMember(t, d, "orders")
	m.join(4)
	m.commit(0, 1)
	m.commit(1, 1)
	if r := m.push("first"); r.ErrorCode != 0 {
		t.Fatalf("push: error %d %v", r.ErrorCode, r.ErrorMessage)
	}
	m.describe89()
	busy := scrape(t, d)
	for name, want := range map[string]float64{
		`group_count{protocol="streams"}`: 1, `streams_group_count{state="Stable"}`: 1, `streams_group_count{state="Empty"}`: 0, "offset_commit_total": 2,
		"streams_group_rebalance_total": 1, "streams_group_topology_description_set_success_total": 1, "streams_group_topology_description_get_success_total": 1,
	} {
		if got := busy["streamkeeper_"+name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{
		"offset_commit_rate", "streams_group_rebalance_rate", "streams_group_topology_description_set_success_rate", "batch_flush_rate",
		"event_queue_time_seconds_count", "event_processing_time_seconds_sum", "event_processing_time_ms_max", "event_processing_time_ms_p999",
		"event_purgatory_time_ms_p50", "event_purgatory_time_seconds_count", "batch_linger_time_seconds_count", "batch_flush_time_ms_p95", "batch_flush_time_seconds_count",
	} {
		if got := busy["streamkeeper_"+name]; got <= 0 || got < idle["streamkeeper_"+name] {
			t.Errorf("%s is %v after it was %v", name, got, idle["streamkeeper_"+name])
		}
	}
	if idle := busy["streamkeeper_thread_idle_ratio_avg"]; idle <= 0 || idle > 1 {
		t.Errorf("the shards' loops are idle %v of the time", idle)
	}
	if p50, p99, top := busy["streamkeeper_event_purgatory_time_ms_p50"], busy["streamkeeper_event_purgatory_time_ms_p99"], busy["streamkeeper_event_purgatory_time_ms_max"]; p50 > p99 || p99 > top {
		t.Errorf("percentiles %v, %v, %v are not in order", p50, p99, top)
	}

	m.leave()
	m.deleteOffset(1)
	m.adminCommit(2, 1) // kept for a millisecond
	waitMetrics(t, d, map[string]float64{
		`streams_group_count{state="Empty"}`: 1, `streams_group_count{state="Stable"}`: 0, "offset_deletion_total": 1, "offset_expiration_total": 1,
	})
	if got := must(t, d, "delete", "orders"); got != "deleted orders\n" {
		t.Fatalf("delete: %q", got)
	}
	waitMetrics(t, d, map[string]float64{
		`group_count{protocol="streams"}`: 0, "offset_deletion_total": 2, "streams_group_topology_description_delete_success_total": 1,
	})
	if cycles := scrape(t, d)["streamkeeper_streams_group_topology_description_cleanup_cycle_total"]; cycles < 1 {
		t.Errorf("%v cleanup cycles", cycles)
	}
}

func keys(m map[string]float64) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// waitMetrics waits until /metrics shows the values.
func waitMetrics(t *testing.T, d *dev, want map[string]float64) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		wrong := ""
		got := scrape(t, d)
		for name, v := range want {
			if got["streamkeeper_"+name] != v {
				wrong += name + " is " + strconv.FormatFloat(got["streamkeeper_"+name], 'g', -1, 64) + ", want " + strconv.FormatFloat(v, 'g', -1, 64) + "\n"
			}
		}
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(wrong)
		}
		time.Sleep(50 * time.Millisecond) // a cleanup cycle comes every 200 ms
	}
}

func (m *member) deleteOffset(partition int32) {
	m.t.Helper()
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = m.group
	r.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "in", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}}}}
	if resp := exchange[*kmsg.OffsetDeleteResponse](m.t, m.c, 0, r); resp.ErrorCode != 0 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		m.t.Fatalf("delete of an offset: %+v", resp)
	}
}

// adminCommit commits without a member, for a time.
func (m *member) adminCommit(partition int32, retentionMs int64) {
	m.t.Helper()
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.RetentionTimeMillis = m.group, retentionMs
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = partition, 1
	r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "in", Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	if resp := exchange[*kmsg.OffsetCommitResponse](m.t, m.c, 4, r); resp.Topics[0].Partitions[0].ErrorCode != 0 {
		m.t.Fatalf("commit without a member: %+v", resp)
	}
}
