package shard

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"
)

func TestHowOldWhatWasReadIs(t *testing.T) {
	type read struct{ now, next, end, fresh int64 }
	for name, reads := range map[string][]read{
		"the first read proves nothing: nobody knows when it was asked for": {{10, 5, 5, 0}},
		"at the end":                      {{10, 5, 5, 0}, {20, 5, 5, 10}, {30, 7, 7, 20}, {100, 7, 7, 30}},
		"never at the end, but following": {{10, 1, 9, 0}, {20, 4, 12, 0}, {30, 8, 14, 0}, {40, 12, 18, 10}, {50, 15, 20, 10}, {60, 18, 22, 30}},
		"a new leader that does not know": {{10, 9, 9, 0}, {20, 9, 9, 10}, {30, 9, 4, 10}, {40, 9, 9, 30}},
		"away for long":                   {{10, 9, 9, 0}, {20, 9, 9, 10}, {900, 10, 10, 20}, {901, 10, 10, 900}},
		"read again from the beginning":   {{10, 9, 9, 0}, {20, 9, 9, 10}, {30, 2, 9, 10}, {40, 9, 9, 30}},
	} {
		t.Run(name, func(t *testing.T) {
			var tl tail
			for i, r := range reads {
				tl.read(Instant(r.now), r.next, r.end)
				if got := tl.fresh.Load(); got != r.fresh {
					t.Fatalf("after read %d, %+v: as old as %d", i, r, got)
				}
			}
		})
	}
}

// TestALeaseNeedsATailThatReads: whatever the ownership group says, a replica that reads nothing for a while tells nothing that needs no write, and expires
// nobody; it goes on where it was when it reads again.
func TestALeaseNeedsATailThatReads(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start) // with a lease of an hour
		epoch := r.join(t, "g", "m").MemberEpoch
		beat := func() error { _, err := r.beat("g", "m", epoch); return err }
		time.Sleep(5 * time.Minute / 8) // idle, and read to the end again and again
		if err := beat(); err != nil {
			t.Fatalf("an idle partition: %v", err)
		}
		log.HoldTail(0)
		fetch := async(func() (int64, error) { return r.fetched("g") })
		most := r.tailAgeMax()
		time.Sleep(most - 2*time.Second) // less than what the last read allows
		if err := beat(); err != nil {
			t.Fatalf("before the bound: %v", err)
		}
		if _, err, done := fetch(); done {
			t.Fatalf("a fetch that can't be proven: %v", err)
		}
		time.Sleep(2 * time.Second)
		if _, err, done := fetch(); !done || !errors.Is(err, ErrLoading) {
			t.Fatalf("a fetch that nobody waits for any more: %v, %v", err, done)
		}
		if err := beat(); !errors.Is(err, ErrLoading) {
			t.Fatalf("nothing was read for %v: %v", most, err)
		}
		if _, err := r.List(t.Context()); !errors.Is(err, ErrLoading) {
			t.Fatalf("a list: %v", err)
		}
		time.Sleep(2 * time.Minute) // more than a session
		log.ReleaseTail(0)
		time.Sleep(2 * time.Second) // two reads, and the next look at the lease
		if err := beat(); err != nil {
			t.Fatalf("a member after it is read again: %v", err)
		}
		time.Sleep(46 * time.Second)
		var e *streams.Error
		if err := beat(); !errors.As(err, &e) || e.Code != codeUnknownMember {
			t.Fatalf("a member that was silent for a session must be gone: %v", err)
		}
	})
}

