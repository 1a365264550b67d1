package shard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard/streams"
)

func TestNothingIsAnsweredBeforeItIsDurable(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		other := r.join(t, "h", "m").MemberEpoch

		log.HoldAcks(0)
		join := async(func() (*kmsg.StreamsGroupHeartbeatResponse, error) {
			return r.Heartbeat(t.Context(), Caller{}, 1, joinRequest("g", "n"))
		})
		if _, _, done := join(); done {
			t.Fatal("a join was answered before its records were acknowledged")
		}
		beat := async(func() (*kmsg.StreamsGroupHeartbeatResponse, error) { return r.beat("g", "m", epoch) })
		if _, _, done := beat(); done {
			t.Fatal("a heartbeat overtook an earlier write of its group")
		}
		idle := async(func() (*kmsg.StreamsGroupHeartbeatResponse, error) { return r.beat("h", "m", other) })
		if _, err, done := idle(); !done || err != nil {
			t.Fatalf("a heartbeat of another group waited: %v", err)
		}
		describe := async(func() (kmsg.StreamsGroupDescribeResponseGroup, error) { return r.Describe(t.Context(), "g") })
		if _, _, done := describe(); done {
			t.Fatal("a describe showed what is not durable")
		}
		log.ReleaseAcks(0)
		for _, w := range []func() (*kmsg.StreamsGroupHeartbeatResponse, error, bool){join, beat} {
			if _, err, done := w(); !done || err != nil {
				t.Fatalf("after the acknowledgement: %v %v", err, done)
			}
		}
		if d, err, done := describe(); !done || err != nil || len(d.Members) != 2 {
			t.Fatalf("describe: %+v %v %v", d, err, done)
		}
	})
}

func TestLostAcknowledgementKeepsWhatIsInTheLog(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		log.LoseAck(0)
		if err := r.commit("g", "m", epoch, 7); !errors.Is(err, ErrLoading) {
			t.Fatalf("a commit whose outcome is unknown: %v", err)
		}
		r.awaitServing(t)
		if got, err := r.fetched("g"); err != nil || got != 7 {
			t.Fatalf("after the claim anew the commit that reached the log must be there: %d %v", got, err)
		}
		log.DropAppend(0)
		if err := r.commit("g", "m", epoch, 9); !errors.Is(err, ErrLoading) {
			t.Fatalf("a commit that is nowhere: %v", err)
		}
		r.awaitServing(t)
		if log.DeliverLate(0) {
			t.Fatal("the late copy of a batch was accepted after the claim anew")
		}
		if got, err := r.fetched("g"); err != nil || got != 7 {
			t.Fatalf("the lost commit must not be there: %d %v", got, err)
		}
	})
}

func TestFencedOwnerAnswersNothing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		log.HoldTail(0) // the owner can't read that it was replaced
		thief := log.Steal(0, eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 9, Instance: "z"})
		defer thief.Close()
		fetch := async(func() (int64, error) { return r.fetched("g") })
		if _, err, done := fetch(); !done || err == nil {
			t.Fatalf("an offset fetch after the takeover: %v %v", err, done)
		}
		if err := r.commit("g", "m", epoch, 1); !errors.Is(err, ErrLoading) && !errors.Is(err, ErrNotOwner) {
			t.Fatalf("a commit after the takeover: %v", err)
		}
		if r.Owns(0) {
			t.Fatal("the fenced shard serves on")
		}
		log.ReleaseTail(0)
	})
}

func TestOffsetFetchWaitsForOneBarrierThatServesAll(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		if err := r.commit("g", "m", epoch, 5); err != nil {
			t.Fatal(err)
		}
		before := len(log.Entries(0))
		log.HoldAppends(0)
		var fetches []func() (int64, error, bool)
		for range 10 {
			fetches = append(fetches, async(func() (int64, error) { return r.fetched("g") }))
			synctest.Wait()
		}
		for _, f := range fetches {
			if _, _, done := f(); done {
				t.Fatal("an offset fetch was answered without an append after it")
			}
		}
		log.ReleaseAppends(0)
		for _, f := range fetches {
			if got, err, done := f(); !done || err != nil || got != 5 {
				t.Fatalf("fetch: %d %v %v", got, err, done)
			}
		}
		if added := len(log.Entries(0)) - before; added < 1 || added > 2 {
			t.Fatalf("ten fetches wrote %d barrier records, want one or two", added)
		}
	})
}

func TestAnswersWithoutAWriteNeedTheLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		r.m.extend(-time.Second)
		if _, err := r.beat("g", "m", epoch); !errors.Is(err, ErrLoading) {
			t.Fatalf("a steady heartbeat after the lease: %v", err)
		}
		if l, err := r.List(t.Context()); err != nil || len(l) != 1 || l[0] != (Listed{"g", "Stable"}) {
			t.Fatalf("a list after the lease is read from the log: %v, %v", l, err)
		}
		if got, err := r.fetched("g"); err != nil || got != -1 {
			t.Fatalf("an offset fetch proves itself by its barrier: %d %v", got, err)
		}
		r.m.extend(time.Hour)
		if _, err := r.beat("g", "m", epoch); err != nil {
			t.Fatalf("with the lease back: %v", err)
		}
	})
}

func TestAPauseOfTheReplicaExpiresNobody(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		r.m.extend(time.Second)
		time.Sleep(2 * time.Minute) // more than a session, all of it without a lease
		r.m.extend(time.Hour)
		time.Sleep(time.Second)
		if _, err := r.beat("g", "m", epoch); err != nil {
			t.Fatalf("the member was expired by a silence of the replica: %v", err)
		}
		time.Sleep(46 * time.Second)
		_, err := r.beat("g", "m", epoch)
		var e *streams.Error
		if !errors.As(err, &e) || e.Code != codeUnknownMember {
			t.Fatalf("a member that was silent for a session must be gone: %v", err)
		}
	})
}

func TestPlannedMoveHasNoGap(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		a := serving(t, log, start)
		epoch := a.join(t, "g", "m").MemberEpoch
		if err := a.commit("g", "m", epoch, 3); err != nil {
			t.Fatal(err)
		}
		b := start(1)
		a.m.revoke(0)
		if _, err := a.beat("g", "m", epoch); err != nil {
			t.Fatalf("between revocation and the successor's claim: %v", err)
		}
		b.m.assign(time.Hour, 0)
		b.awaitServing(t)
		synctest.Wait()
		if _, err := a.beat("g", "m", epoch); !errors.Is(err, ErrNotOwner) {
			t.Fatalf("after the successor's claim: %v", err)
		}
		if _, err := b.beat("g", "m", epoch); err != nil {
			t.Fatalf("at the successor: %v", err)
		}
		if got, err := b.fetched("g"); err != nil || got != 3 {
			t.Fatalf("offset at the successor: %d %v", got, err)
		}
	})
}

func TestRevokedShardEndsWithItsLease(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		a := serving(t, log, start)
		epoch := a.join(t, "g", "m").MemberEpoch
		a.m.extend(5 * time.Second)
		a.m.revoke(0)
		time.Sleep(6 * time.Second)
		if _, err := a.beat("g", "m", epoch); !errors.Is(err, ErrNotOwner) {
			t.Fatalf("no successor came and the lease is over: %v", err)
		}
	})
}

func TestAJoinAgainstAnEvictionSeesTheNewestState(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		r.m.duration.Store(int64(time.Hour)) // or a tail that stands still ends the lease
		log.HoldTail(0)
		if _, err := r.beat("g", "m", -1); err != nil { // leaves; the projection still has the member
			t.Fatal(err)
		}
		time.Sleep(2 * idleKeep) // long past every look for idle groups
		resp := r.join(t, "g", "n")
		if resp.MemberEpoch <= epoch {
			t.Fatalf("epoch went back: %d after %d", resp.MemberEpoch, epoch)
		}
		log.ReleaseTail(0)
		if _, err := r.beat("g", "n", -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * idleKeep)
		if n := r.Stats().Evicted; n == 0 {
			t.Fatal("an empty group whose records are applied did not leave memory")
		}
		if again := r.join(t, "g", "m"); again.MemberEpoch <= resp.MemberEpoch {
			t.Fatalf("epoch went back after the hydration: %d after %d", again.MemberEpoch, resp.MemberEpoch)
		}
	})
}

