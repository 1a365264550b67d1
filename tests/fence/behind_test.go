package fence

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// TestAReplicaThatIsBehindDeniesNothing: a replica whose tail stands still, and then one that has lost its data directory and reads nothing yet, is
// asked for a group that it has not read of. It must not say that there is no offset, or no such group: an application would start over.
func TestAReplicaThatIsBehindDeniesNothing(t *testing.T) {
	t.Parallel()
	for _, version := range versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options(version))
			first := w.owner(0)
			owner, behind := w.nodes[first.NodeID], w.nodes[nodeOne+nodeTwo-first.NodeID]
			tail := behind.relay.HoldAll(isFetch)
			group := w.group(0)
			var epoch int32
			w.until("join", func() (err error) { epoch, err = owner.beat(group, "m", 0); return err })
			w.until("commit", func() error { return owner.commit(group, "m", epoch, 1) })

			behind.deniesNothing("its tail stands still", group, epoch)
			// Whom it has sent away, it leads to the owner all the same.
			if node, err := behind.lookup(group); err != nil || node != owner.node {
				t.Errorf("the replica that is behind names node %d (%v) after it sent a member away, want %d", node, err, owner.node)
			}

			behind.Kill()
			if err := os.RemoveAll(behind.DataDir()); err != nil {
				t.Fatal(err)
			}
			behind.Start()
			w.until("it listens", func() error { _, err := behind.lookup("whatever"); return err })
			behind.deniesNothing("it has read nothing", group, epoch)
			if err := behind.Ready(); err == nil {
				t.Error("a replica that has read nothing says that it is ready")
			}

			tail.Release()
			behind.WaitReady()
			// It is one of the two again, and the group may have moved to it.
			w.until("the offset", func() error {
				var all error
				for _, r := range w.nodes {
					got, err := r.fetch(group)
					if err == nil && got != 1 {
						t.Fatalf("node %d says that the offset is %d", r.node, got)
					}
					if err == nil {
						return nil
					}
					all = errors.Join(all, err)
				}
				return all
			})
		})
	}
}

// deniesNothing asks for the group in all ways whose answer could be that there is none.
func (r *replica) deniesNothing(when, group string, epoch int32) {
	r.t.Helper()
	var wg sync.WaitGroup
	for what, ask := range map[string]func() error{
		"OffsetFetch": func() error {
			got, err := r.fetch(group)
			if err == nil {
				return fmt.Errorf("offset %d", got)
			}
			return err
		},
		"Heartbeat":    func() error { _, err := r.beat(group, "m", epoch); return err },
		"OffsetCommit": func() error { return r.commit(group, "m", epoch, 2) },
		"Describe":     func() error { return r.refusal(kafkatest.DescribeStreams(group)) },
		"DeleteGroups": func() error {
			req := kmsg.NewPtrDeleteGroupsRequest()
			req.Version, req.Groups = 2, []string{group}
			return r.refusal(req)
		},
		"JoinGroup": func() error {
			req := kmsg.NewPtrJoinGroupRequest()
			req.Version, req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 5, group, "consumer", 10_000, 10_000
			p := kmsg.NewJoinGroupRequestProtocol()
			p.Name = "range"
			req.Protocols = append(req.Protocols, p)
			return r.refusal(req)
		},
	} {
		wg.Go(func() {
			err := ask()
			for _, again := range []error{kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable} {
				if errors.Is(err, again) {
					return
				}
			}
			r.t.Errorf("%s, and %s is answered with %v", when, what, err)
		})
	}
	wg.Wait()
}
