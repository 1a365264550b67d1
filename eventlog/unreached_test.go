package eventlog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// cutOffNet is a network on which some addresses are not reached.
type cutOffNet struct {
	*kfake.VirtualNetwork
	mu    sync.Mutex
	cut   func(address string) bool
	conns map[net.Conn]string
}

func (n *cutOffNet) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	cut := n.cut != nil && n.cut(address)
	n.mu.Unlock()
	if cut {
		select {
		case <-ctx.Done():
		case <-time.After(requestOverhead): // the bubble's clock; kgo's own dialer has that time-out
		}
		return nil, fmt.Errorf("dial %s: no answer", address)
	}
	conn, err := n.VirtualNetwork.DialContext(ctx, network, address)
	if err == nil {
		n.mu.Lock()
		n.conns[conn] = address
		n.mu.Unlock()
	}
	return conn, err
}

// cutOff ends the connections to addresses, and lets no new ones be made.
func (n *cutOffNet) cutOff(cut func(address string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
	for conn, address := range n.conns {
		if cut != nil && cut(address) {
			conn.Close()
			delete(n.conns, conn)
		}
	}
}

func TestWhoIsNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &cutOffNet{VirtualNetwork: new(kfake.VirtualNetwork), conns: map[net.Conn]string{}}
		c := fakeCluster(t, kfake.Ports(9092, 9093, 9094), kfake.ListenFn(n.Listen))
		const parts = 9
		k := open(t, c.ListenAddrs(), partitions(parts), options(kgo.Dialer(n.DialContext)))
		follow(t, k, newMemory())
		var lost int32
		look := func(when string, want func(p int32) bool) {
			t.Helper()
			for p := range int32(parts) {
				d, err := k.Unreached(p)
				if (d > 0) != want(p) || (d > 0) != (err != nil) || d > time.Minute {
					t.Errorf("%s: partition %d, which node %d leads: %v, %v", when, p, k.leaders.get(p).node, d, err)
				}
			}
		}
		none := func(int32) bool { return false }
		of := func(node int32) func(int32) bool {
			return func(p int32) bool { return k.leaders.get(p).node == node }
		}
		time.Sleep(5 * time.Second) // the bubble's clock
		look("all is well", none)

		lost = k.leaders.get(0).node
		address := c.ListenAddrs()[lost]
		n.cutOff(func(a string) bool { return a == address })
		time.Sleep(30 * time.Second) // the bubble's clock
		look("one broker is not reached", of(lost))

		if err := c.MoveTopicPartition(testTopic, 0, (lost+1)%3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second) // the bubble's clock
		look("another broker leads one partition", func(p int32) bool { return p != 0 && of(lost)(p) })

		n.cutOff(func(string) bool { return true })
		time.Sleep(40 * time.Second) // the bubble's clock
		look("no broker is reached, and none can tell who leads", none)

		n.cutOff(nil)
		time.Sleep(time.Minute) // the bubble's clock
		look("all is well again", none)
	})
}

// Two brokers that have just started and do not know the topic yet, with nobody to ask in between, are not a topic that was deleted for all that time.
func TestATopicThatIsUnknownBeforeAndAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &cutOffNet{VirtualNetwork: new(kfake.VirtualNetwork), conns: map[net.Conn]string{}}
		c := fakeCluster(t, kfake.Ports(9092, 9093, 9094), kfake.ListenFn(n.Listen))
		k := open(t, c.ListenAddrs(), partitions(1), options(kgo.Dialer(n.DialContext)))
		ended := follow(t, k, newMemory())
		unknown := func() {
			c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.UnknownTopicOrPartition, Count: 1})
		}
		time.Sleep(5 * time.Second) // the bubble's clock
		unknown()
		k.leaders.refresh()
		time.Sleep(failedPause / 2) // the bubble's clock
		n.cutOff(func(string) bool { return true })
		time.Sleep(2 * missingMax) // the bubble's clock
		unknown()
		n.cutOff(nil)
		time.Sleep(2 * missingMax) // the bubble's clock
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
		if err := k.leaders.failed(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWhatCountsAsNotReached(t *testing.T) {
	var u unreached
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	leader := leadership{1, 7}
	silent := fmt.Errorf("fetch: %w", &connectionError{1, errors.New("no route to host")})
	since := func() string {
		s, ok := u.by[3]
		if !ok {
			return ""
		}
		return fmt.Sprintf("%v %v", s.since.Sub(start), s.err)
	}
	for _, c := range []struct {
		what   string
		leader leadership
		err    error
		at     int
		want   string
	}{
		{"an answer", leader, nil, 0, ""},
		{"none", leader, silent, 1, "1s"},
		{"none again", leader, &connectionError{1, errors.New("timed out")}, 6, "1s"},
		{"an error is an answer", leader, kerr.NotLeaderForPartition, 7, ""},
		{"none", leader, silent, 8, "8s"},
		{"another leader that does not answer", leadership{2, 8}, silent, 9, "9s"},
		{"nobody leads", leadership{-1, -1}, errNoLeader, 10, ""},
	} {
		u.note(3, c.leader, c.err, at(c.at))
		if got := since(); (got == "") != (c.want == "") || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
