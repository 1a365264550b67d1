package shard

import (
	"errors"
	"testing"

	"streamkeeper/eventlog"
)

// TestAFetchOfAConvertedGroup: a request that was led here as long as the group was ours comes when the cluster has it, with its offsets. "No offset" would have an
// application start over.
func TestAFetchOfAConvertedGroup(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		joined := r.join(t, "g", "m")
		if err := r.commit("g", "m", joined.MemberEpoch, 5); err != nil {
			t.Fatal(err)
		}
		if _, err := r.beat("g", "m", -1); err != nil {
			t.Fatal(err)
		}
		committed, _, ok, err := r.BeginConversion(t.Context(), "g", false)
		if err != nil || !ok || len(committed) != 1 || committed[0].Offset != 5 {
			t.Fatalf("begun: %+v, %v, %v", committed, ok, err)
		}
		if at, err := r.fetched("g"); err != nil || at != 5 {
			t.Errorf("fetched from a frozen group: %d, %v", at, err)
		}
		log.HoldAcks(0)
		finished := async(func() (bool, error) { return r.FinishConversion(t.Context(), "g") })
		if _, _, done := finished(); done {
			t.Fatal("finished before the log has acknowledged it")
		}
		fetched := async(func() (int64, error) { return r.fetched("g") })
		log.ReleaseAcks(0)
		if done, err, ended := finished(); !done || err != nil || !ended {
			t.Errorf("finished: %v, %v, %v", done, err, ended)
		}
		if at, err, _ := fetched(); !errors.Is(err, ErrNotOwner) {
			t.Errorf("fetched when the tombstones were under way: %d, %v", at, err)
		}
		if at, err := r.fetched("g"); !errors.Is(err, ErrNotOwner) {
			t.Errorf("fetched when all was over: %d, %v", at, err)
		}
	})
}
