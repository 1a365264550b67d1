package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

func TestStatefulEmbeddedLog(t *testing.T) { stateful(t, embedded) }

// stateful is the life of an application with a repartition topic, a store and its changelog, and of a windowed join. Nobody makes
// their internal topics but the coordinator. (In the other worlds the two are among the stories of apps.)
func stateful(t *testing.T, w world) {
	t.Parallel()
	p := w.build(t)
	t.Run("count", func(t *testing.T) {
		t.Parallel() // most of its time it waits for a session time-out
		counting(t, p)
	})
	t.Run("join", func(t *testing.T) {
		t.Parallel()
		joining(t, p)
	})
}

func counting(t *testing.T, p *place) {
	const group = "counting"
	in, out := group+"-in", group+"-out"
	kafkatest.CreateTopics(t, p.streams, partitions, in, out)
	c := newCounts(t, p.direct, in, out)
	start := func(name string) *kafkatest.App {
		return kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Name: name, Topology: "count"})
	}
	settled := func() {
		t.Helper()
		c.wait(t)
		kafkatest.WaitCommitted(t, p.streams, group, in, outcome)
		kafkatest.WaitCommitted(t, p.streams, group, group+"-by-value-repartition", outcome)
	}

	a := start("a")
	a.WaitTasks(2 * partitions)
	internal := map[string]internalTopic{
		group + "-by-value-repartition": {partitions, "cleanup.policy=delete message.timestamp.type=CreateTime retention.ms=-1 segment.bytes=52428800"},
		group + "-counts-changelog":     {partitions, "cleanup.policy=compact message.timestamp.type=CreateTime"},
	}
	checkInternal(t, p, group, internal)
	c.write(t, 30)
	settled()

	b := start("b")
	a.WaitTasks(partitions)
	b.WaitTasks(partitions)
	c.write(t, 30)
	settled()

	// All is committed, so that at-least-once counts nothing twice: b's counts have to come out of the changelog.
	b.Kill()
	c.write(t, 30)
	a.WaitTasks(2 * partitions)
	settled()

	a.Stop()
	for _, app := range []*kafkatest.App{a, b} {
		if u := app.Uncaught(); len(u) > 0 {
			t.Errorf("instance %s had uncaught exceptions: %q", app.Name(), u)
		}
	}
	deleteWithInternalTopics(t, p, group)
	kafkatest.Eventually(t, outcome, func() error { // the deletion of a topic is announced to brokers after it is acknowledged
		if left := internalOf(t, p, group); len(left) > 0 {
			return fmt.Errorf("internal topics are left: %v", left)
		}
		return nil
	})
}

func deleteWithInternalTopics(t *testing.T, p *place, group string) {
	t.Helper()
	stdout, stderr, exit := kafkatest.Tool(t, p.streams, "kafka-streams-groups", "--delete", "--group", group, "--delete-all-internal-topics")
	want := fmt.Sprintf("Deletion of requested streams groups ('%s') was successful.\n"+
		"Deletion of associated internal topics of the streams groups ('%[1]s') was successful.\n", group)
	if exit != 0 || stdout != want {
		t.Errorf("delete: exit %d\n%s%s", exit, stdout, stderr)
	}
}

