package shard

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// handClock is a clock that a test moves.
type handClock struct{ at atomic.Int64 }

func newHandClock() *handClock {
	c := &handClock{}
	c.at.Store(int64(time.Hour))
	return c
}

func (c *handClock) Now() Instant            { return Instant(c.at.Load()) }
func (c *handClock) advance(d time.Duration) { c.at.Add(int64(d)) }

// sec is the instant s seconds after a handClock's start.
func sec(s float64) Instant { return Instant(time.Hour).Add(time.Duration(s * float64(time.Second))) }

func testLease() (*Lease, *handClock) {
	c := newHandClock()
	return newLease(c, 6*time.Second, 18*time.Second, time.Second), c
}

func mustBeat(t testing.TB, l *Lease, member string, generation int32) beat {
	t.Helper()
	b, ok := l.beat(member, generation)
	if !ok {
		t.Fatalf("no heartbeat of %s/%d would count", member, generation)
	}
	return b
}

func wantUntil(t testing.TB, l *Lease, want Instant) {
	t.Helper()
	if got := l.Until(); got != want {
		t.Fatalf("lease ends at %v, want %v", got.Sub(sec(0)), want.Sub(sec(0)))
	}
}

func TestLeaseCountsFromTheSendingOfTheHeartbeat(t *testing.T) {
	l, c := testLease()
	if l.Valid(l.Now()) {
		t.Fatal("a lease without an assignment is valid")
	}
	if _, ok := l.beat("a", 1); ok {
		t.Fatal("a heartbeat would count before an assignment is known")
	}
	l.begin("a", 1)
	l.hold([]int32{0, 1})
	b := mustBeat(t, l, "a", 1)
	c.advance(3 * time.Second) // the answer takes its time
	wantUntil(t, l, Never)
	if !l.confirm(b, false) {
		t.Fatal("answer did not count")
	}
	wantUntil(t, l, sec(5))
	for _, at := range []struct {
		now  Instant
		want bool
	}{{sec(3), true}, {sec(5) - 1, true}, {sec(5), false}, {sec(100), false}} {
		if l.Valid(at.now) != at.want || l.ValidFor(0, at.now) != at.want {
			t.Errorf("valid at %v: %v, for partition 0: %v, want %v", at.now.Sub(sec(0)), l.Valid(at.now), l.ValidFor(0, at.now), at.want)
		}
	}
	if l.ValidFor(2, sec(3)) {
		t.Error("valid for a partition that is not assigned")
	}
}

func TestLeaseIsOverAfterAJumpOfTheClock(t *testing.T) {
	l, c := testLease()
	l.begin("a", 1)
	l.confirm(mustBeat(t, l, "a", 1), false)
	b := mustBeat(t, l, "a", 1)
	c.advance(time.Hour) // the machine was suspended with a heartbeat under way
	if l.Valid(l.Now()) {
		t.Fatal("lease outlived the suspension")
	}
	l.confirm(b, false) // its answer lay in the socket
	if l.Valid(l.Now()) {
		t.Fatal("an answer from before the suspension brought the lease back")
	}
	l.confirm(mustBeat(t, l, "a", 1), false)
	if !l.Valid(l.Now()) {
		t.Fatal("a new answer did not bring the lease back")
	}
}

func TestLeaseTakesAnswersInAnyOrder(t *testing.T) {
	l, c := testLease()
	l.begin("a", 1)
	b1 := mustBeat(t, l, "a", 1)
	c.advance(time.Second)
	b2 := mustBeat(t, l, "a", 1)
	l.confirm(b2, false)
	wantUntil(t, l, sec(6))
	l.confirm(b1, false)
	wantUntil(t, l, sec(6))
}

func TestLeaseInARebalance(t *testing.T) {
	l, c := testLease()
	l.begin("a", 1)
	l.confirm(mustBeat(t, l, "a", 1), false) // at 0: the last time that the group was quiet
	for range 10 {
		c.advance(time.Second)
		l.confirm(mustBeat(t, l, "a", 1), true)
	}
	wantUntil(t, l, sec(15)) // 10 + 6 - 1: a rebalance keeps the lease
	for range 4 {
		c.advance(time.Second)
		l.confirm(mustBeat(t, l, "a", 1), true)
	}
	wantUntil(t, l, sec(15)) // 0 + 18 - 3: the group waits no longer than the rebalance time-out
	l.confirm(mustBeat(t, l, "a", 2), false)
	wantUntil(t, l, sec(15)) // generation 2 is joined, but its assignment is not fetched: the group still waits for us
	l.begin("a", 2)
	l.confirm(mustBeat(t, l, "a", 2), false)
	wantUntil(t, l, sec(19))
}

