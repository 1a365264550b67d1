package projection

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
)

func TestRebuildWhenTheLogWasCutOff(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	must(t, s.Batch(0, groupsBatch(0, "a")))
	must(t, s.Batch(1, groupsBatch(5, "a", "b")))
	must(t, s.Batch(2, groupsBatch(0, "c")))
	must(t, s.Reset(1, "the log was cut off"))
	wantRebuilds(t, s, map[Reason]uint64{ReasonNone: 1, ReasonCutOff: 1})
	wantGroups(t, s, 0, "a")
	wantGroups(t, s, 2, "c")
	must(t, s.Batch(1, groupsBatch(4, "a")))
	wantGroups(t, s, 1, "a")
	if got := s.Applied(1); got != 5 {
		t.Errorf("applied %d", got)
	}
}

// TestNobodyReadsAPartitionThatIsHalfRebuilt: a rebuild must never look like "there is no such group".
func TestNobodyReadsAPartitionThatIsHalfRebuilt(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	must(t, s.Batch(1, groupsBatch(0, "a", "b", "c")))
	sn, err := s.Snapshot()
	must(t, err)
	defer func() { must(t, sn.Close()) }()
	must(t, s.Reset(1, "cut off"))
	reads := map[string]func() error{
		"Group":             func() error { _, err := s.Group(1, "a"); return err },
		"HasGroup":          func() error { _, err := s.HasGroup(1, "a"); return err },
		"Groups":            func() error { return s.Groups(1, func(string) bool { return true }) },
		"GroupsWithMembers": func() error { return s.GroupsWithMembers(1, func(string) bool { return true }) },
		"GroupsOfTopic":     func() error { return s.GroupsOfTopic(1, "in", func(string) bool { return true }) },
		"Offset":            func() error { _, _, err := s.Offset(1, "a", "in", 0); return err },
		"Offsets":           func() error { return s.Offsets(1, "a", func(Stored) bool { return true }) },
		"Pending":           func() error { return s.Pending(1, "a", func(int64, Stored) bool { return true }) },
		"Snapshot.Groups": func() error {
			sn, err := s.Snapshot()
			must(t, err)
			defer func() { must(t, sn.Close()) }()
			return sn.Groups(1, func(string) bool { return true })
		},
	}
	check := func(when string, want error) {
		t.Helper()
		for name, read := range reads {
			if err := read(); !errors.Is(err, want) {
				t.Errorf("%s %s: %v", name, when, err)
			}
		}
		if s.AtEnd(1) != (want == nil) {
			t.Errorf("at the end %s", when)
		}
	}
	check("after Reset", ErrLoading)
	b := groupsBatch(0, "a", "b")
	b.HighWatermark = 3
	must(t, s.Batch(1, b))
	check("behind the end", ErrLoading)
	if err := s.Err(1); err != nil {
		t.Errorf("loading is no error of the partition: %v", err)
	}
	wantGroups(t, s, 0) // the others are not concerned
	must(t, s.Batch(1, groupsBatch(2, "c")))
	check("at the end", nil)
	// a snapshot from before is still what it was
	n := 0
	must(t, sn.Groups(1, func(string) bool { n++; return true }))
	if n != 3 {
		t.Errorf("the snapshot has %d groups", n)
	}
}

// TestARebuildDuringAReadIsNoticed: the partition is forgotten while a reader is in the middle of it.
func TestARebuildDuringAReadIsNoticed(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	must(t, s.Batch(1, groupsBatch(0, "a", "b", "c")))
	err := s.Groups(1, func(g string) bool {
		if g == "b" {
			must(t, s.Reset(1, "cut off"))
			must(t, s.Batch(1, groupsBatch(0, "z"))) // at the end again before the reader is
		}
		return true
	})
	if !errors.Is(err, ErrLoading) {
		t.Errorf("a read across a rebuild: %v", err)
	}
}

func TestRebuildWhenTheLogStartsLater(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	b := groupsBatch(50, "a") // a log that starts at 50 is no reason while nothing was read
	b.LogStart = 50
	must(t, s.Batch(1, b))
	b = groupsBatch(60, "b")
	b.LogStart = 51
	must(t, s.Batch(1, b)) // deleted up to where we are
	b = groupsBatch(70, "c")
	b.LogStart = 62
	rebuild(t, s, 1, s.Batch(1, b), ReasonLogStart)
	wantRebuilds(t, s, map[Reason]uint64{ReasonNone: 1, ReasonLogStart: 1})
	must(t, s.Batch(1, b))
	wantGroups(t, s, 1, "c")
}