// joining joins two inputs with different partition counts: the repartition topic takes that of the one which it is joined with.
func joining(t *testing.T, p *place) {
	const group, words = "joining", 40
	in, in2, out, repartition := group+"-in", group+"-in2", group+"-out", group+"-pair-left-repartition"
	kafkatest.CreateTopics(t, p.streams, 2, in)
	kafkatest.CreateTopics(t, p.streams, 3, in2, out)
	cl := newClient(t, p.direct, out)
	write := func(n int) {
		t.Helper()
		var records []*kgo.Record
		for i := range words {
			word := fmt.Sprintf("word%d-%d", n, i)
			records = append(records, &kgo.Record{Topic: in, Key: fmt.Appendf(nil, "k%d", i), Value: []byte(word)},
				&kgo.Record{Topic: in2, Key: []byte(word), Value: []byte("right")})
		}
		if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	got := map[string]int{}
	wait := func(rounds int) {
		t.Helper()
		want := map[string]int{}
		for n := range rounds {
			for i := range words {
				word := fmt.Sprintf("word%d-%d", n, i)
				want[word+"="+word+"+right"] = 1
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), outcome)
		defer cancel()
		for !maps.Equal(got, want) && ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got[string(r.Key)+"="+string(r.Value)]++ })
		}
		if !maps.Equal(got, want) {
			t.Fatalf("joined after %s: %d pairs %v, want %d", outcome, len(got), got, len(want))
		}
		kafkatest.WaitCommitted(t, p.streams, group, in, outcome)
		kafkatest.WaitCommitted(t, p.streams, group, in2, outcome)
		kafkatest.WaitCommitted(t, p.streams, group, repartition, outcome)
	}
	start := func(name string) *kafkatest.App {
		return kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Name: name, Topology: "join", Args: []string{"in2=" + in2}})
	}

	a, b := start("a"), start("b")
	kafkatest.Eventually(t, outcome, func() error {
		if n, m := len(a.Tasks()), len(b.Tasks()); n+m != 5 || n < 2 || m < 2 {
			return fmt.Errorf("the instances have %d and %d tasks", n, m)
		}
		return nil
	})
	const windowed = "cleanup.policy=delete message.timestamp.type=CreateTime retention.ms=87000000"
	checkInternal(t, p, group, map[string]internalTopic{
		repartition: {3, "cleanup.policy=delete message.timestamp.type=CreateTime retention.ms=-1 segment.bytes=52428800"},
		group + "-pairs-this-join-store-changelog":  {3, windowed},
		group + "-pairs-other-join-store-changelog": {3, windowed},
	})
	write(0)
	wait(1)
	b.Kill()
	write(1)
	a.WaitTasks(5)
	wait(2)
	a.Stop()
	if u := a.Uncaught(); len(u) > 0 {
		t.Errorf("uncaught exceptions: %q", u)
	}
	deleteGroup(t, p, group)
}

// internalTopic is what the coordinator decides of an internal topic. The settings are those of the topic itself.
type internalTopic struct {
	partitions int
	settings   string
}

func checkInternal(t *testing.T, p *place, group string, want map[string]internalTopic) {
	t.Helper()
	if got := internalOf(t, p, group); !maps.Equal(got, want) {
		t.Errorf("internal topics\n got %v\nwant %v", got, want)
	}
}

func internalOf(t *testing.T, p *place, group string) map[string]internalTopic {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	adm := kafkatest.Admin(t, p.direct)
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	topics.FilterInternal()
	found := map[string]internalTopic{}
	for _, d := range topics {
		if !strings.HasPrefix(d.Topic, group+"-") || !strings.HasSuffix(d.Topic, "-changelog") && !strings.HasSuffix(d.Topic, "-repartition") {
			continue
		}
		configs, err := adm.DescribeTopicConfigs(ctx, d.Topic)
		if err != nil || configs[0].Err != nil {
			continue // deleted meanwhile
		}
		var settings []string
		for _, c := range configs[0].Configs {
			if c.Source == kmsg.ConfigSourceDynamicTopicConfig {
				settings = append(settings, c.Key+"="+c.MaybeValue())
			}
		}
		slices.Sort(settings)
		found[d.Topic] = internalTopic{len(d.Partitions), strings.Join(settings, " ")}
	}
	return found
}

// counts writes words and watches their counts.
type counts struct {
	in        string
	cl        *kgo.Client
	want, got map[string]uint64
}

func newCounts(t *testing.T, bootstrap, in, out string) *counts {
	return &counts{in: in, cl: newClient(t, bootstrap, out), want: map[string]uint64{}, got: map[string]uint64{}}
}

func newClient(t *testing.T, bootstrap, out string) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(out), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// write writes each of ten words so many times.
func (c *counts) write(t *testing.T, each int) {
	t.Helper()
	const words = 10
	var records []*kgo.Record
	for i := range words * each {
		word := fmt.Sprintf("word%d", i%words)
		c.want[word]++
		records = append(records, &kgo.Record{Topic: c.in, Key: fmt.Appendf(nil, "k%d", i%31), Value: []byte(word)})
	}
	if err := c.cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// wait waits until the last count of each word is right.
func (c *counts) wait(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), outcome)
	defer cancel()
	for !maps.Equal(c.got, c.want) && ctx.Err() == nil {
		c.cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { c.got[string(r.Key)] = binary.BigEndian.Uint64(r.Value) })
	}
	if !maps.Equal(c.got, c.want) {
		t.Fatalf("counts after %s: %v, want %v", outcome, c.got, c.want)
	}
}