func TestLeaseEnds(t *testing.T) {
	l, c := testLease()
	l.begin("a", 1)
	l.hold([]int32{0, 1, 2})
	l.confirm(mustBeat(t, l, "a", 1), false)
	l.letGo([]int32{2})
	late := mustBeat(t, l, "a", 1)
	l.end()
	for p := range int32(3) {
		if l.Valid(l.Now()) || l.ValidFor(p, l.Now()) {
			t.Fatalf("lease or partition %d is valid after the end", p)
		}
	}
	if l.confirm(late, false); l.Valid(l.Now()) {
		t.Fatal("a heartbeat sent before the end brought the lease back")
	}
	if _, ok := l.beat("a", 1); ok {
		t.Fatal("a heartbeat would count after the end")
	}
	l.begin("b", 7)
	if l.confirm(late, false); l.Valid(l.Now()) {
		t.Fatal("a heartbeat of the old member counts for the new one")
	}
	c.advance(time.Second)
	l.confirm(mustBeat(t, l, "b", 7), false)
	if !l.Valid(l.Now()) || l.ValidFor(0, l.Now()) {
		t.Fatal("want a lease that covers nothing of the time before")
	}
}

func TestRevokedPartitionKeepsItsLeaseButNoMore(t *testing.T) {
	l, c := testLease()
	l.begin("a", 1)
	l.hold([]int32{0, 1})
	l.confirm(mustBeat(t, l, "a", 1), false)
	c.advance(time.Second)
	l.letGo([]int32{1})
	l.confirm(mustBeat(t, l, "a", 1), false)
	l.letGo([]int32{1, 9}) // twice, and one that was never ours
	if l.UntilOf(0) != sec(6) || l.UntilOf(1) != sec(5) || l.UntilOf(9) != Never {
		t.Fatalf("ends: %v %v %v", l.UntilOf(0), l.UntilOf(1), l.UntilOf(9))
	}
	l.hold([]int32{1})
	if l.UntilOf(1) != sec(6) {
		t.Fatal("an assigned partition does not have the replica's lease")
	}
}

func TestLeaseOfALeavingReplicaIsNotProlonged(t *testing.T) {
	l, c := testLease()
	l.begin("a", 1)
	l.hold([]int32{0})
	l.confirm(mustBeat(t, l, "a", 1), false)
	c.advance(time.Second)
	late := mustBeat(t, l, "a", 1)
	l.stop()
	l.letGo([]int32{0})
	l.confirm(late, false)
	if _, ok := l.beat("a", 1); ok || l.UntilOf(0) != sec(5) {
		t.Fatalf("lease on 0 ends at %v, want 5s; a further heartbeat would count: %v", l.UntilOf(0).Sub(sec(0)), ok)
	}
}

