package e2e

import (
	"strings"
	"testing"

	"streamkeeper/internal/kafkatest"
)

// TestInternalTopicsThatCannotBeMade: as long as they are missing the group is NotReady and its members are told why; when somebody
// has made them, the application runs and counts. Deleted with the group, they are made at the next start.
func TestInternalTopicsThatCannotBeMade(t *testing.T) {
	p := before44.build(t)
	const group = "unmade"
	in, out := group+"-in", group+"-out"
	internal := []string{group + "-by-value-repartition", group + "-counts-changelog"}
	kafkatest.CreateTopics(t, p.streams, partitions, in, out)
	a := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Topology: "count",
		Config: map[string]string{"replication.factor": "3"}}) // of a cluster with one broker

	const reason = " (Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned.)"
	a.WaitOutput("Internal topics are missing: " + strings.Join(internal, ", ") +
		"; Creation failed: " + internal[0] + reason + ", " + internal[1] + reason + ".")
	stdout, errOut, exit := kafkatest.Tool(t, p.streams, "kafka-streams-groups", "--describe", "--group", group, "--state")
	if exit != 0 || !strings.Contains(stdout, " NotReady ") {
		t.Errorf("describe --state: exit %d\n%s%s", exit, stdout, errOut)
	}
	if stdout, _, _ := kafkatest.Tool(t, p.streams, "kafka-streams-groups", "--describe", "--group", group); stdout != offsetsHeader {
		t.Errorf("describe prints offsets although nobody has tasks:\n%s", stdout)
	}

	kafkatest.CreateTopics(t, p.direct, partitions, internal...)
	a.WaitTasks(2 * partitions)
	c := newCounts(t, p.direct, in, out)
	c.write(t, 30)
	c.wait(t)
	kafkatest.WaitCommitted(t, p.streams, group, in, outcome)

	// Deleted with the group, they are not taken for still there by an application that starts at once: it reads all again and its first
	// counts are new ones.
	a.Stop()
	deleteWithInternalTopics(t, p, group)
	b := kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Name: "b", Topology: "count", In: in, Out: out})
	b.WaitTasks(2 * partitions)
	if u := b.Uncaught(); len(u) > 0 || strings.Count(b.Output(), "STATE RUNNING") != 1 {
		t.Errorf("it did not come up in one go; uncaught exceptions %q:\n%s", u, b.Output())
	}
	c.want = map[string]uint64{}
	c.write(t, 30)
	for word := range c.want {
		c.want[word] = 60
	}
	c.wait(t)
}

// offsetsHeader is all that describing the offsets of a NotReady group prints.
const offsetsHeader = "GROUP           TOPIC           PARTITION  OFFSET-LAG\n"
