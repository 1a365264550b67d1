package shard

import (
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
)

// TestWhatChangesDuringATakeoverIsTakenOver: the successor reads its groups while the former owner serves. What the former owner answers after that
// and before the claim is in the log must be in the successor's memory: new groups, new epochs, members that left, groups that are gone.
func TestWhatChangesDuringATakeoverIsTakenOver(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		a := serving(t, log, start)
		leave := func(group, member string) {
			t.Helper()
			if _, err := a.beat(group, member, -1); err != nil {
				t.Fatal(err)
			}
		}
		epoch := map[string]int32{}
		for _, g := range []string{"same", "grows", "empties", "shrinks"} {
			epoch[g] = a.join(t, g, "m").MemberEpoch
		}
		left := a.join(t, "shrinks", "n").MemberEpoch
		b := start(1)
		synctest.Wait()
		log.HoldClaims(0)
		b.m.assign(time.Hour, 0)
		a.m.revoke(0)
		time.Sleep(time.Second) // the bubble's clock: b has read all groups, and hangs in its claim
		synctest.Wait()

		grown := a.join(t, "grows", "n").MemberEpoch
		fresh := a.join(t, "new", "m").MemberEpoch
		leave("empties", "m")
		leave("shrinks", "n")
		synctest.Wait()
		log.ReleaseClaims(0)
		b.awaitServing(t)

		if got := len(b.shards[0].groups); got != 4 { // same, grows, shrinks, new; the loop is idle
			t.Errorf("%d groups are in memory, want the 4 with members", got)
		}
		for _, m := range []struct {
			group, member string
			epoch         int32
			known         bool
		}{
			{"same", "m", epoch["same"], true}, {"grows", "m", epoch["grows"], true}, {"grows", "n", grown, true}, {"new", "m", fresh, true},
			{"empties", "m", epoch["empties"], false}, {"shrinks", "m", epoch["shrinks"], true}, {"shrinks", "n", left, false},
		} {
			resp, err := b.beat(m.group, m.member, m.epoch)
			if got := err == nil && resp.ErrorCode == 0; got != m.known {
				t.Errorf("heartbeat of %s in %s at the successor: %v %v, want success %v", m.member, m.group, resp, err, m.known)
			}
		}
		if n := len(b.store.tracks); n != 1 {
			t.Errorf("the successor's projection was tracked %d times for one claim", n)
		}
	})
}

// TestAClaimThatFailsStopsTracking: nothing is noted any more for a takeover that came to nothing.
func TestAClaimThatFailsStopsTracking(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := start(0)
		synctest.Wait()
		tracked := 0
		r.store.onTrack = func(d int) { tracked += d }
		for range 3 {
			log.FailClaim(0, eventlog.ErrOutcomeUnknown)
		}
		r.m.assign(time.Hour, 0)
		r.awaitServing(t)
		if tracked != 0 {
			t.Errorf("%d trackers were left behind", tracked)
		}
	})
}