// TestLeaseNeverOutlivesTheMembership plays random histories of a member, a network and a coordinator whose clock runs
// at another speed. As long as the lease is valid the coordinator must not have removed the member.
func TestLeaseNeverOutlivesTheMembership(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const session, margin = 6000, 1000 // ms
		rebalance := rapid.SampledFrom([]float64{3000, 7000, 18000}).Draw(t, "rebalance time-out")
		c := newHandClock()
		l := newLease(c, session*time.Millisecond, time.Duration(rebalance)*time.Millisecond, margin*time.Millisecond)
		// The margin is for this: at most margin/session too fast.
		speed := rapid.Float64Range(0.9, float64(session)/(session-margin)).Draw(t, "speed of the coordinator's clock")
		var now float64 // ms of the member's clock
		coordinator := func() float64 { return now * speed }

		type request struct {
			b   beat
			gen int
		}
		type answer struct {
			b           beat
			rebalancing bool
		}
		var requests []request
		var answers []answer
		gen, known := 1, 1 // of the group; whose assignment the member knows
		removed, rebalancing, syncPending := false, false, false
		lastHeard, waitingSince := coordinator(), 0.0
		l.begin("m", 1)

		expire := func() {
			at := coordinator()
			if !removed && (at-lastHeard >= session || (rebalancing || syncPending) && at-waitingSince >= rebalance) {
				removed = true
			}
		}
		check := func(what string) {
			expire()
			if removed && l.Valid(l.Now()) {
				t.Fatalf("after %s at %.0f ms: removed, and the lease lasts until %v", what, now, l.Until().Sub(sec(0)))
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) {
				d := rapid.SampledFrom([]int{1, 100, 900, 900, 2500, 2500, 4999, 5000, 20000}).Draw(t, "ms")
				now += float64(d)
				c.advance(time.Duration(d) * time.Millisecond)
				check("time")
			},
			"send": func(t *rapid.T) {
				// kgo's generation may be one ahead of the assignment that is known.
				if b, ok := l.beat("m", int32(rapid.SampledFrom([]int{known, gen}).Draw(t, "generation"))); ok && len(requests) < 20 {
					requests = append(requests, request{b, int(b.generation)})
				}
			},
			"receive": func(t *rapid.T) {
				expire()
				if len(requests) == 0 {
					return
				}
				i := rapid.IntRange(0, len(requests)-1).Draw(t, "which")
				r := requests[i]
				requests = append(requests[:i], requests[i+1:]...)
				if removed || r.gen != gen {
					return // UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION
				}
				lastHeard = coordinator()
				answers = append(answers, answer{r.b, rebalancing})
			},
			"answer": func(t *rapid.T) {
				if len(answers) == 0 {
					return
				}
				i := rapid.IntRange(0, len(answers)-1).Draw(t, "which")
				l.confirm(answers[i].b, answers[i].rebalancing)
				answers = append(answers[:i], answers[i+1:]...)
				check("answer")
			},
			"quick heartbeat": func(t *rapid.T) {
				expire()
				b, ok := l.beat("m", int32(gen))
				if !ok || removed {
					return
				}
				lastHeard = coordinator()
				l.confirm(b, rebalancing)
				check("quick heartbeat")
			},
			"another member joins": func(t *rapid.T) {
				expire()
				if !removed && !rebalancing && !syncPending {
					rebalancing, waitingSince = true, coordinator()
				}
			},
			"join answered": func(t *rapid.T) {
				expire()
				if !removed && rebalancing {
					rebalancing, syncPending, waitingSince = false, true, coordinator()
					gen++
					lastHeard = coordinator()
				}
			},
			"sync answered": func(t *rapid.T) {
				expire()
				if !removed && syncPending {
					syncPending = false
					known = gen
					lastHeard = coordinator()
					l.begin("m", int32(gen))
				}
			},
			"": func(*rapid.T) { check("step") },
		})
	})
}

func TestSlewClockCountsSleepAndIgnoresSlewing(t *testing.T) {
	type step struct{ mono, wall, want time.Duration }
	for name, steps := range map[string][]step{
		"runs":                      {{time.Second, time.Second, time.Second}},
		"machine slept":             {{0, time.Hour, time.Hour}},
		"wall clock set back":       {{time.Second, -time.Hour, time.Second}},
		"forward and back again":    {{time.Second, time.Hour, time.Hour}, {time.Second, -time.Hour, time.Second}},
		"monotonic clock went back": {{-time.Second, 0, 0}, {2 * time.Second, time.Second, 2 * time.Second}},
		"slewed": {{time.Second, time.Second + 50*time.Millisecond, time.Second},
			{time.Second, time.Second + 50*time.Millisecond, time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			var mono, wall time.Duration
			c := &slewClock{read: func() (time.Duration, time.Duration) { return mono, wall }}
			before := c.Now()
			if before == Never {
				t.Fatal("the first reading is Never")
			}
			for i, s := range steps {
				mono += s.mono
				wall += s.wall
				now := c.Now()
				if got := now.Sub(before); got != s.want {
					t.Errorf("step %d: advanced by %v, want %v", i, got, s.want)
				}
				before = now
			}
		})
	}
}

func TestBootClockRuns(t *testing.T) {
	for name, c := range map[string]Clock{"boot": BootClock(), "slew": newSlewClock()} {
		a := c.Now()
		time.Sleep(20 * time.Millisecond) // the clock itself is what is tested
		if d := c.Now().Sub(a); a == Never || d < 20*time.Millisecond || d > 10*time.Second {
			t.Errorf("%s: 20 ms took %v by the clock, from %d", name, d, a)
		}
	}
}

func BenchmarkLeaseValidFor(b *testing.B) {
	l := newLease(BootClock(), 6*time.Second, 18*time.Second, time.Second)
	l.hold([]int32{3})
	for b.Loop() {
		if l.ValidFor(3, l.Now()) {
			b.Fatal("valid")
		}
	}
}

func ExampleInstant() {
	var i Instant = 5
	fmt.Println(i.Add(2 * time.Nanosecond).Sub(i))
	// Output: 2ns
}
