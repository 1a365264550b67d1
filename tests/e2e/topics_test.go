package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/internal/kafkatest"
)

// TestTopologyThatNeedsInternalTopics: as long as they are missing the group is NotReady and its members are told why;
// when somebody has made them, the application runs and counts.
func TestTopologyThatNeedsInternalTopics(t *testing.T) {
	p := before44.build(t)
	const group = "count"
	in, out := group+"-in", group+"-out"
	internal := []string{group + "-by-value-repartition", group + "-counts-changelog"}
	kafkatest.CreateTopics(t, p.streams, partitions, in, out)
	a := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Topology: "count", In: in, Out: out})

	a.WaitOutput("Internal topics are missing: ")
	for _, topic := range internal {
		if !strings.Contains(a.Output(), topic) {
			t.Errorf("the member was not told that %s is missing", topic)
		}
	}
	stdout, errOut, exit := kafkatest.Tool(t, p.streams, "kafka-streams-groups", "--describe", "--group", group, "--state")
	if exit != 0 || !strings.Contains(stdout, " NotReady ") {
		t.Errorf("describe --state: exit %d\n%s%s", exit, stdout, errOut)
	}
	if stdout, _, _ := kafkatest.Tool(t, p.streams, "kafka-streams-groups", "--describe", "--group", group); stdout != offsetsHeader {
		t.Errorf("describe prints offsets although nobody has tasks:\n%s", stdout)
	}

	kafkatest.CreateTopics(t, p.direct, partitions, internal...)
	countsRight(t, p, a, in, out)
}

// offsetsHeader is all that describing the offsets of a NotReady group prints.
const offsetsHeader = "GROUP           TOPIC           PARTITION  OFFSET-LAG\n"

// TestInternalTopicsThatAreThere: an application whose internal topics exist runs at once. Before Kafka itself the
// coordinator makes them, and the application counts the same.
func TestInternalTopicsThatAreThere(t *testing.T) {
	for _, w := range []world{itself, before39} {
		t.Run(w.name, func(t *testing.T) {
			p := w.build(t)
			group := "there"
			in, out := group+"-in", group+"-out"
			kafkatest.CreateTopics(t, p.streams, partitions, in, out)
			if p.keeper != nil {
				kafkatest.CreateTopics(t, p.streams, partitions, group+"-by-value-repartition", group+"-counts-changelog")
			}
			a := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Topology: "count", In: in, Out: out})
			countsRight(t, p, a, in, out)
			a.Stop()
			deleteGroup(t, p, group)
		})
	}
}

// countsRight writes words, and waits until the application has written each one's count.
func countsRight(t *testing.T, p *place, a *kafkatest.App, in, out string) {
	t.Helper()
	const words, each = 10, 30
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.direct), kgo.ConsumeTopics(out), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	want := map[string]uint64{}
	var records []*kgo.Record
	for i := range words * each {
		word := fmt.Sprintf("word%d", i%words)
		want[word] = each
		records = append(records, &kgo.Record{Topic: in, Key: fmt.Appendf(nil, "k%d", i%31), Value: []byte(word)})
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	a.WaitTasks(2 * partitions)

	ctx, cancel := context.WithTimeout(t.Context(), outcome)
	defer cancel()
	got := map[string]uint64{}
	for !maps.Equal(got, want) && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got[string(r.Key)] = binary.BigEndian.Uint64(r.Value) })
	}
	if !maps.Equal(got, want) {
		t.Fatalf("counts after %s: %v, want %v", outcome, got, want)
	}
	a.WaitState("RUNNING")
	kafkatest.WaitCommitted(t, p.streams, strings.TrimSuffix(in, "-in"), in, 20*time.Second)
}
