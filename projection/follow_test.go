package projection

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
)

// following opens a store and lets it follow a log until stop is called.
func following(t *testing.T, cfg Config, log eventlog.Log) (s *Store, stop func()) {
	t.Helper()
	cfg.Identity = log.Identity()
	s = open(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- log.Follow(ctx, s) }()
	return s, func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow: %v", err)
		}
		must(t, s.Close())
	}
}

func appendGroups(t *testing.T, w eventlog.Writer, groups ...string) {
	t.Helper()
	for _, g := range groups {
		raw := eventlog.Encode(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeGroup, Group: g}, Value: &eventlog.Group{Epoch: 1}})
		outcome := make(chan error, 1)
		w.Append(1, []eventlog.Raw{raw}, func(_ int64, err error) { outcome <- err })
		must(t, <-outcome)
	}
}

// TestAProducerIDComesBack: the cluster gives an id that a claim has replaced. No reader counts a claim by it, so the claimer takes another.
func TestAProducerIDComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventlog.NewFake(eventlog.FakeOptions{Partitions: 2})
		defer log.Close()
		cfg := testConfig(vfs.NewMem())
		s, stop := following(t, cfg, log)
		claims := func(node int32) {
			t.Helper()
			var prev *eventlog.Owner
			if o, ok := s.Owner(1); ok {
				prev = &o
			}
			w, err := log.ClaimAfter(t.Context(), 1, eventlog.Ownership{NodeID: node, Address: "one:1"}, prev, time.Minute)
			must(t, err)
			appendGroups(t, w, fmt.Sprint(node))
			synctest.Wait()
			if o, _ := s.Owner(1); o.NodeID != node || o.Generation != w.Claim().Generation || o.Number != w.Claim().Number {
				t.Errorf("owner %+v, the claim of node %d is %+v", o, node, w.Claim())
			}
		}
		claims(1)
		log.ExpireProducer(1)
		claims(2)
		log.ReturnProducer(1)
		claims(3)
		claims(4)
		stop() // what was replaced is remembered with what was read
		s, stop = following(t, cfg, log)
		defer stop()
		synctest.Wait()
		log.ReturnProducer(1)
		claims(5)
		wantGroups(t, s, 1, "1", "2", "3", "4", "5")
		if void := s.Stats().Void; void != 0 {
			t.Errorf("%d records are void", void)
		}
	})
}

// TestFollowsALog: a store behind a tail, with claims, a cut log, a deleted beginning, and restarts in between.
func TestFollowsALog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventlog.NewFake(eventlog.FakeOptions{Partitions: 2})
		defer log.Close()
		cfg := testConfig(vfs.NewMem())
		s, stop := following(t, cfg, log)
		synctest.Wait()
		if !s.AllAtEnd() {
			t.Error("not at the end of an empty log")
		}
		w, err := log.Claim(t.Context(), 1, eventlog.Ownership{NodeID: 1, Address: "one:1"})
		must(t, err)
		appendGroups(t, w, "a", "b")
		must(t, s.Wait(t.Context(), 1, 3))
		wantGroups(t, s, 1, "a", "b")
		if o, ok := s.Owner(1); !ok || o.NodeID != 1 || o.Generation != w.Claim().Generation {
			t.Errorf("owner %+v, %v", o, ok)
		}

		// another claims, and a late write of the former one, with a new producer id, is void
		log.ExpireProducer(1)
		w2, err := log.Claim(t.Context(), 1, eventlog.Ownership{NodeID: 2, Address: "two:1"})
		must(t, err)
		appendGroups(t, w, "void")
		appendGroups(t, w2, "c")
		synctest.Wait()
		wantGroups(t, s, 1, "a", "b", "c")
		if o, _ := s.Owner(1); o.NodeID != 2 || s.Stats().Void != 1 {
			t.Errorf("owner %+v, %d void", o, s.Stats().Void)
		}

		// a restart, while the log goes on and is compacted
		stop()
		appendGroups(t, w2, "d", "a", "a")
		log.Compact(1, true)
		s, stop = following(t, cfg, log)
		synctest.Wait()
		wantGroups(t, s, 1, "a", "b", "c", "d")
		wantRebuilds(t, s, map[Reason]uint64{})

		// an unclean election cuts the log off below us
		log.Truncate(1, 4)
		time.Sleep(time.Second) // in the bubble: until the tail has looked again
		synctest.Wait()
		if got := s.Stats().Rebuilds[ReasonCutOff]; got != 1 {
			t.Errorf("rebuilds %v", s.Stats().Rebuilds)
		}
		if s.Applied(1) != 4 || !s.AtEnd(1) {
			t.Errorf("applied %d, at the end %v", s.Applied(1), s.AtEnd(1))
		}

		// the log's beginning is deleted beyond us while we are away
		stop()
		for i := range 5 {
			log.Inject(1, groupEntry(0, fmt.Sprint("later", i)))
		}
		log.DeleteBefore(1, 7)
		s, stop = following(t, cfg, log)
		defer func() { stop() }()
		synctest.Wait()
		wantGroups(t, s, 1, "later3", "later4")
		if got := s.Stats().Rebuilds; len(got) != 1 {
			t.Errorf("rebuilds %v", got)
		}
	})
}

// TestATailThatWasCutOffRebuilds: as TestRebuildAfterTooLongOffTheEnd, through the tail.
func TestATailThatWasCutOffRebuilds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventlog.NewFake(eventlog.FakeOptions{})
		defer log.Close()
		cfg := testConfig(vfs.NewMem())
		cfg.DeleteRetention = time.Hour
		s, stop := following(t, cfg, log)
		defer stop()
		w, err := log.Claim(t.Context(), 0, eventlog.Ownership{NodeID: 1})
		must(t, err)
		appendGroups(t, w, "a", "b")
		time.Sleep(2 * time.Hour) // the tail tells twice a second that it stands at the end
		if n := s.Stats().Rebuilds; len(n) != 1 {
			t.Errorf("rebuilt while it stood at the end: %v", n)
		}
		log.HoldTail(0)
		time.Sleep(31 * time.Minute)
		log.ReleaseTail(0)
		appendGroups(t, w, "c")
		time.Sleep(time.Second)
		synctest.Wait()
		if n := s.Stats().Rebuilds[ReasonStale]; n != 1 {
			t.Errorf("rebuilds %v", s.Stats().Rebuilds)
		}
		wantGroups(t, s, 0, "a", "b", "c")
		if !s.AtEnd(0) {
			t.Error("not at the end")
		}
	})
}

// TestANewerRecordStopsTheTail: the partition is refused, the others go on, and the process stays up.
func TestANewerRecordStopsTheTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventlog.NewFake(eventlog.FakeOptions{Partitions: 2})
		defer log.Close()
		s, stop := following(t, testConfig(vfs.NewMem()), log)
		defer stop()
		log.Inject(0, groupEntry(0, "a"), rawEntry(0, "\x00\x11\x00\x01g", "\x00\x01"), groupEntry(0, "b"))
		log.Inject(1, groupEntry(0, "c"))
		synctest.Wait()
		if err := s.Err(0); !errors.Is(err, eventlog.ErrRefused) {
			t.Errorf("Err: %v", err)
		}
		wantGroups(t, s, 0, "a")
		wantGroups(t, s, 1, "c")
		log.Inject(1, groupEntry(0, "d"))
		synctest.Wait()
		wantGroups(t, s, 1, "c", "d")
	})
}
