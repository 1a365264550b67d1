package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

func TestMemberNote(t *testing.T) {
	plain := kgo.CooperativeStickyBalancer().JoinGroupMetadata([]string{"log"}, map[string][]int32{"log": {1, 2}}, 7)
	if got := appendNote(plain, nil); !slices.Equal(got, plain) {
		t.Error("a member that declines nothing says something else than an older one")
	}
	declines := map[int32]string{0: DeclinedClock, 1: DeclinedClock, 5: DeclinedRecord}
	var meta kmsg.ConsumerMemberMetadata
	if err := meta.ReadFrom(appendNote(plain, declines)); err != nil {
		t.Fatal(err)
	}
	if got := readNote(meta.UserData); !maps.Equal(got, declines) {
		t.Errorf("read %v, want %v", got, declines)
	}
	var sticky kmsg.StickyMemberMetadata
	if err := sticky.ReadFrom(meta.UserData); err != nil || sticky.Generation != 7 || len(sticky.CurrentAssignment) != 1 {
		t.Errorf("an older member reads %+v, %v", sticky, err)
	}
	for _, bad := range []string{"", "x", declineMark, declineMark + "{", declineMark + `{"declines":[{"partitions":"9-1 a 3-b -4 0-2000000000","why":"x"}]}`} {
		if got := readNote([]byte(bad)); len(got) != 0 {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

// holds says that a replica holds exactly these partitions.
func (r *replica) holds(ps ...int32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Equal(sorted(r.held), ps)
}

func all() (ps []int32) {
	for p := range int32(testPartitions) {
		ps = append(ps, p)
	}
	return ps
}

func declinedGoesToOthers(t *testing.T, w *world) {
	a, b := w.start("a", 1), w.start("b", 2)
	w.shared(20*time.Second, a, b)
	everything := map[int32]string{}
	for _, p := range all() {
		everything[p] = DeclinedClock
	}
	b.Decline(everything, true)
	took := w.eventually(20*time.Second, "a has what b declines", func() bool { return a.holds(all()...) && b.holds() })
	t.Logf("what b declines is assigned to a after %v", took)
	if !b.LeaseValid() || b.lost+a.lost > 0 {
		t.Errorf("b has left the group: lease %v, lost %d and %d", b.LeaseValid(), b.lost, a.lost)
	}
	members, err := a.Members(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		if want := map[int32]string(nil); m.NodeID == 2 && !maps.Equal(m.Declines, everything) || m.NodeID == 1 && !maps.Equal(m.Declines, want) {
			t.Errorf("node %d declines %v", m.NodeID, m.Declines)
		}
	}
	// What all decline stays where it is.
	_, generation := a.client.GroupMetadata()
	a.Decline(map[int32]string{0: DeclinedRights, 1: DeclinedRights}, true)
	w.eventually(20*time.Second, "the group has heard of it", func() bool { _, now := a.client.GroupMetadata(); return now > generation })
	if !a.holds(all()...) {
		t.Errorf("what nobody can serve has moved: %s", w)
	}
	a.Decline(nil, true)
	b.Decline(map[int32]string{0: DeclinedRecord}, true)
	w.eventually(20*time.Second, "b has its share without 0", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.held) == testPartitions/2 && !b.held[0]
	})
}

func olderLeader(t *testing.T, w *world) {
	cfg := w.config(1, "a:9292")
	cfg.balancer = kgo.CooperativeStickyBalancer()
	a := w.run(w.make("a", cfg))
	w.shared(20*time.Second, a)
	b := w.start("b", 2)
	w.shared(20*time.Second, a, b)
	_, generation := b.client.GroupMetadata()
	declined := map[int32]string{}
	for p := range int32(testPartitions) {
		declined[p] = DeclinedStorage
	}
	b.Decline(declined, true)
	w.eventually(20*time.Second, "the group has heard of it", func() bool { _, now := b.client.GroupMetadata(); return now > generation })
	w.shared(20*time.Second, a, b)
	c := w.start("c", 3)
	w.shared(20*time.Second, a, b, c)
	a.stop() // now a newer one leads
	w.eventually(20*time.Second, "c has everything", func() bool { return c.holds(all()...) })
}

// Decline implements Membership.
func (m *fakeMembership) Decline(ps map[int32]string, urgent bool) {
	if urgent {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.declined = append(m.declined, ps)
		m.said = ps
	}
}

// Declined implements Membership.
func (m *fakeMembership) Declined() map[int32]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.said)
}

