package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

const (
	// secondHost is an address of this machine other than the one from which everybody else reaches the brokers.
	secondHost = "127.0.0.2"
	// believed is how long a replica believes at least that it has no right, before it tries again, with the move of the shards.
	believed = 2 * time.Minute
)

// newGuarded is a fleet of two before a cluster that heeds ACLs, and sees the second replica come from another host.
func newGuarded(t *testing.T) *fleet {
	t.Helper()
	c := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V44, Properties: kafkatest.Guarded})
	r := newFleet(t, c, 2, "--plugin", "none")
	relay := kafkatest.NewRelay(t, "127.0.0.1", fmt.Sprint(nodeTwo))
	relay.From(secondHost)
	r.replicas[nodeTwo].Set("--bootstrap-servers", relay.Through(c.Bootstrap()))
	for _, node := range r.nodes {
		r.replicas[node].Start()
	}
	for _, node := range r.nodes {
		r.replicas[node].WaitReady()
	}
	r.waitSpread(r.nodes...)
	// What a rule is about is closed to all others but where a rule opens it.
	c.AddRules(
		kafkatest.Rule{Kind: kmsg.ACLResourceTypeTopic, Name: r.topic, Operation: kmsg.ACLOperationAll, Host: "*"},
		kafkatest.Rule{Kind: kmsg.ACLResourceTypeTransactionalId, Name: r.topic + "-", Prefixed: true, Operation: kmsg.ACLOperationAll, Host: "*"},
	)
	return r
}

// no is the rule that takes a right on the log away from a host.
func (r *fleet) no(operation kmsg.ACLOperation, host string) kafkatest.Rule {
	return kafkatest.Rule{Kind: kmsg.ACLResourceTypeTopic, Name: r.topic, Operation: operation, Host: host, Deny: true}
}

// saysDeclined waits until a replica says everywhere that it leaves all shards to others because of its rights, in these words.
func (r *fleet) saysDeclined(node int32, words ...string) {
	r.t.Helper()
	k := r.replicas[node]
	kafkatest.Eventually(r.t, outcome, func() error {
		if _, body := k.Get("/metrics"); !strings.Contains(body, fmt.Sprintf("streamkeeper_shard_declined{reason=\"rights\"} %s\n", logPartitions)) {
			return fmt.Errorf("/metrics of replica %d does not say that it declines %s shards for its rights", node, logPartitions)
		}
		status, body := k.Get("/readyz")
		for _, w := range words {
			if status != http.StatusServiceUnavailable || !strings.Contains(body, w) {
				return fmt.Errorf("/readyz of replica %d does not say %q: %d %s", node, w, status, body)
			}
		}
		return nil
	})
	out, errOut, exit := kafkatest.Streamkeeper(r.t, "shards", "--bootstrap-servers", r.cluster.Bootstrap(), "--log-topic", r.topic, "--admin", k.Admin())
	if exit != 0 || !strings.Contains(out, fmt.Sprintf("Left to others by %d: shards ", node)) || !strings.Contains(out, ": rights: ") {
		r.t.Errorf("streamkeeper shards: exit %d %s\n%s", exit, errOut, out)
	}
}

// TestRightsThatTheClusterTakesAway: the cluster refuses one of two replicas a right on the log. The other one takes all shards, and members are told nothing that
// they would not try again after. Refused to both, the shards stay where they are, and are served again when it is given back.
func TestRightsThatTheClusterTakesAway(t *testing.T) {
	t.Parallel()
	r := newGuarded(t)
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), partitions, "ownership-in")
	all := r.seek()
	r.during(all, "the groups are made", func() {})
	taken := []struct {
		what string
		rule kafkatest.Rule
		do   func()
		say  string
	}{
		{"it may not read the log", r.no(kmsg.ACLOperationRead, secondHost), func() {}, "READ"},
		{"it may not write the log", r.no(kmsg.ACLOperationWrite, secondHost), func() {}, "WRITE"},
		{"it may not see the log", r.no(kmsg.ACLOperationDescribe, secondHost), func() {}, "DESCRIBE"},
		{"it may not claim", kafkatest.Rule{Kind: kmsg.ACLResourceTypeTransactionalId, Name: r.topic + "-", Prefixed: true, Operation: kmsg.ACLOperationWrite, Host: secondHost, Deny: true},
			func() { r.replicas[nodeTwo].Stop(); r.replicas[nodeTwo].Start() }, "transactional id"},
	}
	if !*long {
		taken = taken[:1]
	}
	for _, x := range taken {
		r.during(all, x.what, func() {
			r.cluster.AddRules(x.rule)
			x.do()
			kafkatest.Eventually(t, believed, func() error { // who may not see the log hears of it after half a minute
				if got := shares(r.owners()); got[nodeTwo] > 0 {
					return fmt.Errorf("shards by owner %v", got)
				}
				return nil
			})
			r.waitSpread(nodeOne)
			r.saysDeclined(nodeTwo, "rights", x.say)
		})
		r.cluster.RemoveRules(x.rule)
		if *long {
			r.during(all, "it may again", func() {
				kafkatest.Eventually(t, believed, func() error {
					if got := shares(r.owners()); got[nodeTwo] == 0 {
						return fmt.Errorf("shards by owner %v", got)
					}
					return nil
				})
				r.waitSpread(r.nodes...)
				r.replicas[nodeTwo].WaitReady()
			})
			r.replicas[nodeTwo].Restart() // or it would believe the next reason for longer
			r.waitSpread(r.nodes...)
		}
	}
	r.during(all, "nobody may write the log", func() {
		r.cluster.AddRules(r.no(kmsg.ACLOperationWrite, "*"))
		r.saysDeclined(nodeOne, "rights", "WRITE")
		r.cluster.RemoveRules(r.no(kmsg.ACLOperationWrite, "*"))
	})
	checkFence(t, r.topic, readLog(t, r.cluster.Bootstrap(), r.topic))
}

// TestRightsUnderApplications is the same under real applications, which see nothing but a pause.
func TestRightsUnderApplications(t *testing.T) {
	if !*long {
		t.Skip("with -long; TestRightsThatTheClusterTakesAway has members by hand")
	}
	r := newGuarded(t)
	tr := startTroupe(t, r, "righteous")
	for _, operation := range []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite} {
		tr.during(fmt.Sprintf("a replica may not %s", operation), func() {
			r.cluster.AddRules(r.no(operation, secondHost))
			r.waitSpread(nodeOne)
		})
		tr.during("it may again", func() {
			r.cluster.RemoveRules(r.no(operation, secondHost))
			kafkatest.Eventually(t, believed, func() error {
				if got := shares(r.owners()); got[nodeTwo] == 0 {
					return fmt.Errorf("shards by owner %v", got)
				}
				return nil
			})
			r.waitSpread(r.nodes...)
		})
		r.replicas[nodeTwo].Restart() // or it would believe the next reason for longer
		r.waitSpread(r.nodes...)
	}
	tr.during("nobody may write", func() {
		r.cluster.AddRules(r.no(kmsg.ACLOperationWrite, "*"))
		r.saysDeclined(nodeOne, "rights")
		r.cluster.RemoveRules(r.no(kmsg.ACLOperationWrite, "*"))
	})
	tr.finish()
}
