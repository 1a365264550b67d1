package eventlog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestTheFirstBrokerThatAnswersCounts: one that hangs is waited for no longer than it takes to ask the next, and comes last from then on.
func TestTheFirstBrokerThatAnswersCounts(t *testing.T) {
	var r roster
	r.list([]int32{1, 2, 3}, time.Now())
	var mu sync.Mutex
	var asked []int32
	ask := func(ctx context.Context, node int32) (int32, error) {
		mu.Lock()
		asked = append(asked, node)
		mu.Unlock()
		switch node {
		case 1:
			<-ctx.Done()
			return 0, ctx.Err()
		case 2:
			return 0, errors.New("no")
		}
		return node, nil
	}
	got, err := firstAnswer(t.Context(), &r, []int32{1, 2, 3}, ask)
	if err != nil || got != 3 {
		t.Fatalf("got %d, %v, want the answer of broker 3", got, err)
	}
	if want := []int32{1, 2, 3}; !slices.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
	if order := r.order(); len(order) != 3 || order[2] != 1 {
		t.Errorf("the order is %v, want the silent broker 1 last", order)
	}
	r.heard(1, true)
	if r.isSilent(1) {
		t.Error("a broker that answers is silent")
	}
	if _, err := firstAnswer(t.Context(), &r, []int32{2}, ask); err == nil {
		t.Error("no answer is no error")
	}
	if _, err := firstAnswer(t.Context(), &r, nil, ask); err == nil {
		t.Error("nobody to ask is no error")
	}
}

// TestRosterKnowsWhoIsGone: only a listing that was asked for after the request was sent says so, and an older answer that comes late changes nothing.
func TestRosterKnowsWhoIsGone(t *testing.T) {
	var r roster
	start := time.Now()
	after := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	if r.gone(1, start) {
		t.Error("gone before anything is known")
	}
	r.list([]int32{2, 3}, after(2))
	for _, c := range []struct {
		node  int32
		since int
		want  bool
	}{{1, 1, true}, {1, 3, false}, {2, 1, false}} {
		if got := r.gone(c.node, after(c.since)); got != c.want {
			t.Errorf("broker %d gone since second %d: %v, want %v", c.node, c.since, got, c.want)
		}
	}
	r.list([]int32{1, 2, 3}, after(1))
	if !r.gone(1, after(1)) {
		t.Error("an older listing replaced a newer one")
	}
	r.list(nil, after(4))
	if r.gone(2, after(3)) {
		t.Error("an empty listing counts")
	}
}

// TestClaimsMeetABrokerThatHangs: what it led and coordinated is claimed as soon as the cluster has given it up, in less time than one request is
// waited for, and what others lead and coordinate at once.
func TestClaimsMeetABrokerThatHangs(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		const shards, gone = 8, 1500 * time.Millisecond
		k := open(t, c.ListenAddrs(), partitions(shards), dial)
		if _, err := k.Claim(t.Context(), 0, Ownership{Instance: "first"}); err != nil { // the fence is proven
			t.Fatal(err)
		}
		hangs := k.leaders.get(0).node
		woken := make(chan struct{})
		defer close(woken)
		c.Control(func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if c.CurrentNode() == hangs {
				c.SleepControl(func() { <-woken })
			}
			return nil, nil, false
		})
		begun := time.Now()
		time.AfterFunc(gone, func() {
			if err := c.RemoveNode(hangs); err != nil {
				t.Error(err)
			}
		})
		var claims sync.WaitGroup
		took := make([]time.Duration, shards)
		for p := range int32(shards) {
			claims.Go(func() {
				if _, err := k.Claim(t.Context(), p, Ownership{Instance: "next"}); err != nil {
					t.Errorf("partition %d: %v", p, err)
				}
				took[p] = time.Since(begun)
			})
		}
		claims.Wait()
		t.Logf("broker %d hangs; claims took %v", hangs, took)
		if last := slices.Max(took); last >= requestOverhead {
			t.Errorf("a claim took %v, want less than one request is waited for, %v", last, requestOverhead)
		}
		if took[0] < gone {
			t.Errorf("partition 0 was claimed after %v, before its leader was given up: nothing is tested", took[0])
		}
	})
}