// told is what the group was told urgently.
func (m *fakeMembership) told() []map[int32]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.declined)
}

// A shard that can't be served for this replica's own fault is declined at once, others are not; the reason is believed for longer each time it comes back.
func TestDeclinesAreTold(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		refused := fmt.Errorf("%w: partition 0, offset 7: newer", eventlog.ErrRefused)
		r.store.fail(refused)
		synctest.Wait()
		time.Sleep(time.Second) // the bubble's clock
		if told := r.m.told(); len(told) != 1 || told[0][0] != DeclinedRecord {
			t.Fatalf("the group was told %v", told)
		}
		time.Sleep(2 * declineHoldMin) // the bubble's clock
		if told := r.m.told(); len(told) != 1 {
			t.Fatalf("a reason that lasts was told again: %v", told)
		}
		r.store.fail(nil)
		time.Sleep(time.Second) // the bubble's clock
		if told := r.m.told(); len(told) != 2 || len(told[1]) != 0 || len(r.Declines()) != 0 {
			t.Fatalf("the group was told %v, and %v are declined", told, r.Declines())
		}
		r.store.fail(refused)
		time.Sleep(time.Second) // the bubble's clock
		for _, d := range r.Declines() {
			if hold := time.Until(d.Until); hold < 2*declineHoldMin-2*time.Second || !errors.Is(d.Err, eventlog.ErrRefused) {
				t.Errorf("the second time it is believed for %v: %v", hold, d.Err)
			}
		}
		r.store.fail(fmt.Errorf("%w: no space", projection.ErrStorage))
		time.Sleep(2*declineHoldMin + time.Second) // the bubble's clock
		if told := r.m.told(); len(told) != 3 {
			t.Errorf("the group was told %v", told)
		}
	})
}

// A disk that hesitates moves nothing; one that is out of order for longer leaves its shards to others before clients give up.
func TestADiskIsNotWaitedForLong(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		full := fmt.Errorf("%w: no space", projection.ErrStorage)
		for range 5 {
			r.store.fail(full)
			time.Sleep(5 * time.Second) // the bubble's clock
			r.store.fail(nil)
			time.Sleep(time.Second) // the bubble's clock
		}
		if told := r.m.told(); len(told) != 0 {
			t.Fatalf("a disk that hesitated was told: %v", told)
		}
		r.store.fail(full)
		time.Sleep(10 * time.Second) // the bubble's clock
		if told := r.m.told(); len(told) != 1 || told[0][0] != DeclinedStorage || told[0][1] != DeclinedStorage {
			t.Errorf("after 10 s the group was told %v", told)
		}
	})
}

// One answer of a broker whose rights are being replaced, and the next is a good one: nothing moves because of it, though others are asked meanwhile.
func TestADenialOfAMoment(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		for range 5 {
			log.Deny(1, kerr.TopicAuthorizationFailed)
			time.Sleep(deniedPatience / 2) // the bubble's clock
			if err := r.Barrier(t.Context(), 1); !errors.Is(err, ErrBlind) || !r.Unread(1) {
				t.Errorf("while it is denied: %v, unread %v", err, r.Unread(1))
			}
			log.Deny(1, nil)
			time.Sleep(time.Second) // the bubble's clock
			if err := r.Barrier(t.Context(), 1); err != nil || r.Unread(1) || !r.Owns(1) {
				t.Errorf("when it is not: %v, unread %v, owned %v", err, r.Unread(1), r.Owns(1))
			}
		}
		if told := r.m.told(); len(told) != 0 || len(r.Declines()) != 0 {
			t.Errorf("the group was told %v; %v are declined", told, r.Declines())
		}
	})
}

