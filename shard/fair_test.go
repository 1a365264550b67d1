package shard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
)

// TestLongTurnsDoNotHoldOthersUp: while many requests of one group take long each, one of another group waits for a turn or two,
// not for all; and within each group the order stays.
func TestLongTurnsDoNotHoldOthersUp(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		const long = 5 * longTurn
		var mu sync.Mutex
		var order []string
		var all sync.WaitGroup
		send := func(group string, i int, takes time.Duration) {
			all.Go(func() {
				_, err := call(context.Background(), r.Host, "test", group, func(*turn) (struct{}, effect, error) {
					time.Sleep(takes)
					mu.Lock()
					defer mu.Unlock()
					order = append(order, fmt.Sprint(group, i))
					return struct{}{}, effect{}, nil
				})
				if err != nil {
					t.Errorf("%s %d: %v", group, i, err)
				}
			})
			synctest.Wait() // it is in the inbox, or being served
		}
		for i := range 4 { // the first is being served, the others wait
			send("large", i, long)
		}
		send("huge", 0, long)
		send("huge", 1, long)
		send("small", 0, 0)
		send("large", 4, long)
		send("small", 1, 0)
		// What the loop took out with one look is served in its order until a turn was long: so small waits for one turn of each of the others.
		time.Sleep(long + time.Microsecond)
		send("small", 2, 0)
		all.Wait()
		mine := func(group string, n int) (list []string) {
			for _, x := range order {
				if x[:len(group)] == group {
					list = append(list, x)
				}
			}
			if len(list) != n {
				t.Errorf("%d turns of %s in %v", len(list), group, order)
			}
			return list
		}
		for group, n := range map[string]int{"large": 5, "huge": 2, "small": 3} {
			if list := mine(group, n); !slices.IsSorted(list) {
				t.Errorf("turns of %s in the order %v", group, list)
			}
		}
		if last := slices.Index(order, "small2"); last > 6 {
			t.Errorf("a group of short turns waited for long ones: %v", order)
		}
		if len(r.shards[0].fair.later) != 0 || len(r.shards[0].fair.slow) != 0 {
			t.Errorf("left over: %+v", r.shards[0].fair)
		}
	})
}

// TestDeferredRequestsAreAnsweredAtTheEnd: what waits for its turn when the loop ends is answered, too.
func TestDeferredRequestsAreAnsweredAtTheEnd(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		const n = 10
		var all sync.WaitGroup
		var mu sync.Mutex
		outcomes := map[string]int{}
		for range n {
			all.Go(func() {
				_, err := call(context.Background(), r.Host, "test", "large", func(*turn) (struct{}, effect, error) {
					time.Sleep(5 * longTurn)
					return struct{}{}, effect{}, nil
				})
				mu.Lock()
				defer mu.Unlock()
				outcomes[fmt.Sprint(err)]++
			})
		}
		time.Sleep(12 * longTurn) // in the third turn
		r.stop()
		all.Wait()
		if served := outcomes["<nil>"]; served < 1 || served == n {
			t.Errorf("outcomes %v", outcomes)
		}
	})
}
