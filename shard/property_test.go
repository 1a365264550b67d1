package shard

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"streamkeeper/eventlog"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/streams"
)

// TestLiveStateEqualsEveryReplay drives two replicas over one log with random requests and faults, and then compares what is in memory
// with the records replayed in order, with the records as the projection kept them, and with every log that compaction could have
// left behind, cut at a random place.
func TestLiveStateEqualsEveryReplay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inBubble(t, func() {
			log, start, end := newReplicas(context.Background(), 1)
			defer end()
			r := serving(rt, log, start)
			r.m.extend(100 * time.Hour)
			drive(rt, log, r)

			synctest.Wait()
			r.awaitServing(rt)
			synctest.Wait()
			live := map[string]string{}
			if err := r.shards[0].do(context.Background(), func(s *Shard) {
				for _, id := range groupNames {
					g, err := s.group(id)
					if err != nil {
						rt.Fatalf("group %s: %v", id, err)
					}
					live[id] = g.String()
				}
			}); err != nil {
				rt.Fatal(err)
			}
			compare(rt, "replayed in order", live, replayed(rt, log))
			compare(rt, "hydrated from the projection", live, hydrated(rt, r.store))
			cut := rapid.Int64Range(0, int64(len(log.Entries(0)))).Draw(rt, "compaction up to")
			log.CompactBefore(0, cut, rapid.Bool().Draw(rt, "tombstones kept"))
			late := newModelStore(1)
			late.OnApplied(func(int32, int64) {})
			late.OnOwner(func(int32, eventlog.Owner) {})
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); _ = log.Follow(ctx, late) }()
			synctest.Wait()
			compare(rt, "hydrated from a compacted log", live, hydrated(rt, late))
			cancel()
			<-done
		})
	})
}

var groupNames = []string{"g0", "g1"}

// drive does random things for a while.
func drive(rt *rapid.T, log *eventlog.Fake, r *node) {
	type key struct{ group, member string }
	epochs := map[key]int32{}
	owned := map[key][]kmsg.TaskIDs{}
	member := func() key {
		return key{rapid.SampledFrom(groupNames).Draw(rt, "group"), fmt.Sprintf("m%d", rapid.IntRange(0, 3).Draw(rt, "member"))}
	}
	handle := func(k key, resp *kmsg.StreamsGroupHeartbeatResponse, err error) {
		var e *streams.Error
		switch {
		case errors.As(err, &e):
			delete(epochs, k)
			delete(owned, k)
		case err != nil: // retriable: the client goes on with what it has
		case resp.MemberEpoch < 0:
			delete(epochs, k)
			delete(owned, k)
		default:
			if resp.MemberEpoch < epochs[k] {
				rt.Fatalf("epoch of %v went back from %d to %d", k, epochs[k], resp.MemberEpoch)
			}
			epochs[k] = resp.MemberEpoch
			if resp.ActiveTasks != nil {
				owned[k] = resp.ActiveTasks
			}
		}
	}
	actions := map[string]func(*rapid.T){
		"join": func(rt *rapid.T) {
			k := member()
			delete(epochs, k) // a client that joins starts over; the group may have been deleted meanwhile
			resp, err := r.Heartbeat(context.Background(), Caller{ClientID: "c", ClientHost: "/h"}, 1, joinRequest(k.group, k.member))
			handle(k, resp, err)
		},
		"beat": func(rt *rapid.T) {
			k := member()
			if epochs[k] == 0 {
				return
			}
			req := beatRequest(k.group, k.member, epochs[k])
			req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = owned[k], []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
			if req.ActiveTasks == nil {
				req.ActiveTasks = []kmsg.TaskIDs{}
			}
			resp, err := r.Heartbeat(context.Background(), Caller{ClientID: "c", ClientHost: "/h"}, 1, req)
			handle(k, resp, err)
		},
		"leave": func(rt *rapid.T) {
			k := member()
			resp, err := r.beat(k.group, k.member, -1)
			handle(k, resp, err)
		},
		"commit": func(rt *rapid.T) {
			k := member()
			if epochs[k] > 0 {
				_ = r.commit(k.group, k.member, epochs[k], rapid.Int64Range(0, 1000).Draw(rt, "offset"))
			}
		},
		"wait": func(rt *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 50).Draw(rt, "seconds")) * time.Second) },
		"delete": func(rt *rapid.T) {
			_ = r.DeleteGroup(context.Background(), rapid.SampledFrom(groupNames).Draw(rt, "group"))
		},
		"expire": func(rt *rapid.T) {
			groups := rapid.SampledFrom([][]string{groupNames[:1], groupNames[1:], groupNames}).Draw(rt, "groups")
			_, _ = r.ExpireGroups(context.Background(), 0, groups)
		},
		"refuse": func(rt *rapid.T) {
			why := eventlog.DescriptionRefusal{Reason: rapid.SampledFrom([]string{"too odd", "too large"}).Draw(rt, "reason")}
			_ = r.PushRefused(context.Background(), rapid.SampledFrom(groupNames).Draw(rt, "group"), why)
		},
		"configure": func(rt *rapid.T) {
			c := groupconfig.Change{Name: "streams.num.standby.replicas", Value: rapid.SampledFrom([]string{"0", "1", "2", "3"}).Draw(rt, "standbys")}
			if rapid.Bool().Draw(rt, "delete") {
				c.Op = groupconfig.Delete
			}
			_ = r.alter(rapid.SampledFrom(groupNames).Draw(rt, "group"), false, c)
		},
		"lose ack":    func(*rapid.T) { log.LoseAck(0) },
		"drop append": func(*rapid.T) { log.DropAppend(0) },
		"compact":     func(rt *rapid.T) { log.CompactBefore(0, r.store.Applied(0), false) },
	}
	for range rapid.IntRange(5, 60).Draw(rt, "steps") {
		names := []string{"join", "join", "beat", "beat", "beat", "beat", "leave", "commit", "wait", "refuse", "delete", "expire", "configure", "lose ack", "drop append", "compact"}
		actions[rapid.SampledFrom(names).Draw(rt, "action")](rt)
		if !r.Owns(0) {
			r.awaitServing(rt)
		}
	}
}

