package e2e

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// TestMoveToAnotherCluster: applications are stopped, the log is backed up, their topics are copied record by record, and restored they go on before another
// cluster, of another version, as docs/operations.md says: the same offsets, the same state, nothing counted twice.
func TestMoveToAnotherCluster(t *testing.T) {
	if !*long {
		t.Skip("with -long; the package cmd/streamkeeper restores a backup without real brokers")
	}
	from := startFleet(t, kafkatest.Shared(t, kafka44), 2)
	from.waitSpread(from.nodes...)
	groups := oneGroupEach(t, from, "moving")
	host := kafkatest.StartAppHost(t, kafkatest.V44)
	start := func(r *fleet, group string) *kafkatest.App {
		t.Helper()
		a := host.Start(t, kafkatest.AppOptions{Bootstrap: r.bootstrap(), Group: group, Name: "a", Topology: "counted"})
		a.WaitTasks(2 * partitions)
		return a
	}
	write := func(r *fleet, group string, before map[string]uint64) map[string]uint64 {
		t.Helper()
		l := kafkatest.NewWords(t, r.cluster.Bootstrap(), group+"-in", words)
		l.Send(20 * words)
		counts := l.Counts()
		for word, n := range before {
			counts[word] += n
		}
		kafkatest.Watch(t, r.cluster.Bootstrap(), group+"-out").WaitCounts(counts, outcome)
		for _, in := range []string{group + "-in", group + "-by-value-repartition"} {
			kafkatest.WaitCommitted(t, r.bootstrap(), group, in, outcome)
		}
		return counts
	}
	counts := map[string]map[string]uint64{}
	var apps []*kafkatest.App
	for i, group := range groups {
		kafkatest.CreateTopics(t, from.cluster.Bootstrap(), partitions, group+"-in", group+"-out")
		apps = append(apps, start(from, group))
		counts[group] = write(from, group, nil)
		statusAt(t, from.replicas[from.nodes[i]].Bootstrap(), group, "status 3") // its description is stored
		one := "1"
		alterGroup(t, from.replicas[from.nodes[i]].Bootstrap(), group, "streams.num.standby.replicas", &one)
	}
	for _, a := range apps {
		a.Stop()
	}
	told := map[string]string{}
	tell := func(r *fleet) (out map[string]string) {
		t.Helper()
		tools := kafkatest.Tools(t, r.bootstrap())
		out = map[string]string{}
		for _, group := range groups {
			for _, what := range []string{"--state", "--offsets", "--topology"} {
				said, errOut, exit := tools.Run("kafka-streams-groups", "--describe", what, "--group", group)
				if exit != 0 {
					t.Errorf("kafka-streams-groups --describe %s: exit %d\n%s", what, exit, errOut)
				}
				out[group+" "+what] = coordinatorColumn.ReplaceAllString(said, "…")
			}
			for _, in := range []string{group + "-in", group + "-by-value-repartition"} {
				out[group+" committed of "+in] = fmt.Sprint(kafkatest.Committed(t, r.bootstrap(), group, in))
			}
			d, errOut, exit := kafkatest.Streamkeeper(t, "describe", group, "--bootstrap-servers", r.bootstrap())
			if exit != 0 {
				t.Errorf("streamkeeper describe: exit %d\n%s", exit, errOut)
			}
			out[group+" settings"] = fmt.Sprint(strings.Contains(d, "streams.num.standby.replicas"))
		}
		list, _, _ := tools.Run("kafka-streams-groups", "--list")
		lines := strings.Fields(list)
		slices.Sort(lines)
		out["list"] = strings.Join(lines, " ")
		return out
	}
	for _, group := range groups {
		kafkatest.Eventually(t, outcome, func() error {
			if d := describe(t, from.bootstrap(), group); d.State != "Empty" {
				return fmt.Errorf("%s is %s", group, d.State)
			}
			return nil
		})
	}
	told = tell(from)
	t.Logf("before: %q", told)

	for _, node := range from.nodes {
		from.replicas[node].Stop()
	}
	file := filepath.Join(t.TempDir(), "groups.backup")
	if out, errOut, exit := kafkatest.Streamkeeper(t, "backup", "--bootstrap-servers", from.cluster.Bootstrap(), "--log-topic", from.topic, "--to", file); exit != 0 {
		t.Fatalf("backup: exit %d\n%s%s", exit, out, errOut)
	}
	c := kafkatest.Shared(t, kafka39)
	for _, group := range groups {
		for _, topic := range []string{"-in", "-out", "-by-value-repartition", "-counts-changelog"} {
			mirror(t, from.cluster, c, group+topic)
		}
	}
	if out, errOut, exit := kafkatest.Streamkeeper(t, "restore", "--bootstrap-servers", c.Bootstrap(), "--log-topic", from.topic, "--from", file); exit != 0 {
		t.Fatalf("restore: exit %d\n%s%s", exit, out, errOut)
	}
	to := startFleet(t, c, 2)
	to.waitSpread(to.nodes...)
	if now := tell(to); !maps.Equal(now, told) {
		for what := range told {
			if now[what] != told[what] {
				t.Errorf("%s: was\n%s\nis\n%s", what, told[what], now[what])
			}
		}
	}
	apps = nil
	for _, group := range groups {
		apps = append(apps, start(to, group))
	}
	for i, group := range groups {
		write(to, group, counts[group])
		if u := apps[i].Uncaught(); len(u) > 0 {
			t.Errorf("%s had uncaught exceptions: %q", group, u)
		}
	}
	for _, a := range apps {
		a.Stop()
	}
	checkFenceFrom(t, to.topic, readLog(t, c.Bootstrap(), to.topic))
}

