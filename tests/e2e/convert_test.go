package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"streamkeeper/internal/kafkatest"
)

func TestConversionKafkaItself(t *testing.T)   { conversionStory(t, itself) }
func TestConversionServeBefore39(t *testing.T) { conversionStory(t, describing39) }

// describing39 keeps topology descriptions, which go before the group does.
var describing39 = world{"serve before 3.9, with descriptions", func(t *testing.T) *place {
	c := kafkatest.Shared(t, kafka39)
	return keeperPlace(kafkatest.StartStreamkeeper(t, serveArgs(t, c, "--plugin", "memory")...), c)
}}

// conversionStory: an application of the classic protocol is stopped, and goes on with the streams protocol where it was. When that one has
// stopped, a plain consumer takes its group over with the classic protocol, and goes on at the committed offsets.
func conversionStory(t *testing.T, w world) {
	p := w.build(t)
	group := "moves-" + strings.NewReplacer(" ", "-", ",", "").Replace(w.name)
	in, out := group+"-in", group+"-out"
	kafkatest.CreateTopics(t, p.streams, partitions, in, out)
	load := kafkatest.NewLoad(t, p.direct, in)
	sink := kafkatest.Watch(t, p.direct, out)
	load.Send(60)
	old := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Name: "old", Protocol: "classic", Close: "leave", Config: map[string]string{"session.timeout.ms": "6000"}})
	sink.WaitAll(60, outcome)
	kafkatest.WaitCommitted(t, p.streams, group, in, outcome)
	old.Stop()
	load.Send(40)
	noMembers(t, p, group) // where it has not left, its session ends

	app := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group})
	app.WaitTasks(partitions)
	if duplicates := sink.WaitAll(100, outcome); duplicates > 0 {
		t.Errorf("%d records came out twice: the application began elsewhere than at the committed offsets", duplicates)
	}
	kafkatest.WaitCommitted(t, p.streams, group, in, outcome)
	if c := p.cluster; p.keeper != nil {
		kafkatest.Eventually(t, outcome, func() error { // the cluster has nothing of it any more
			if got := kafkatest.Committed(t, c.Bootstrap(), group, in); len(got) > 0 {
				return fmt.Errorf("the cluster has %v of a streams group", got)
			}
			return nil
		})
	}
	before := kafkatest.Committed(t, p.streams, group, in)

	// With members the group refuses it.
	_, errOut, _ := kafkatest.Tool(t, p.streams, "kafka-console-consumer", "--topic", in, "--group", group, "--timeout-ms", "20000")
	if !strings.Contains(errOut, "InconsistentGroupProtocolException") {
		t.Errorf("a classic consumer of a group with members:\n%s", errOut)
	}
	app.Stop()

	load.Send(50) // the values 100 to 149
	consumed, errOut, exit := kafkatest.Tool(t, p.streams, "kafka-console-consumer", "--topic", in, "--group", group, "--max-messages", "50", "--timeout-ms", "40000")
	if exit != 0 {
		t.Errorf("a classic consumer of a group without members: exit %d\n%s", exit, errOut)
	}
	var want []string
	for n := 100; n < 150; n++ {
		want = append(want, fmt.Sprint(n))
	}
	if got := strings.Fields(consumed); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("it began elsewhere than at the committed offsets %v: %d records, %v", before, len(got), got)
	}
	kafkatest.WaitCommitted(t, p.direct, group, in, outcome) // at the cluster's own coordinator
	list, _, _ := kafkatest.Tool(t, p.streams, "kafka-groups", "--list")
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == group && f[1] != "Classic" {
			t.Errorf("the group is listed as %q", line)
		}
	}
	if n := strings.Count(list, group+" "); n != 1 {
		t.Errorf("the group is listed %d times:\n%s", n, list)
	}
}

// noMembers waits until a classic group has no members.
func noMembers(t *testing.T, p *place, group string) {
	t.Helper()
	adm := kafkatest.Admin(t, p.streams)
	kafkatest.Eventually(t, outcome, func() error {
		described, err := adm.DescribeGroups(t.Context(), group)
		if err != nil {
			return err
		}
		if d := described[group]; d.State != "Empty" {
			return fmt.Errorf("state %s, %d members, %v", d.State, len(d.Members), d.Err)
		}
		return nil
	})
}
