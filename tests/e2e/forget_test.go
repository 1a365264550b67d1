package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// forgetAway: the dead replica and the hanging one are named in Metadata for a day, and an admin client of an application, which has a name of its own and asks
// every node, gets no list. They are forgotten, one by Kafka's own tool for brokers that are gone and one by ours. One that starts later does not know them, and the
// hanging one is back when it wakes up.
func (r *fleet) forgetAway(alive, dead, hanging int32, groups []string) {
	r.t.Helper()
	t, k := r.t, r.replicas[alive]
	list := func(within, request time.Duration) (string, int) {
		named := filepath.Join(t.TempDir(), "admin.properties")
		settings := fmt.Sprintf("client.id=orders-admin\ndefault.api.timeout.ms=%d\nrequest.timeout.ms=%d\n", within.Milliseconds(), request.Milliseconds())
		if err := os.WriteFile(named, []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		out, errOut, exit := kafkatest.Tools(t, k.Bootstrap()).Run("kafka-groups", "--list", "--command-config", named)
		return out + errOut, exit
	}
	if out, exit := list(8*time.Second, 4*time.Second); exit == 0 && strings.Contains(out, groups[0]) {
		t.Errorf("an admin client that asks every node has a list although two do not answer, so this test shows nothing:\n%s", out)
	}
	r.shows(k, alive, dead, hanging)

	forget := func(node int32) (string, int) {
		out, errOut, exit := kafkatest.Streamkeeper(t, "forget", fmt.Sprint(node), "--bootstrap-servers", k.Bootstrap())
		return out + errOut, exit
	}
	if out, exit := forget(alive); exit != 1 || !strings.Contains(out, fmt.Sprintf("Node %d is a replica that runs", alive)) {
		t.Errorf("one that runs: exit %d\n%s", exit, out)
	}
	if out, exit := forget(1); exit != 1 || !strings.Contains(out, "No replica with node id 1 was seen") {
		t.Errorf("the id of a broker: exit %d\n%s", exit, out)
	}
	if out, errOut, exit := kafkatest.Streamkeeper(t, "forget", "1", "--bootstrap-servers", r.cluster.Bootstrap()); exit != 1 || !strings.Contains(errOut, "is no replica") {
		t.Errorf("asked of a broker: exit %d\n%s%s", exit, out, errOut)
	}
	out, errOut, exit := kafkatest.Tool(t, "", "kafka-cluster", "unregister", "--bootstrap-server", k.Bootstrap(), "--id", fmt.Sprint(dead))
	if exit != 0 || !strings.Contains(out, fmt.Sprintf("Broker %d is no longer registered.", dead)) {
		t.Errorf("kafka-cluster unregister: exit %d\n%s%s", exit, out, errOut)
	}
	if out, exit := forget(hanging); exit != 0 || !strings.Contains(out, fmt.Sprintf("forgotten: node %d", hanging)) {
		t.Errorf("one that hangs: exit %d\n%s", exit, out)
	}
	r.shows(k, alive)
	out, exit = list(time.Minute, 30*time.Second) // now all answer, as slow as the machine may be
	for _, g := range groups {
		if exit != 0 || !strings.Contains(out, g) {
			t.Errorf("now the admin client lacks %s: exit %d\n%s", g, exit, out)
		}
	}

	later := kafkatest.NewStreamkeeper(t, serveArgs(t, r.cluster, "--plugin", "none", "--node-id", fmt.Sprint(nodeOne+9))...)
	later.Start()
	later.WaitReady()
	r.shows(later, alive, nodeOne+9)

	out, errOut, exit = kafkatest.Streamkeeper(t, "forget", fmt.Sprint(nodeOne+9), "--bootstrap-servers", k.Bootstrap())
	if exit != 1 || !strings.Contains(errOut, "is in the ownership group") {
		t.Errorf("another one that runs: exit %d\n%s%s", exit, out, errOut)
	}
	r.replicas[hanging].Resume()
	r.shows(k, alive, hanging, nodeOne+9)
	r.shows(later, alive, hanging, nodeOne+9)
}

// shows waits until a replica names these replicas in Metadata, and no others.
func (r *fleet) shows(k *kafkatest.Keeper, want ...int32) {
	r.t.Helper()
	kafkatest.Eventually(r.t, takeover, func() error {
		var got []int32
		for _, b := range exchange(r.t, k, kafkatest.Nodes()).(*kmsg.MetadataResponse).Brokers {
			if b.NodeID >= nodeOne {
				got = append(got, b.NodeID)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("%s shows the replicas %v, want %v", k.Bootstrap(), got, want)
		}
		return nil
	})
}

// TestForgottenBesideAnOlderReplica: where replicas of two versions are, the older one is asked in vain and changes nothing of it, whichever of them owns the shard in
// which it is written; it goes on listing the replica, and today's does not, also after the older one alone had the log.
func TestForgottenBesideAnOlderReplica(t *testing.T) {
	t.Parallel()
	before, older := kafkatest.OlderBinary(t, upgradeFromCommits(t)[0])
	if !older {
		t.Skip("the older version is not in the history of this clone")
	}
	r := newFleet(t, kafkatest.Shared(t, kafka44), 3, "--plugin", "none")
	old, today, lost := r.nodes[0], r.nodes[1], r.nodes[2]
	r.replicas[old].Use(before)
	for _, node := range r.nodes {
		r.replicas[node].Start()
	}
	for _, node := range r.nodes {
		r.replicas[node].WaitReady()
	}
	r.waitSpread(r.nodes...)
	r.replicas[lost].Kill()
	r.waitSpread(old, today)

	forget := func(asked int32, exit int, want string) {
		t.Helper()
		out, errOut, code := kafkatest.Streamkeeper(t, "forget", fmt.Sprint(lost), "--bootstrap-servers", r.replicas[asked].Bootstrap())
		if code != exit || !strings.Contains(out+errOut, want) {
			t.Fatalf("asked of %d: exit %d, want %d with %q\n%s%s", asked, code, exit, want, out, errOut)
		}
	}
	forget(old, 1, "is no replica that can do it")
	if owner, _ := r.ownerOf("streamkeeper-" + r.topic); owner == old {
		forget(today, 1, "is of a version that can't: upgrade it first")
		r.replicas[old].Stop()
		r.waitSpread(today)
		forget(today, 0, "forgotten: node")
		r.replicas[old].Start()
		r.waitSpread(old, today)
	} else {
		forget(today, 0, "forgotten: node")
	}
	r.shows(r.replicas[today], old, today)
	r.shows(r.replicas[old], old, today, lost)

	r.replicas[today].Stop()
	r.waitSpread(old)
	r.replicas[today].Start()
	r.waitSpread(old, today)
	r.shows(r.replicas[today], old, today)
	r.replicas[old].Stop()
	r.replicas[old].Use(kafkatest.CurrentBinary(t))
	r.replicas[old].Start()
	r.waitSpread(old, today)
	r.shows(r.replicas[old], old, today)
}