// A replica that may not read a partition would wait for its end for ever: it declines it, for as long as that lasts, whether it owns it or never got there.
func TestWhatMayNotBeReadIsDeclined(t *testing.T) {
	for name, serves := range map[string]bool{"serving": true, "starting": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 2, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
				denied := fmt.Errorf("read: %w", kerr.TopicAuthorizationFailed)
				var r *node
				if serves {
					r = serving(t, log, start)
					log.Deny(1, denied)
				} else {
					log.Steal(0, eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 7, Instance: "before", Partitions: 2}).Close()
					log.Deny(1, denied)
					r = start(0)
					r.m.assign(time.Hour, 0, 1)
				}
				time.Sleep(deniedPatience + time.Second) // the bubble's clock
				if told := r.m.told(); len(told) != 1 || len(told[0]) != 1 || told[0][1] != DeclinedRights {
					t.Fatalf("the group was told %v", told)
				}
				time.Sleep(3 * declineHoldMin) // the bubble's clock
				if d := r.Declines(); len(d) != 1 || len(r.m.told()) > 1 && serves {
					t.Fatalf("%v are declined while it lasts, and the group was told %v", d, r.m.told())
				}
				log.Deny(1, nil)
				time.Sleep(time.Second) // the bubble's clock
				if d := r.Declines(); len(d) != 0 {
					t.Errorf("%v are declined", d)
				}
				r.awaitServing(t)
			})
		})
	}
}

// Who is revoked and does not read the log any more would not see his successor, and his clients would wait for answers that prove something.
func TestWhoDoesNotReadGivesWayAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(*node, *eventlog.Fake)
		goes bool
	}{
		"denied": {func(_ *node, log *eventlog.Fake) { log.Deny(0, kerr.TopicAuthorizationFailed) }, true},
		"sick, and nothing is read": {func(r *node, log *eventlog.Fake) {
			r.store.fail(fmt.Errorf("%w: read-only", projection.ErrStorage))
			log.HoldTail(0)
		}, true},
		"sick, and read all the same": {func(r *node, _ *eventlog.Fake) { r.store.fail(fmt.Errorf("%w: no space", projection.ErrStorage)) }, false},
		"well":                        {func(*node, *eventlog.Fake) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
				r := serving(t, log, start)
				c.do(r, log)
				time.Sleep(declinePatience + time.Second) // the bubble's clock
				r.m.revoke(0)
				time.Sleep(100 * time.Millisecond) // the bubble's clock
				if r.Owns(0) == c.goes {
					t.Errorf("served after it was revoked: %t", r.Owns(0))
				}
			})
			inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
				r := serving(t, log, start)
				r.m.revoke(0)
				time.Sleep(100 * time.Millisecond) // the bubble's clock
				c.do(r, log)
				time.Sleep(blindAfter + time.Second) // the bubble's clock; the lease is over after 5 s
				if r.Owns(0) == c.goes {
					t.Errorf("served after it was revoked first: %t", r.Owns(0))
				}
			})
		})
	}
}

// A right on the topic is one on all partitions: what is written to one tells of all, and that one can be claimed again tells of all.
func TestARightOnTheTopicIsOneOnAll(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := start(0)
		r.m.assign(time.Hour, 0, 1)
		r.awaitServing(t)
		refused := fmt.Errorf("%w: %w", eventlog.ErrAppendRefused, kerr.TopicAuthorizationFailed)
		log.FailAppend(0, refused)
		log.FailClaim(0, refused)
		r.write(0)
		time.Sleep(2 * time.Second) // the bubble's clock
		told := r.m.told()
		if len(told) != 1 || len(told[0]) != 4 || told[0][3] != DeclinedRights || !r.Owns(1) {
			t.Fatalf("the group was told %v; shard 1 is served: %t", told, r.Owns(1))
		}
		time.Sleep(2 * claimRetryMax) // the bubble's clock
		if d := r.Declines(); len(d) != 0 || !r.Owns(0) {
			t.Errorf("%v are declined after one was claimed; shard 0 is served: %t", d, r.Owns(0))
		}
		// One on a transactional id is not.
		log.FailAppend(0, eventlog.ErrOutcomeUnknown)
		log.FailClaim(0, kerr.TransactionalIDAuthorizationFailed)
		r.write(0)
		time.Sleep(2 * time.Second) // the bubble's clock
		if d := r.Declines(); len(d) != 1 || d[0].Partition != 0 {
			t.Errorf("%v are declined", d)
		}
	})
}