func TestOffsetsAreReadThroughTheOverlay(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		for i := range int64(5) {
			log.HoldTail(0) // so that the projection has nothing of it when the fetch is decided
			if err := r.commit("g", "m", epoch, i); err != nil {
				t.Fatal(err)
			}
			fetch := async(func() (int64, error) { return r.fetched("g") })
			if _, err, done := fetch(); done {
				t.Fatalf("fetch %d was answered before its barrier was read: %v", i, err)
			}
			log.ReleaseTail(0)
			if got, err, done := fetch(); !done || err != nil || got != i {
				t.Fatalf("fetch after commit %d: %d %v %v", i, got, err, done)
			}
		}
		if got, err := r.fetched("g"); err != nil || got != 4 {
			t.Fatalf("fetch from the projection: %d %v", got, err)
		}
		if n := r.shards[0].overlay.len(); n != 0 {
			t.Fatalf("%d offsets stayed in the overlay after the projection applied them", n)
		}
	})
}

func TestSessionExpires(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		for range 10 { // ten beats, half a session apart, keep it
			time.Sleep(20 * time.Second)
			if _, err := r.beat("g", "m", epoch); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(46 * time.Second)
		d, err := r.Describe(t.Context(), "g")
		if err != nil || len(d.Members) != 0 || d.State != "Empty" {
			t.Fatalf("after the session: %+v %v", d, err)
		}
	})
}

func TestDeleteGroupLeavesNothing(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		if err := r.commit("g", "m", epoch, 3); err != nil {
			t.Fatal(err)
		}
		var e *streams.Error
		if err := r.DeleteGroup(t.Context(), "g"); !errors.As(err, &e) || e.Code != 68 {
			t.Fatalf("deleting a group with members: %v", err)
		}
		if _, err := r.beat("g", "m", -1); err != nil {
			t.Fatal(err)
		}
		if err := r.DeleteGroup(t.Context(), "g"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if l, err := r.List(t.Context()); err != nil || len(l) != 0 {
			t.Fatalf("list: %v %v", l, err)
		}
		if known, _ := r.Known("g"); known {
			t.Fatal("the deleted group is still known")
		}
		if err := r.DeleteGroup(t.Context(), "g"); !errors.As(err, &e) || e.Code != codeGroupIDNotFound {
			t.Fatalf("deleting it again: %v", err)
		}
		r.store.mu.Lock()
		defer r.store.mu.Unlock()
		if n := len(r.store.parts[0].values); n != 0 {
			t.Fatalf("%d records stayed: %v", n, r.store.parts[0].values)
		}
	})
}

func TestExpireRemovesOffsetsThenTheGroup(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		r.m.extend(10 * retention)
		epoch := r.join(t, "g", "m").MemberEpoch
		if err := r.commit("g", "m", epoch, 3); err != nil {
			t.Fatal(err)
		}
		if e, err := r.expire("g"); e != (Judged{}) || err != nil {
			t.Fatalf("an active group: %+v %v", e, err)
		}
		if _, err := r.beat("g", "m", -1); err != nil {
			t.Fatal(err)
		}
		if e, err := r.expire("g"); e != (Judged{}) || err != nil {
			t.Fatalf("before the retention: %+v %v", e, err)
		}
		time.Sleep(retention + time.Minute)
		if e, err := r.expire("g"); e != (Judged{Offsets: 1, Removed: true}) || err != nil {
			t.Fatalf("after the retention: %+v %v", e, err)
		}
	})
}

func TestShutdownReleasesWhatNobodyTakes(t *testing.T) {
	inWorld(t, 2, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for p := range int32(2) {
			if o, ok := r.store.Owner(p); !ok || !o.Released {
				t.Fatalf("partition %d was not released: %+v", p, o)
			}
			if _, ok := r.Owner(p); ok {
				t.Fatalf("partition %d has an owner after its release", p)
			}
		}
	})
}