func replayed(rt *rapid.T, log *eventlog.Fake) map[string]string {
	store := newModelStore(1)
	store.OnApplied(func(int32, int64) {})
	store.OnOwner(func(int32, eventlog.Owner) {})
	groups := map[string]*streams.Group{}
	for _, id := range groupNames {
		groups[id] = streams.NewGroup(id)
	}
	for _, e := range log.Entries(0) {
		r, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
		if err != nil {
			rt.Fatalf("record at %d: %v", e.Offset, err)
		}
		if g := groups[r.Key.Group]; g != nil && r.Key.Type != eventlog.TypeOffsetCommit {
			// A log that compaction has been at holds tombstones without what they removed, so the order of types can't be
			// relied on there; Apply must take it all the same.
			if err := g.Apply(r); err != nil {
				return nil
			}
		}
	}
	return texts(groups)
}

func hydrated(rt *rapid.T, store *modelStore) map[string]string {
	groups := map[string]*streams.Group{}
	for _, id := range groupNames {
		g := streams.NewGroup(id)
		stored, _ := store.Group(0, id)
		for _, st := range stored {
			if err := g.Apply(st.Record); err != nil {
				rt.Fatalf("hydrating %s: %v", id, err)
			}
		}
		groups[id] = g
	}
	return texts(groups)
}

func texts(groups map[string]*streams.Group) map[string]string {
	out := map[string]string{}
	for id, g := range groups {
		out[id] = g.String()
	}
	return out
}

func compare(rt *rapid.T, what string, live, other map[string]string) {
	if other == nil {
		return
	}
	for id := range live {
		if live[id] != other[id] {
			rt.Fatalf("group %s, %s:\n%s\nlive:\n%s", id, what, other[id], live[id])
		}
	}
}

// inBubble runs f in a bubble of its own and carries its panic out, which is how rapid learns of a failure.
func inBubble(t *testing.T, f func()) {
	var failure any
	synctest.Test(t, func(*testing.T) {
		defer func() { failure = recover() }()
		f()
	})
	// rapid tells failures apart by the place they come from; running out of data while it shrinks must come from another.
	if fmt.Sprintf("%T", failure) == "rapid.invalidData" {
		panic(failure)
	}
	if failure != nil {
		panic(failure)
	}
}