// TestWhatIsReadLately: a partition is unread until it was read to its end after the start or a rebuild, and while there is more than what was read; fresh is what was read to
// its end within a session time-out. One that can't be read any further for want of a leader is neither.
func TestWhatIsReadLately(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		is := func(when string, fresh, unread bool) {
			t.Helper()
			if r.Fresh(0) != fresh || r.Unread(0) != unread {
				t.Fatalf("%s: fresh %v, unread %v, want %v, %v", when, r.Fresh(0), r.Unread(0), fresh, unread)
			}
		}
		time.Sleep(time.Second) // the bubble's clock
		is("idle", true, false)
		log.HoldTail(0)
		time.Sleep(r.cfg.Membership.LeaseDuration() - 2*time.Second) // the bubble's clock
		is("nothing was read for less than a session", true, false)
		time.Sleep(3 * time.Second) // the bubble's clock
		is("nothing was read for a session", false, false)
		log.ReleaseTail(0)
		time.Sleep(2 * time.Second) // two reads
		is("read again", true, false)
		r.shards[0].tail.read(r.cfg.Membership.Lease().Now(), 5, 9)
		is("there is more", false, true)
		r.store.fail(eventlog.ErrRefused)
		is("it can't be read", false, true)
		r.store.fail(nil)
		time.Sleep(2 * time.Second) // two reads
		is("and can again", true, false)
		r.store.mu.Lock()
		r.store.parts[0].atEnd = false
		r.store.mu.Unlock()
		is("it is rebuilt", false, true)
	})
}

// TestABarrierIsProvenByWhatIsRead: an acknowledgement alone answers no fetch and no refusal, also inside the lease.
func TestABarrierIsProvenByWhatIsRead(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		if err := r.commit("g", "m", epoch, 3); err != nil {
			t.Fatal(err)
		}
		log.HoldTail(0)
		ask := func() (fetch, refusal func() (int64, error, bool)) {
			return async(func() (int64, error) { return r.fetched("g") }),
				async(func() (int64, error) { _, err := r.beat("g", "stranger", 7); return 0, err })
		}
		fetch, refusal := ask()
		for what, f := range map[string]func() (int64, error, bool){"an offset fetch": fetch, "a refusal": refusal} {
			if _, err, done := f(); done {
				t.Fatalf("%s was answered before its barrier was read: %v", what, err)
			}
		}
		log.ReleaseTail(0)
		if got, err, done := fetch(); !done || err != nil || got != 3 {
			t.Fatalf("the fetch: %d, %v, %v", got, err, done)
		}
		var e *streams.Error
		if _, err, done := refusal(); !done || !errors.As(err, &e) || e.Code != codeUnknownMember {
			t.Fatalf("the refusal: %v, %v", err, done)
		}

		// Another producer id, which the cluster does not let be fenced, and a claim that was not read yet.
		log.HoldTail(0)
		log.ExpireProducer(0)
		successor := log.Steal(0, eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 9, Instance: "z"})
		defer successor.Close()
		fetch, refusal = ask()
		for what, f := range map[string]func() (int64, error, bool){"an offset fetch": fetch, "a refusal": refusal} {
			if _, err, done := f(); done {
				t.Fatalf("%s was answered by an owner that was replaced: %v", what, err)
			}
		}
		log.ReleaseTail(0)
		for what, f := range map[string]func() (int64, error, bool){"the fetch": fetch, "the refusal": refusal} {
			if _, err, done := f(); !done || !errors.Is(err, ErrNotOwner) {
				t.Fatalf("%s: %v, %v", what, err, done)
			}
		}
	})
}

// TestAnAnswerWaitsForItsOwnRecord: a projection that is read again from the beginning passes other records of the same offsets.
func TestAnAnswerWaitsForItsOwnRecord(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		if err := r.commit("g", "m", epoch, 3); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the commit is read
		end, err := log.End(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		log.HoldTail(0)
		fetch := async(func() (int64, error) { return r.fetched("g") })
		if _, _, done := fetch(); done {
			t.Fatal("answered before it was read")
		}
		log.Truncate(0, end-1) // with the commit and the barrier
		other := log.Steal(0, eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 0, Instance: "a"})
		defer other.Close()
		for range 5 {
			other.Barrier(func(int64, error) {}) // any records
		}
		log.ReleaseTail(0)
		if got, err, done := fetch(); !done || err == nil {
			t.Fatalf("an offset that is nowhere any more: %d, %v, %v", got, err, done)
		}
	})
}