func TestALogThatWasCutOffTakesTheMemoryWithIt(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		if err := r.commit("g", "m", epoch, 3); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		end := int64(len(log.Entries(0)))
		if err := r.commit("g", "m", epoch, 4); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		log.Truncate(0, end) // an unclean election: an acknowledged record is gone, and nobody can bring it back
		time.Sleep(10 * time.Second)
		r.awaitServing(t)
		if got, err := r.fetched("g"); err != nil || got != 3 {
			t.Fatalf("memory and log disagree: fetched %d %v", got, err)
		}
	})
}

func TestVoidRecordsAreRepaired(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		if err := r.commit("g", "m", epoch, 3); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := len(log.Entries(0))
		keys := []eventlog.Key{
			{Type: eventlog.TypeOffsetCommit, Group: "g", Topic: "in", Partition: 0},
			{Type: eventlog.TypeMember, Group: "g", Member: "m"},
			{Type: eventlog.TypeMember, Group: "g", Member: "never there"},
		}
		var voids []projection.Void
		for _, k := range keys {
			voids = append(voids, projection.Void{Offset: int64(before), Key: k})
		}
		r.shards[0].postVoids(voids)
		time.Sleep(time.Second)
		written := map[eventlog.Key]eventlog.Value{}
		for _, e := range log.Entries(0)[before:] {
			rec, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
			if err != nil {
				t.Fatal(err)
			}
			written[rec.Key] = rec.Value
		}
		if len(written) != 3 {
			t.Fatalf("repaired %d keys, want 3: %v", len(written), written)
		}
		if c, ok := written[keys[0]].(*eventlog.OffsetCommit); !ok || c.Offset != 3 {
			t.Errorf("offset repaired to %+v", written[keys[0]])
		}
		if m, ok := written[keys[1]].(*eventlog.Member); !ok || m.ProcessID != "p-m" {
			t.Errorf("member repaired to %+v", written[keys[1]])
		}
		if v := written[keys[2]]; v != nil {
			t.Errorf("a key without a right value got %+v, want a tombstone", v)
		}
		if _, err := r.beat("g", "m", epoch); err != nil {
			t.Fatalf("the group after the repair: %v", err)
		}
	})
}

func TestAStringThatNoRecordCanHoldIsRefused(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		_, err := r.Heartbeat(t.Context(), Caller{}, 1, joinRequest("g", strings.Repeat("m", eventlog.StringBytesMax+1)))
		var e *streams.Error
		if !errors.As(err, &e) || e.Code != codeInvalidRequest {
			t.Fatalf("a member id of 32 kB: %v", err)
		}
		if n := r.Stats().Records; n != 0 {
			t.Fatalf("%d records were written", n)
		}
		r.join(t, "g", "m")
	})
}

// servingOneCommit is a replica with a group of which offset 3 is committed, the epoch of its member, and where the log ends then.
func servingOneCommit(t *testing.T, log *eventlog.Fake, start func(int32) *node) (r *node, epoch int32, end int64) {
	t.Helper()
	r = serving(t, log, start)
	epoch = r.join(t, "g", "m").MemberEpoch
	if err := r.commit("g", "m", epoch, 3); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return r, epoch, int64(len(log.Entries(0)))
}

// A claim stands where the log ends. Where that is below what the projection has read the log was cut off, and what the projection holds is of one
// that is no more, whatever it says of its position: nothing is served from it before the tail has noticed.
func TestAClaimBelowWhatWasReadWaitsForTheTail(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r, epoch, end := servingOneCommit(t, log, start)
		for offset := range int64(10) {
			if err := r.commit("g", "m", epoch, 4+offset); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		log.HoldTail(0)
		log.Truncate(0, end)
		if err := r.commit("g", "m", epoch, 20); err == nil {
			t.Fatal("a commit of a writer that lost batches was acknowledged")
		}
		time.Sleep(10 * time.Second)
		if r.OwnedCount() != 0 {
			t.Error("a shard is served from records that the log has no more")
		}
		if got, err := r.fetched("g"); err == nil {
			t.Errorf("fetched %d before the tail noticed that the log was cut off", got)
		}
		for _, e := range log.Entries(0)[end:] {
			if k, _ := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value}); k.Key.Type != eventlog.TypeOwnership {
				t.Errorf("at %d there is a record of type %v", e.Offset, k.Key.Type)
			}
		}
		log.ReleaseTail(0)
		time.Sleep(10 * time.Second)
		r.awaitServing(t)
		if got, err := r.fetched("g"); err != nil || got != 3 {
			t.Errorf("fetched %d %v, want 3", got, err)
		}
	})
}

