package e2e

import (
	"strings"
	"testing"

	"streamkeeper/internal/kafkatest"
)

// TestInternalTopicsThatCannotBeMade: as long as they are missing the group is NotReady and its members are told why; when somebody
// has made them, the application runs and counts.
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
}

// offsetsHeader is all that describing the offsets of a NotReady group prints.
const offsetsHeader = "GROUP           TOPIC           PARTITION  OFFSET-LAG\n"
