package shard

import (
	"reflect"
	"testing"
	"testing/synctest"

	"streamkeeper/eventlog"
)

// A loop that takes no turn is told after as many looks, and no more once it goes on.
func TestALoopThatHangsIsTold(t *testing.T) {
	inWorld(t, 3, func(t *testing.T, _ *eventlog.Fake, start func(int32) *node) {
		n := start(1)
		hold := make(chan struct{})
		held := make(chan struct{})
		n.shards[1].post(func(*Shard) { close(held); <-hold })
		<-held
		for range loopLooksMax + 1 {
			if got := n.Hung(); got != nil {
				t.Errorf("hung already: %v", got)
			}
			n.lookAtLoops()
			synctest.Wait()
		}
		if got := n.Hung(); !reflect.DeepEqual(got, []int32{1}) {
			t.Errorf("hung are %v", got)
		}
		close(hold)
		synctest.Wait()
		if got := n.Hung(); got != nil {
			t.Errorf("it goes on, and is hung: %v", got)
		}
	})
}
