package eventlog

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestACoordinatorThatIsNotReached: a broker that this process alone does not reach leads some partitions and coordinates the claims of others. These are read, and can't be
// claimed; that is known of all of them once one claim has met it, and for as long as it is so, also where nobody claims.
func TestACoordinatorThatIsNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &cutOffNet{VirtualNetwork: new(kfake.VirtualNetwork), conns: map[net.Conn]string{}}
		c := fakeCluster(t, kfake.Ports(9092, 9093, 9094), kfake.ListenFn(n.Listen))
		t.Cleanup(func() { time.Sleep(10 * time.Minute) })
		const parts = 12
		k := open(t, c.ListenAddrs(), partitions(parts), options(kgo.Dialer(n.DialContext)))
		follow(t, k, newMemory())
		coordinator := func(p int32) int32 { return c.CoordinatorFor(TransactionalID(testTopic, p, 0)) }
		if _, err := k.Claim(t.Context(), 0, Ownership{}); err != nil { // the fence is proven
			t.Fatal(err)
		}
		claimed := int32(-1) // is read well, and its claims need another broker
		for p := range int32(parts) {
			if c.LeaderFor(testTopic, p) != coordinator(p) && p != 0 && coordinator(p) != coordinator(0) {
				claimed = p
			}
		}
		if claimed < 0 {
			t.Fatal("no partition to try")
		}
		lost := coordinator(claimed)
		look := func(when string, least, most time.Duration, want func(p int32) bool) {
			t.Helper()
			for p := range int32(parts) {
				d, err := k.Unclaimable(p)
				if (err != nil) != want(p) || err != nil && (d < least || d > most) || err == nil && d != 0 {
					t.Errorf("%s: partition %d, which node %d leads and node %d coordinates: %v, %v", when, p, c.LeaderFor(testTopic, p), coordinator(p), d, err)
				}
				if d, _ := k.Unreached(p); d > 0 && c.LeaderFor(testTopic, p) != lost {
					t.Errorf("%s: partition %d is led by node %d, which is reached: %v", when, p, c.LeaderFor(testTopic, p), d)
				}
			}
		}
		none := func(int32) bool { return false }
		ofLost := func(p int32) bool { return coordinator(p) == lost }
		address := c.ListenAddrs()[lost]
		cut := func(a string) bool { return a == address }

		n.cutOff(cut)
		time.Sleep(20 * time.Second) // the bubble's clock
		look("nobody has claimed", 0, 0, none)
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second) // the bubble's clock
		_, err := k.Claim(ctx, claimed, Ownership{})
		cancel()
		var connection *connectionError
		if err == nil || ctx.Err() == nil || errors.As(err, &connection) && connection.node != lost {
			t.Errorf("a claim whose coordinator is not reached: %v", err)
		}
		look("a claim has met it", 14*time.Second, 25*time.Second, ofLost)
		time.Sleep(10 * time.Minute) // the bubble's clock
		look("nobody claims any more", 10*time.Minute, 11*time.Minute, ofLost)

		n.cutOff(func(string) bool { return true })
		time.Sleep(40 * time.Second) // the bubble's clock
		look("no broker is reached, and none can tell who coordinates", 0, 0, none)
		n.cutOff(cut)
		time.Sleep(time.Minute) // the bubble's clock
		look("the others are reached again", 11*time.Minute, 13*time.Minute, ofLost)

		n.cutOff(nil)
		time.Sleep(2 * requestOverhead) // the bubble's clock
		look("all is well again", 0, 0, none)
		if _, err := k.Claim(t.Context(), claimed, Ownership{}); err != nil {
			t.Errorf("a claim when all is well again: %v", err)
		}
	})
}

func TestWhichCoordinatorsCountAsNotReached(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var u unclaimable
	since := func(p int32) int {
		m, ok := u.by[p]
		if !ok || m.named.Before(m.since) {
			return -1
		}
		return int(m.since.Sub(start) / time.Second)
	}
	for _, c := range []struct {
		what     string
		do       func()
		one, two int // since when partitions 1 and 2 can't be claimed
	}{
		{"a coordinator is named", func() { u.named(1, 7, at(0)) }, -1, -1},
		{"it does not answer", func() { u.silent(1, "l-1", 7, errors.New("timed out"), at(5)) }, -1, -1},
		{"it is named again", func() { u.named(1, 7, at(6)) }, 5, -1},
		{"it does not answer again", func() { u.silent(1, "l-1", 7, errors.New("timed out"), at(11)) }, 5, -1},
		{"nor for another partition", func() { u.silent(2, "l-2", 7, errors.New("timed out"), at(12)); u.named(2, 7, at(12)) }, 5, 5},
		{"another answers", func() { u.heard(6) }, 5, 5},
		{"another is the coordinator", func() { u.named(1, 6, at(13)) }, -1, 5},
		{"and does not answer either", func() { u.silent(1, "l-1", 6, errors.New("timed out"), at(18)); u.named(1, 6, at(18)) }, 18, 5},
		{"it answers", func() { u.heard(7) }, 18, -1},
		{"the other one does, too", func() { u.heard(6) }, -1, -1},
	} {
		c.do()
		if one, two := since(1), since(2); one != c.one || two != c.two {
			t.Errorf("%s: since %d and %d, want %d and %d", c.what, one, two, c.one, c.two)
		}
	}
	if len(u.by) != 0 {
		t.Errorf("%d are kept", len(u.by))
	}
}