// A claim that is cut off before the tail has come to it is waited for no longer than until the log was read to its end without it.
func TestAClaimThatIsCutOffIsMadeAgain(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r, _, end := servingOneCommit(t, log, start)
		log.HoldTail(0)
		r.m.l.Lost([]int32{0})
		r.m.assign(time.Hour, 0)
		time.Sleep(time.Second)
		if got := int64(len(log.Entries(0))); got <= end || r.OwnedCount() != 0 {
			t.Fatalf("the log ends at %d, was %d, and %d shards are served: no claim is waited for", got, end, r.OwnedCount())
		}
		log.Truncate(0, end)
		log.ReleaseTail(0)
		time.Sleep(10 * time.Second)
		r.awaitServing(t)
		if got, err := r.fetched("g"); err != nil || got != 3 {
			t.Errorf("fetched %d %v, want 3", got, err)
		}
	})
}

// A record that the projection can't read, written while the shard serves: it stops, says so, and serves again when the record is gone.
func TestUnreadableRecordStopsAServingShard(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch

		r.store.fail(fmt.Errorf("%w: partition 0, offset 7: newer", eventlog.ErrRefused))
		time.Sleep(5 * time.Second)
		if r.OwnedCount() != 0 || r.Pending() != 1 {
			t.Errorf("%d served and %d pending shards with an unreadable log, want 0 and 1", r.OwnedCount(), r.Pending())
		}
		if _, err := r.beat("g", "m", epoch); err == nil {
			t.Error("a heartbeat was answered over an unreadable log")
		}

		r.store.fail(nil)
		r.awaitServing(t)
		if _, err := r.beat("g", "m", epoch); err != nil {
			t.Errorf("heartbeat after the log could be read again: %v", err)
		}
	})
}

// Where the claim's producer id was replaced the cluster goes on acknowledging the predecessor, whose records nobody counts. So an owner that
// was revoked tells no success before it has read its own record, with its claim still the last.
func TestRevokedOwnerProvesItsWrites(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		a := serving(t, log, start)
		epoch := a.join(t, "g", "m").MemberEpoch
		a.m.revoke(0)
		if err := a.commit("g", "m", epoch, 3); err != nil {
			t.Fatalf("a revoked owner whose claim is the last one: %v", err)
		}
		log.HoldTail(0)
		commit := async(func() (struct{}, error) { return struct{}{}, a.commit("g", "m", epoch, 4) })
		if _, _, done := commit(); done {
			t.Fatal("a commit of a revoked owner was answered before it was read back")
		}
		log.ExpireProducer(0)
		successor := log.Steal(0, eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 9, Instance: "z"})
		defer successor.Close()
		late := async(func() (struct{}, error) { return struct{}{}, a.commit("g", "m", epoch, 5) })
		fetch := async(func() (int64, error) { return a.fetched("g") }) // its barrier is acknowledged, too
		if _, _, done := fetch(); done {
			t.Fatal("an offset fetch behind the successor's claim was answered")
		}
		if _, _, done := late(); done {
			t.Fatal("a commit behind the successor's claim was answered")
		}
		log.ReleaseTail(0)
		if _, err, done := late(); !done || err == nil {
			t.Fatalf("a commit that no reader counts: %v %v", err, done)
		}
		if _, err, done := fetch(); !done || err == nil {
			t.Fatalf("an offset fetch that a replaced owner answered: %v %v", err, done)
		}
	})
}
