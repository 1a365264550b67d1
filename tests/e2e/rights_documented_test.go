package e2e

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// TestTheRightsThatAreDocumentedSuffice: a replica, a backup and a restore that may do at the cluster what docs/operations.md says that they need, and nothing else.
// Without the right to see the brokers' settings a replica says what follows from that, and serves.
func TestTheRightsThatAreDocumentedSuffice(t *testing.T) {
	t.Parallel()
	c := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V44, Properties: kafkatest.Guarded})
	r := newFleet(t, c, 1)
	relay := kafkatest.NewRelay(t, "127.0.0.1", "guarded")
	relay.From(secondHost)
	through := relay.Through(c.Bootstrap())
	r.replicas[nodeOne].Set("--bootstrap-servers", through)
	kafkatest.CreateTopics(t, c.Bootstrap(), partitions, "ownership-in")

	rule := func(kind kmsg.ACLResourceType, name, host string, operations ...kmsg.ACLOperation) (rules []kafkatest.Rule) {
		name, prefixed := strings.CutSuffix(name, "…")
		for _, o := range operations {
			rules = append(rules, kafkatest.Rule{Kind: kind, Name: name, Prefixed: prefixed, Operation: o, Host: host})
		}
		return rules
	}
	const (
		read, write, create, describe        = kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate, kmsg.ACLOperationDescribe
		describeConfigs, alterConfigs        = kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs
		topic, group, transactional, cluster = kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup, kmsg.ACLResourceTypeTransactionalId, kmsg.ACLResourceTypeCluster
		theCluster                           = "kafka-cluster" // the name of the one resource of its kind
	)
	// The brokers and this test come from another address, and may do everything.
	for kind, name := range map[kmsg.ACLResourceType]string{topic: "*", group: "*", transactional: "*", cluster: theCluster} {
		c.AddRules(rule(kind, name, "127.0.0.1", kmsg.ACLOperationAll)...)
	}
	settings := rule(cluster, theCluster, secondHost, describeConfigs)
	both := rule(topic, r.topic+"…", secondHost, read, write, describe, describeConfigs, create) // the topic of descriptions has a longer name
	c.AddRules(settings...)
	c.AddRules(both...)
	c.AddRules(rule(group, "streamkeeper-"+r.topic, secondHost, read)...)
	c.AddRules(rule(transactional, r.topic+"-…", secondHost, write, describe)...)
	c.AddRules(rule(topic, "*", secondHost, describe)...)
	c.AddRules(rule(group, "*", secondHost, describe)...)

	r.replicas[nodeOne].Start()
	r.replicas[nodeOne].WaitReady()
	all := r.seek()
	const unread = "the brokers' settings can't be read"
	r.during(all, "with the rights that are documented", func() {})
	if said := r.replicas[nodeOne].Output(); strings.Contains(said, unread) || strings.Contains(said, "AUTHORIZATION_FAILED") {
		t.Errorf("a right is missing:\n%s", said)
	}
	r.during(all, "without the brokers' settings", func() {
		c.RemoveRules(settings...)
		r.replicas[nodeOne].Restart()
	})
	if said := r.replicas[nodeOne].Output(); !strings.Contains(said, unread) {
		t.Errorf("nothing is said of the brokers' settings:\n%s", said)
	}
	r.replicas[nodeOne].Stop()

	c.RemoveRules(both...)
	c.AddRules(rule(topic, r.topic+"…", secondHost, read, describe)...)
	file := t.TempDir() + "/backup"
	if out, said, exit := kafkatest.Streamkeeper(t, "backup", "--bootstrap-servers", through, "--log-topic", r.topic, "--to", file); exit != 0 {
		t.Fatalf("backup: exit %d\n%s%s", exit, out, said)
	}
	again := "again" + r.topic
	c.AddRules(rule(topic, again+"…", secondHost, describe, describeConfigs, write, alterConfigs, create)...)
	if out, said, exit := kafkatest.Streamkeeper(t, "restore", "--bootstrap-servers", through, "--log-topic", again, "--from", file); exit != 0 || strings.Contains(said, "can't be marked") {
		t.Errorf("restore: exit %d\n%s%s", exit, out, said)
	}
}