// coordinatorColumn is who has a group, and where: another one now.
var coordinatorColumn = regexp.MustCompile(`\d[\d.:]* \(\d+\)`)

// checkFenceFrom is checkFence from the first ownership record of each partition on: what was restored stands before it.
func checkFenceFrom(t *testing.T, topic string, records map[int32][]logRecord) {
	t.Helper()
	for p, rs := range records {
		i := slices.IndexFunc(rs, func(r logRecord) bool { return r.owner != nil })
		if i < 0 {
			i = len(rs)
		}
		records[p] = rs[i:]
	}
	checkFence(t, topic, records)
}

// mirror copies a topic as it is, with its partitions, settings and offsets.
func mirror(t *testing.T, from, to *kafkatest.Cluster, topic string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), outcome)
	defer cancel()
	configs, err := kafkatest.Admin(t, from.Bootstrap()).DescribeTopicConfigs(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	own := map[string]*string{}
	for _, c := range configs[0].Configs {
		if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
			own[c.Key] = c.Value
		}
	}
	ends := kafkatest.EndOffsets(t, from.Bootstrap(), topic)
	adm := kafkatest.Admin(t, to.Bootstrap())
	if resp, err := adm.CreateTopic(ctx, int32(len(ends)), -1, own, topic); err != nil || resp.Err != nil {
		t.Fatal(err, resp.Err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(to.Bootstrap(), ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.UnknownTopicRetries(100))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	reader, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(from.Bootstrap(), ",")...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	at := map[int32]int64{}
	for p, end := range ends {
		if end > 0 {
			at[p] = 0
		}
	}
	for len(at) > 0 {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%s was read up to %v of %v", topic, at, ends)
		}
		var all []*kgo.Record
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Offset != at[r.Partition] {
				t.Fatalf("%s-%d: after offset %d comes %d: simple copying does not keep offsets", topic, r.Partition, at[r.Partition]-1, r.Offset)
			}
			if at[r.Partition]++; at[r.Partition] == ends[r.Partition] {
				delete(at, r.Partition)
			}
			all = append(all, &kgo.Record{Topic: topic, Partition: r.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: r.Timestamp})
		})
		if err := cl.ProduceSync(ctx, all...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if copied := kafkatest.EndOffsets(t, to.Bootstrap(), topic); !maps.Equal(copied, ends) {
		t.Fatalf("%s ends at %v, the copy at %v", topic, ends, copied)
	}
}
