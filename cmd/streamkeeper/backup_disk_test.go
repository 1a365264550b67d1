package main

import (
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
)

// TestABackupIsOfWhatIsOnDisk: a store closes without an error also where it could not write all that it has read.
func TestABackupIsOfWhatIsOnDisk(t *testing.T) {
	id := eventlog.Identity{Topic: "__streams_groups", TopicID: [16]byte{1}, Partitions: 2}
	batch := eventlog.Batch{Next: 3, LeaderEpoch: 1, HighWatermark: 3}
	part := batch
	part.HighWatermark = 4
	for _, c := range []struct {
		what string
		full bool
		last eventlog.Batch
		says string
	}{
		{"whole", false, batch, ""},
		{"a full disk", true, batch, "no space left on the disk"},
		{"a part of a partition", false, part, "not to their end: partitions [1]"},
	} {
		t.Run(c.what, func(t *testing.T) {
			var full atomic.Bool
			dir := projection.Config{Dir: "log", Identity: id, DeleteRetention: time.Hour, FlushInterval: time.Millisecond,
				FS: errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
					if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpRemove && op.Kind != errorfs.OpRemoveAll {
						return syscall.ENOSPC
					}
					return nil
				}))}
			store, err := projection.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			full.Store(c.full)
			for p, b := range []eventlog.Batch{batch, c.last} {
				if err := store.Batch(int32(p), b); err != nil {
					t.Fatal(err)
				}
			}
			for deadline := time.Now().Add(time.Minute); c.full && !store.Stats().Full; time.Sleep(time.Millisecond) { // nothing tells when it happens
				if time.Now().After(deadline) {
					t.Fatal("the disk is not found full")
				}
			}
			ends, held, err := keep(store, dir, id)
			if len(ends) != 2 || ends[0] != 3 || ends[1] != 3 {
				t.Errorf("read to %v", ends)
			}
			if c.says == "" {
				if err != nil || held.Read != 6 {
					t.Errorf("%+v, %v", held, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}
