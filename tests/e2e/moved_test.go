package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"streamkeeper/internal/kafkatest"
)

// TestLogIsMovedToOtherBrokers: the partitions of the log are moved to other brokers with Kafka's tool under running applications, and then a broker that has none any
// more is stopped for good: nobody notices.
func TestLogIsMovedToOtherBrokers(t *testing.T) {
	if !*long {
		t.Skip("with -long: it takes three brokers")
	}
	c := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V44, Brokers: 3})
	r := startFleet(t, c, 2, "--log-replication-factor", "2")
	tr := startTroupe(t, r, "moved")
	move := func(brokers ...int) {
		t.Helper()
		var parts []string
		for p := range int32(len(r.owners())) {
			i := int(p) % len(brokers)
			parts = append(parts, fmt.Sprintf(`{"topic":%q,"partition":%d,"replicas":[%d,%d]}`, r.topic, p, brokers[i], brokers[(i+1)%len(brokers)]))
		}
		file := filepath.Join(t.TempDir(), "plan.json")
		if err := os.WriteFile(file, fmt.Appendf(nil, `{"version":1,"partitions":[%s]}`, strings.Join(parts, ",")), 0o600); err != nil {
			t.Fatal(err)
		}
		tools := kafkatest.Tools(t, c.Bootstrap())
		if out, errOut, exit := tools.Run("kafka-reassign-partitions", "--execute", "--reassignment-json-file", file); exit != 0 {
			t.Fatalf("kafka-reassign-partitions --execute: exit %d\n%s%s", exit, out, errOut)
		}
		kafkatest.Eventually(t, outcome, func() error {
			out, errOut, exit := tools.Run("kafka-reassign-partitions", "--verify", "--reassignment-json-file", file)
			if n := strings.Count(out, "is completed."); exit != 0 || n != len(parts) {
				return fmt.Errorf("%d of %d are moved: exit %d\n%s%s", n, len(parts), exit, out, errOut)
			}
			return nil
		})
		if out, errOut, exit := tools.Run("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions"); exit != 0 {
			t.Errorf("kafka-leader-election: exit %d\n%s%s", exit, out, errOut)
		}
	}
	before := claims(readLog(t, c.Addr(1), r.topic))
	tr.during("the log is moved to the brokers 1 and 2", func() { move(1, 2) })
	tr.during("the log is moved to the brokers 2 and 3", func() { move(2, 3) })
	tr.during("and back to all", func() { move(1, 2, 3) })
	after := claims(readLog(t, c.Addr(1), r.topic))
	for p, n := range before {
		if after[p] != n {
			t.Errorf("shard %d was claimed %d times more", p, after[p]-n)
		}
	}
	for _, node := range r.nodes {
		if s := r.replicas[node].Output(); slices.ContainsFunc(strings.Split(s, "\n"), func(l string) bool { return strings.Contains(l, "ERROR") }) {
			t.Errorf("replica %d logs errors:\n%s", node, s)
		}
	}
	tr.finish()
	checkFence(t, r.topic, readLog(t, c.Addr(1), r.topic))
}