// What is found out after the metadata of a join was sent, and before the answer of the sync assigns the shard, the group has not heard.
func TestDeclinedBetweenJoinAndSync(t *testing.T) {
	for why, err := range map[string]error{
		DeclinedRecord:  fmt.Errorf("%w: partition 0, offset 7: newer", eventlog.ErrRefused),
		DeclinedStorage: fmt.Errorf("%w: no space", projection.ErrStorage),
	} {
		t.Run(why, func(t *testing.T) {
			inWorld(t, 1, func(t *testing.T, _ *eventlog.Fake, start func(int32) *node) {
				r := start(0)
				<-r.m.ready // the join is on its way
				r.store.fail(err)
				time.Sleep(declinePatience + time.Second) // the bubble's clock
				if len(r.Declines()) == 0 || len(r.m.told()) != 0 {
					t.Fatalf("declined: %v, told in haste: %v", r.Declines(), r.m.told())
				}
				r.m.assign(time.Hour, 0)    // the answer of the sync
				time.Sleep(2 * time.Minute) // the bubble's clock
				if told := r.m.told(); len(told) != 1 || told[0][0] != why {
					t.Errorf("a shard that is declined was assigned, and the group was told %v", told)
				}
			})
		})
	}
}

// wrongTime is what a leader says of a time that it does not take.
var wrongTime = fmt.Errorf("%w: %w", eventlog.ErrAppendRefused, kerr.InvalidTimestamp)

// write makes a shard append something.
func (r *node) write(p int32) { r.shards[p].post(func(s *Shard) { s.tryWrite() }) }

// Where the leaders of all shards that are assigned here refuse our time it is our clock: everything is declined, once, also what was served quietly. It ends
// when one of them takes it.
func TestOurClockIsWrong(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := start(0)
		r.m.assign(time.Hour, 0, 1, 2)
		r.awaitServing(t)
		const refusals = 30 // of claims, one each claimRetryMax
		for p := range int32(3) {
			log.FailAppend(p, wrongTime)
			for range refusals {
				log.FailClaim(p, wrongTime)
			}
		}
		r.write(0)
		time.Sleep(3 * time.Second) // the bubble's clock
		told := r.m.told()
		if len(told) != 1 || len(told[0]) != 4 || told[0][3] != DeclinedClock || r.OwnedCount() != 0 {
			t.Fatalf("the group was told %v, and %d shards are served", told, r.OwnedCount())
		}
		time.Sleep((refusals + 1) * claimRetryMax) // the bubble's clock
		if len(r.Declines()) != 0 || len(r.m.declined[len(r.m.told())-1]) != 0 || r.OwnedCount() != 3 {
			t.Errorf("%v are declined, the group was told %v, and %d shards are served after the clock was set", r.Declines(), r.m.told(), r.OwnedCount())
		}
	})
}

// A claim whose outcome stays open holds up the verdict on our clock for a while only.
func TestOurClockIsWrongAndALeaderIsSilent(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		for range 100 {
			log.FailClaim(0, wrongTime)
			log.FailClaim(1, kerr.RequestTimedOut)
		}
		r := start(0)
		r.m.assign(time.Hour, 0, 1)
		time.Sleep(clockPatience - time.Second) // the bubble's clock
		if d := r.Declines(); len(d) != 0 {
			t.Errorf("declined too early: %v", d)
		}
		time.Sleep(2 * time.Second) // the bubble's clock
		if d := r.Declines(); len(d) != 2 || d[1].Why != DeclinedClock {
			t.Errorf("declined: %v", d)
		}
	})
}

