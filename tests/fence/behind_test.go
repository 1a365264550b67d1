package fence

import (
	"errors"
	"os"
	"testing"
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
			w.until("configure", func() error { return owner.configure(group) })

			w.denyNothing("its tail stands still", behind, owner, group, epoch)
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
			w.denyNothing("it has read nothing", behind, owner, group, epoch)
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
