package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/projection"
	"streamkeeper/shard"
)

// TestAReplicaThatCantStoreLeavesToOthers: after its patience, if others are there, and those with smaller node ids first.
func TestAReplicaThatCantStoreLeavesToOthers(t *testing.T) {
	full := fmt.Errorf("%w: no space left", projection.ErrStorage)
	always := func() error { return full }
	group := func(nodes ...int32) func(context.Context) ([]shard.GroupMember, error) {
		return func(context.Context) (all []shard.GroupMember, err error) {
			for _, n := range nodes {
				all = append(all, shard.GroupMember{NodeID: n})
			}
			return all, nil
		}
	}
	for name, c := range map[string]struct {
		look    func() error
		members func(context.Context) ([]shard.GroupMember, error)
		after   time.Duration // 0: never
	}{
		"the first of three":  {always, group(7, 8, 9), storagePatience},
		"the last of three":   {always, group(5, 6, 7), 3 * storagePatience},
		"alone":               {always, group(7), 0},
		"nobody knows":        {always, func(context.Context) ([]shard.GroupMember, error) { return nil, errors.New("no answer") }, 0},
		"nothing is wrong":    {func() error { return nil }, group(7, 8), 0},
		"it comes and goes":   {everyOther(20*time.Second, full), group(7, 8), 0},
		"not asked, no group": {always, group(), 0},
		"the others are no better": {always, func(context.Context) ([]shard.GroupMember, error) {
			return []shard.GroupMember{{NodeID: 7}, {NodeID: 8, Declines: map[int32]string{2: shard.DeclinedStorage, 3: shard.DeclinedStorage}}}, nil
		}, 0},
		"the other can't take one of two": {always, func(context.Context) ([]shard.GroupMember, error) {
			return []shard.GroupMember{{NodeID: 7}, {NodeID: 8, Declines: map[int32]string{3: shard.DeclinedRecord}}}, nil
		}, storagePatience},
		"the other can't take what isn't here": {always, func(context.Context) ([]shard.GroupMember, error) {
			return []shard.GroupMember{{NodeID: 7}, {NodeID: 8, Declines: map[int32]string{0: shard.DeclinedRecord, 1: shard.DeclinedRecord}}}, nil
		}, storagePatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				begun := time.Now()
				err := (&storageWatch{look: c.look, shards: func() []int32 { return []int32{2, 3} }, members: c.members, self: 7, patience: storagePatience, pause: storageLook}).run(ctx)
				took := time.Since(begun)
				switch {
				case c.after == 0 && err != nil:
					t.Errorf("after %s: %v", took, err)
				case c.after != 0 && (!errors.Is(err, projection.ErrStorage) || !strings.Contains(err.Error(), "--data-dir") || took < c.after || took > c.after+3*storageLook):
					t.Errorf("after %s: %v, want it after %s", took, err, c.after)
				}
			})
		})
	}
}

// TestAReplicaWhoseShardsWereTakenStays: others have them, so nothing is gained by its end, and there may be space again.
func TestAReplicaWhoseShardsWereTakenStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		w := &storageWatch{self: 7, patience: storagePatience, pause: storageLook, shards: func() []int32 { return nil }, look: func() error { return projection.ErrStorage },
			members: func(context.Context) ([]shard.GroupMember, error) {
				return []shard.GroupMember{{NodeID: 7}, {NodeID: 8}}, nil
			}}
		if err := w.run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// everyOther is an error for a while, then none for a while.
func everyOther(period time.Duration, err error) func() error {
	var begun time.Time
	return func() error {
		if begun.IsZero() {
			begun = time.Now()
		}
		if time.Since(begun)/period%2 == 0 {
			return err
		}
		return nil
	}
}

// The numbers of the system's errors look like those of the network; a start that waits for the cluster must not wait for the disk.
func TestWhatTheDiskRefusesIsNotOfTheCluster(t *testing.T) {
	_, ofDisk := os.Stat("/dev/null/x")
	_, ofNetwork := net.Dial("tcp", "127.0.0.1:1")
	for err, want := range map[error]bool{
		fmt.Errorf("projection: %w", ofDisk):                                       false,
		fmt.Errorf("%w: %w", projection.ErrStorage, syscall.ENOSPC):                false,
		fmt.Errorf("list the nodes: %w", ofNetwork):                                true,
		fmt.Errorf("metadata of x: %w", &kgo.ErrFirstReadEOF{}):                    true,
		errors.New("log topic x: cleanup.policy is delete, and has to be compact"): false,
	} {
		if got := passing(err); got != want {
			t.Errorf("%v: passing %v, want %v", err, got, want)
		}
	}
}