// One broker's clock is wrong, and what it leads, shard 3, refuses everybody's time: no other replica would fare better, so nothing moves, and all others are
// served by whom they were served by.
func TestABrokersClockIsWrong(t *testing.T) {
	inWorld(t, 4, func(t *testing.T, log *eventlog.Fake, _ func(int32) *node) {
		group := NewFakeGroup(FakeGroupOptions{Partitions: 4})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		var hosts []*Host
		for id := range int32(2) {
			store := newModelStore(4)
			h := New(Config{
				Log: log, Store: store, Membership: group.Member(id, func() time.Duration { return time.Duration(id+1) * 10 * time.Millisecond }),
				Self:   eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: id, Instance: string(rune('a' + id))},
				Topics: func() streams.Topics { return oneTopic{} }, Groups: groupconfig.Fixed(streams.DefaultConfig()),
				Offsets: offsets.Env{MetadataBytesMax: offsets.MetadataMaxDefault, Retention: retention},
			})
			hosts = append(hosts, h)
			wg.Go(func() { _ = log.Follow(ctx, store) })
			wg.Go(func() { _ = h.Run(ctx) })
		}
		owner := func(p int32) int { return slices.IndexFunc(hosts, func(h *Host) bool { return h.Owns(p) }) }
		time.Sleep(30 * time.Second) // the bubble's clock
		was := map[int32]int{}
		for p := range int32(4) {
			if was[p] = owner(p); was[p] < 0 {
				t.Fatalf("shard %d is not served", p)
			}
		}
		for range 10_000 { // every claim from now on
			log.FailClaim(3, wrongTime)
		}
		log.FailAppend(3, wrongTime)
		(&node{Host: hosts[was[3]]}).write(3)
		for begun := time.Now(); time.Since(begun) < time.Hour; time.Sleep(50 * time.Millisecond) { // the bubble's clock
			for p := range int32(3) {
				if o := owner(p); o != was[p] {
					t.Fatalf("after %v shard %d, which everybody can serve, is at %d, and was at %d", time.Since(begun), p, o, was[p])
				}
			}
		}
		for i, h := range hosts {
			if d := h.Declines(); len(d) != 0 || slices.Contains(h.Held(), 3) != (i == was[3]) {
				t.Errorf("replica %d declines %v, and has %v", i, d, h.Held())
			}
		}
	})
}

func TestDeclineReasons(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("claim: %w", eventlog.ErrRefused), DeclinedRecord},
		{fmt.Errorf("%w: %w", eventlog.ErrAppendRefused, kerr.InvalidTimestamp), DeclinedClock},
		{fmt.Errorf("x: %w", kerr.TransactionalIDAuthorizationFailed), DeclinedRights},
		{eventlog.ErrFenced, ""}, {eventlog.ErrOutcomeUnknown, ""}, {kerr.NotLeaderForPartition, ""}, {context.DeadlineExceeded, ""}, {projection.ErrLoading, ""},
	} {
		if got := declineReason(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

// Claims are ordered by what their writers had read, across partitions, replicas and processes.
func TestClaimsHaveAnOrder(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		last := int64(0)
		claims := func(r *node, p int32) {
			t.Helper()
			r.m.assign(time.Hour, p)
			r.awaitServing(t)
			o, ok := r.store.Owner(p)
			if !ok || o.Order <= last || o.NodeID != r.cfg.Self.NodeID {
				t.Errorf("partition %d is owned by %+v, want an order above %d", p, o, last)
			}
			last = o.Order
		}
		a, b := start(0), start(1)
		claims(a, 0)
		claims(a, 1)
		claims(b, 2)
		claims(b, 0)
		a.stop()
		claims(start(0), 1)
	})
}

// A replica that nobody can stand in for has a full disk. What it reads goes into memory, so it claims anew after an append that failed, and says whose a
// group is.
func TestAFullDiskThatMemoryStandsInFor(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		r.store.fill()
		time.Sleep(time.Minute) // the bubble's clock
		log.FailAppend(0, eventlog.ErrOutcomeUnknown)
		r.write(0)
		time.Sleep(10 * time.Second) // the bubble's clock
		if n := r.OwnedCount(); n != 2 {
			t.Errorf("%d shards are served after an append failed", n)
		}
		if err := r.Barrier(t.Context(), 0); err != nil {
			t.Errorf("a barrier: %v", err)
		}
		if known, err := r.Known("anybody's"); known || err != nil {
			t.Errorf("whose is a group that is not here: %v, %v", known, err)
		}
	})
}
