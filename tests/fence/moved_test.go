package fence

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"streamkeeper/internal/kafkatest"
)

// threeBrokers are needed to move leaders.
func threeBrokers(version string) kafkatest.Options {
	o := options(version)
	o.Brokers = 3
	return o
}

// moves are what can happen to the leader of the shard's partition while the owner is replaced.
var moves = []struct {
	name string
	play func(*stage)
	// always: without -full, too.
	always bool
}{
	{name: "the append arrives where no leader is any more", play: func(s *stage) {
		s.former.Pause()
		s.waitOwner(0, s.next.node, s.behind)
		s.useNext(s.next, s.group, "m2", nextOffset)
		s.moveLeader(0)
		s.former.relay.Drop(s.held)
	}},
	{name: "the leader moves before the successor claims", play: func(s *stage) {
		s.former.Pause()
		s.moveLeader(0)
		s.waitOwner(0, s.next.node, s.behind)
		s.useNext(s.next, s.group, "m2", nextOffset)
		s.former.relay.Drop(s.held)
	}},
	{name: "the leader dies with the append, which not all replicas have", always: true, play: func(s *stage) {
		leader, followers := s.replicas(0)
		s.cluster.Pause(followers[0])
		before := s.logBytes(leader, 0)
		s.former.relay.Drop(s.held)
		kafkatest.Eventually(s.t, patience, func() error {
			if s.logBytes(leader, 0) == before {
				return errors.New("the leader has not written the append yet")
			}
			return nil
		})
		s.former.Pause()
		s.cluster.Kill(leader)
		s.cluster.Resume(followers[0])
		s.waitOwner(0, s.next.node, s.behind)
		s.useNext(s.next, s.group, "m2", nextOffset)
		s.cluster.Restart(leader)
	}},
	{name: "a leader that hung comes back with the append", play: func(s *stage) {
		leader, _ := s.replicas(0)
		s.cluster.Pause(leader)
		s.former.relay.Drop(s.held) // into the sockets of a broker that sleeps
		arrive()
		s.former.Pause()
		began := time.Now()
		s.waitOwner(0, s.next.node, s.behind)
		s.t.Logf("the successor's claim was seen after %v", time.Since(began))
		s.useNext(s.next, s.group, "m2", nextOffset)
		s.t.Logf("the successor was used after %v", time.Since(began))
		if now, _ := s.replicas(0); now == leader {
			s.t.Errorf("broker %d still leads: nothing is tested", leader)
		}
		s.cluster.Resume(leader) // for a moment it takes itself for the leader
	}},
}

// TestTheLeaderMoves: the fence is in the memory of the partition's leader, and holds when another broker leads.
func TestTheLeaderMoves(t *testing.T) {
	t.Parallel()
	for _, version := range versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, threeBrokers(version))
			for _, m := range moves {
				if !m.always && !*full {
					continue
				}
				t.Run(m.name, func(t *testing.T) {
					w.t = t
					s := w.commitUnderWay()
					m.play(s)
					s.useNext(s.next, s.group, "m3", nextOffset+1)
					asleep := s.askAsleep(s.former, s.group, s.epoch)
					s.former.Resume()
					s.askWoken(s.former, s.group)
					asleep()
					if err := <-s.late; err != nil {
						s.mayBe("late", err)
					}
					s.useOwner(0, s.group, "m4", lastOffset)
					s.ready()
					s.waitInSync(0)
				})
			}
			w.t = t
			w.refused(w.judge(0))
		})
	}
}

// describePartition asks the cluster for a partition of the log.
func (w *world) describePartition(p int32) (kadm.PartitionDetail, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	topics, err := kafkatest.Admin(w.t, w.cluster.Bootstrap()).ListTopicsWithInternal(ctx, w.topic)
	if err != nil {
		return kadm.PartitionDetail{}, err
	}
	d := topics[w.topic].Partitions[p]
	return d, d.Err
}

// replicas are the leader of a partition and the others that have it.
func (w *world) replicas(p int32) (leader int, followers []int) {
	w.t.Helper()
	d, err := w.describePartition(p)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range d.Replicas {
		if r != d.Leader {
			followers = append(followers, int(r))
		}
	}
	return int(d.Leader), followers
}

// moveLeader makes another replica the preferred one, and has it elected.
func (w *world) moveLeader(p int32) {
	w.t.Helper()
	adm := kafkatest.Admin(w.t, w.cluster.Bootstrap())
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	before, err := w.describePartition(p)
	if err != nil {
		w.t.Fatal(err)
	}
	order := slices.DeleteFunc(slices.Clone(before.Replicas), func(r int32) bool { return r == before.Leader })
	req := kadm.AlterPartitionAssignmentsReq{}
	req.Assign(w.topic, p, append(order, before.Leader))
	if resp, err := adm.AlterPartitionAssignments(ctx, req); err != nil || resp.Error() != nil {
		w.t.Fatal(err, resp.Error())
	}
	kafkatest.Eventually(w.t, patience, func() error {
		set := kadm.TopicsSet{}
		set.Add(w.topic, p)
		if _, err := adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, set); err != nil {
			return err
		}
		now, err := w.describePartition(p)
		if err == nil && now.Leader == before.Leader {
			err = fmt.Errorf("broker %d still leads partition %d", now.Leader, p)
		}
		return err
	})
}

// waitInSync waits until all replicas of a partition are in sync: the next of them may be taken away.
func (w *world) waitInSync(p int32) {
	w.t.Helper()
	kafkatest.Eventually(w.t, patience, func() error {
		d, err := w.describePartition(p)
		if err == nil && len(d.ISR) < len(d.Replicas) {
			err = fmt.Errorf("in sync are %v of %v", d.ISR, d.Replicas)
		}
		return err
	})
}

// logBytes is how much a broker has written of a partition of the log.
func (w *world) logBytes(broker int, p int32) int64 {
	w.t.Helper()
	info, err := os.Stat(filepath.Join(w.cluster.DataDir(broker), fmt.Sprintf("%s-%d", w.topic, p), "00000000000000000000.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	return info.Size()
}