func TestRebuildWhenTheLogIDChanges(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	s := open(t, cfg)
	owner := func(offset int64, epoch int16, id string) eventlog.Batch {
		return eventlog.Batch{
			Entries: []eventlog.Entry{ownershipEntry(offset, eventlog.Ownership{ProducerID: 7, ProducerEpoch: epoch, Claim: -1, LogID: id})},
			Next:    offset + 1, HighWatermark: offset + 1,
		}
	}
	must(t, s.Batch(1, owner(0, 0, "")))
	must(t, s.Batch(1, owner(1, 1, "first")))
	must(t, s.Batch(1, owner(2, 2, "drawn at the same time"))) // within one reading the last one counts
	must(t, s.Close())
	s = open(t, cfg)
	defer func() { must(t, s.Close()) }()
	must(t, s.Batch(1, owner(3, 3, "drawn at the same time")))
	must(t, s.Close())
	s = open(t, cfg)
	must(t, s.Batch(1, owner(4, 4, ""))) // unknown is not other
	rebuild(t, s, 1, s.Batch(1, owner(5, 0, "second")), ReasonLogID)
	if _, ok := s.Owner(1); ok {
		t.Error("the owner of another log is still there")
	}
	must(t, s.Batch(1, owner(0, 0, "second")))
	wantRebuilds(t, s, map[Reason]uint64{ReasonLogID: 1})
	if o, _ := s.Owner(1); o.LogID != "second" {
		t.Errorf("owner %+v", o)
	}
}

// TestRebuildAfterTooLongOffTheEnd: for a restart and for a tail that was cut off while running.
func TestRebuildAfterTooLongOffTheEnd(t *testing.T) {
	const half = 12 * time.Hour
	const slack = atEndEvery // what is stored may be that much older
	for _, c := range []struct {
		name    string
		restart bool
		away    time.Duration
		rebuild bool
	}{
		{"restart in time", true, half - slack - time.Second, false},
		{"restart too late", true, half + time.Second, true},
		{"restart before it was stopped: the clock was changed", true, -2 * time.Minute, true},
		{"restart a little before it was stopped", true, -30 * time.Second, false},
		{"cut off for not too long", false, half - time.Second, false},
		{"cut off for too long", false, half + time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := newClock()
			cfg := testConfig(vfs.NewMem())
			cfg.Now = clock.Now
			s := open(t, cfg)
			clock.advance(time.Hour)
			must(t, s.Batch(1, groupsBatch(0, "a")))
			clock.advance(half) // and it stands there all the time
			must(t, s.Batch(1, eventlog.Batch{Next: 1, LeaderEpoch: 1, HighWatermark: 1}))
			clock.advance(time.Second)
			must(t, s.Batch(1, eventlog.Batch{Next: 1, LeaderEpoch: 1, HighWatermark: 1}))
			if c.restart {
				must(t, s.Close())
				clock.advance(c.away)
				s = open(t, cfg)
				position := s.Resume(1)
				if (position.Offset == 0) != c.rebuild {
					t.Errorf("resumes at %+v", position)
				}
			} else {
				clock.advance(c.away)
				b := groupsBatch(1, "b")
				b.HighWatermark = 100 // it is not even at the end again
				switch err := s.Batch(1, b); {
				case c.rebuild:
					rebuild(t, s, 1, err, ReasonStale)
				case err != nil:
					t.Fatal(err)
				}
			}
			defer func() { must(t, s.Close()) }()
			if got := s.Stats().Rebuilds[ReasonStale]; (got == 1) != c.rebuild {
				t.Errorf("%d rebuilds", got)
			}
			if c.rebuild {
				must(t, s.Batch(1, groupsBatch(10, "c")))
				wantGroups(t, s, 1, "c")
			}
		})
	}
}

// TestALoadThatTakesTooLongBeginsAgain: a tombstone may have come and gone between its start and its end.
func TestALoadThatTakesTooLongBeginsAgain(t *testing.T) {
	clock := newClock()
	cfg := testConfig(vfs.NewMem())
	cfg.Now = clock.Now
	s := open(t, cfg)
	defer func() { must(t, s.Close()) }()
	clock.advance(100 * time.Hour) // before anything was read, no time runs
	b := groupsBatch(0, "a")
	b.HighWatermark = 100
	must(t, s.Batch(1, b))
	clock.advance(12*time.Hour + time.Second)
	rebuild(t, s, 1, s.Batch(1, groupsBatch(1, "b")), ReasonStale)
}

func TestStaleGoesByTheClockThatRanFurther(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	now := time.Now() // with a monotonic reading
	if s.stale(now, now.Add(11*time.Hour)) {
		t.Error("11 of 12 hours are too long")
	}
	if !s.stale(now, now.Add(13*time.Hour)) {
		t.Error("13 of 12 hours are not too long")
	}
	// the machine slept for 13 hours: the wall clock ran on, the monotonic one did not. A time without monotonic reading
	// stands in for that.
	if !s.stale(now, now.Add(13*time.Hour).Round(0)) {
		t.Error("sleep does not count")
	}
}
