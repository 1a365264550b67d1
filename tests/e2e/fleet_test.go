package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

const (
	nodeOne = int32(1000001) // the others follow
	nodeTwo = int32(1000002)
	// takeover is how long a dead replica's shards may be without an owner: the session of the ownership group (6 s),
	// the next rebalance, and a busy machine.
	takeover = 30 * time.Second
)

// fleet is some replicas before one cluster.
type fleet struct {
	t        *testing.T
	cluster  *kafkatest.Cluster
	topic    string
	nodes    []int32 // their node ids, in order
	replicas map[int32]*kafkatest.Keeper
}

// startFleet starts so many replicas and waits until they are ready.
func startFleet(t *testing.T, c *kafkatest.Cluster, n int, more ...string) *fleet {
	r := newFleet(t, c, n, more...)
	for _, node := range r.nodes {
		r.replicas[node].Start()
	}
	for _, node := range r.nodes {
		r.replicas[node].WaitReady()
	}
	return r
}

// newFleet is startFleet for replicas that are not started yet.
func newFleet(t *testing.T, c *kafkatest.Cluster, n int, more ...string) *fleet {
	r := &fleet{t: t, cluster: c, replicas: map[int32]*kafkatest.Keeper{}}
	for i := range n {
		node := nodeOne + int32(i)
		r.nodes = append(r.nodes, node)
		r.replicas[node] = kafkatest.NewStreamkeeper(t, serveArgs(t, c, append([]string{"--node-id", fmt.Sprint(node)}, more...)...)...)
	}
	r.topic = r.replicas[nodeOne].LogTopic()
	return r
}

func startTwoReplicas(t *testing.T, more ...string) *fleet {
	return startFleet(t, kafkatest.Shared(t, kafka44), 2, more...)
}

func (r *fleet) owners() map[int32]*ownership {
	r.t.Helper()
	return owners(readLog(r.t, r.cluster.Bootstrap(), r.topic))
}

// waitShares waits until the shards are owned like that, node by node.
func (r *fleet) waitShares(want ...int) {
	r.t.Helper()
	kafkatest.Eventually(r.t, takeover, func() error {
		got := shares(r.owners())
		for i, n := range want {
			if got[r.nodes[i]] != n {
				return fmt.Errorf("shards by owner %v, want %d", got, want)
			}
		}
		return nil
	})
}

// waitSharesOf waits until the node owns so many shards.
func (r *fleet) waitSharesOf(node int32, n int) {
	r.t.Helper()
	kafkatest.Eventually(r.t, takeover, func() error {
		if got := shares(r.owners()); got[node] != n {
			return fmt.Errorf("shards by owner %v, want %d of node %d", got, n, node)
		}
		return nil
	})
}

// waitSpread waits until all shards are owned, by these nodes alone, and none of them has more than one more than another.
func (r *fleet) waitSpread(nodes ...int32) {
	r.t.Helper()
	total := len(kafkatest.EndOffsets(r.t, r.cluster.Bootstrap(), r.topic))
	kafkatest.Eventually(r.t, takeover, func() error {
		got, sum := shares(r.owners()), 0
		for _, n := range nodes {
			if got[n] < total/len(nodes) {
				return fmt.Errorf("shards by owner %v, want all %d spread over %v", got, total, nodes)
			}
			sum += got[n]
		}
		if sum != total {
			return fmt.Errorf("shards by owner %v, want all %d spread over %v", got, total, nodes)
		}
		return nil
	})
}

// without are the nodes but that one.
func (r *fleet) without(node int32) []int32 {
	return slices.DeleteFunc(slices.Clone(r.nodes), func(n int32) bool { return n == node })
}

// ownerOf is the node that owns the group's shard now, and another one.
func (r *fleet) ownerOf(group string) (owner, other int32) {
	r.t.Helper()
	o := r.owners()[partitionOf(group, int32(len(kafkatest.EndOffsets(r.t, r.cluster.Bootstrap(), r.topic))))]
	if o == nil {
		r.t.Fatalf("nobody owns the shard of group %s", group)
	}
	return o.NodeID, r.without(o.NodeID)[0]
}

func (r *fleet) waitOwner(group string, node int32) {
	r.t.Helper()
	kafkatest.Eventually(r.t, takeover, func() error {
		if now, _ := r.ownerOf(group); now != node {
			return fmt.Errorf("node %d owns the shard of %s, want %d", now, group, node)
		}
		return nil
	})
}

func (r *fleet) bootstrap() string {
	var all []string
	for _, node := range r.nodes {
		all = append(all, r.replicas[node].Bootstrap())
	}
	return strings.Join(all, ",")
}

// tell prints how the replicas see a group when the test has failed.
func (r *fleet) tell(group string) {
	if !r.t.Failed() {
		return
	}
	out, errOut, _ := kafkatest.Streamkeeper(r.t, "log", "--bootstrap-servers", r.cluster.Bootstrap(), "--log-topic", r.topic, "--group", group)
	r.t.Logf("the group's records, newest last:\n%s%s", out[max(0, len(out)-20000):], errOut)
	for id, k := range r.replicas {
		if !k.Running() {
			continue
		}
		all := []kmsg.Request{kafkatest.FindCoordinators(group)}
		for _, q := range groupRequests(group, "", -1) {
			all = append(all, q.req)
		}
		for _, req := range all {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			resp, err := kafkatest.Ask(ctx, k.Bootstrap(), req)
			cancel()
			r.t.Logf("replica %d answers %s with %+v %v", id, kmsg.NameForKey(req.Key()), resp, err)
		}
	}
}
