package projection

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
)

// clock is a wall clock that stands still.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.UnixMilli(1_800_000_000_000)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func open(t tester, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return s
}

// groupEntry is a type-17 record without a producer.
func groupEntry(offset int64, group string) eventlog.Entry {
	raw := eventlog.Encode(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeGroup, Group: group}, Value: &eventlog.Group{Epoch: 1}})
	return eventlog.Entry{Offset: offset, ProducerID: -1, ProducerEpoch: -1, Key: raw.Key, Value: raw.Value}
}

func ownershipEntry(offset int64, o eventlog.Ownership) eventlog.Entry {
	o.Format = 1
	raw := eventlog.Encode(eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeOwnership}, Value: &o})
	return eventlog.Entry{Offset: offset, Timestamp: 1_800_000_000_000, ProducerID: o.ProducerID, ProducerEpoch: o.ProducerEpoch, Key: raw.Key, Value: raw.Value}
}

// groupsBatch holds a group of each name, from offset on, and stands at the end.
func groupsBatch(offset int64, groups ...string) eventlog.Batch {
	b := eventlog.Batch{Next: offset, LeaderEpoch: 1}
	for _, g := range groups {
		b.Entries = append(b.Entries, groupEntry(b.Next, g))
		b.Next++
	}
	b.HighWatermark = b.Next
	return b
}

func groupsOf(t tester, s *Store, p int32) []string {
	t.Helper()
	groups := []string{}
	must(t, s.Groups(p, func(g string) bool { groups = append(groups, g); return true }))
	return groups
}

func wantGroups(t tester, s *Store, p int32, want ...string) {
	t.Helper()
	if got := groupsOf(t, s, p); !reflect.DeepEqual(got, append([]string{}, want...)) {
		t.Errorf("groups of partition %d: %q, want %q", p, got, want)
	}
}

func wantRebuilds(t tester, s *Store, want map[Reason]uint64) {
	t.Helper()
	if got := s.Stats().Rebuilds; !reflect.DeepEqual(got, want) {
		t.Errorf("rebuilds %v, want %v", got, want)
	}
}

// rebuild does what a tail does with ErrRebuild, and checks that it is one.
func rebuild(t tester, s *Store, p int32, err error, reason Reason) {
	t.Helper()
	if !errors.Is(err, eventlog.ErrRebuild) || !strings.Contains(err.Error(), string(reason)) {
		t.Fatalf("want to rebuild for %q: %v", reason, err)
	}
	must(t, s.Reset(p, err.Error()))
	if got := s.Resume(p); got != (eventlog.Position{Offset: 0, LeaderEpoch: -1}) {
		t.Fatalf("resumes at %+v", got)
	}
}

func TestReopenedStoreGoesOnWhereItWas(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	s := open(t, cfg)
	must(t, s.Batch(1, groupsBatch(5, "a", "b")))
	must(t, s.Close())
	s = open(t, cfg)
	defer func() { must(t, s.Close()) }()
	wantRebuilds(t, s, map[Reason]uint64{})
	wantGroups(t, s, 1, "a", "b")
	if got, want := s.Resume(1), (eventlog.Position{Offset: 7, LeaderEpoch: 1}); got != want {
		t.Errorf("resumes at %+v, want %+v", got, want)
	}
	if got, want := s.Resume(0), (eventlog.Position{Offset: 0, LeaderEpoch: -1}); got != want {
		t.Errorf("partition 0 resumes at %+v, want %+v", got, want)
	}
	if s.AtEnd(1) {
		t.Error("at the end before anything was read")
	}
	must(t, s.Batch(1, eventlog.Batch{Next: 7, LeaderEpoch: 1, HighWatermark: 7}))
	if !s.AtEnd(1) || s.AllAtEnd() {
		t.Error("partition 1 alone should be at its end")
	}
}

// TestStoreOfAnotherLogIsThrownAway: the reasons that are found when the store is opened.
func TestStoreOfAnotherLogIsThrownAway(t *testing.T) {
	for reason, change := range map[Reason]func(t *testing.T, cfg *Config){
		ReasonTopic: func(_ *testing.T, cfg *Config) {
			cfg.Identity.TopicID[0]++
			cfg.Identity.Partitions = 4
		},
		ReasonFormat: func(t *testing.T, cfg *Config) {
			db, err := pebble.Open("projection/store-000001", &pebble.Options{FS: cfg.FS, FormatMajorVersion: formatMajor})
			must(t, err)
			must(t, db.Set(storeKey(kindMeta), []byte(`{"format":0,"topic":"__streams_groups"}`), pebble.Sync))
			must(t, db.Close())
		},
		ReasonNone: func(t *testing.T, cfg *Config) { must(t, cfg.FS.RemoveAll("projection")) },
		ReasonDamaged: func(t *testing.T, cfg *Config) {
			names, err := cfg.FS.List("projection/store-000001")
			must(t, err)
			for _, name := range names {
				if strings.HasPrefix(name, "MANIFEST") {
					f, err := cfg.FS.Create("projection/store-000001/"+name, vfs.WriteCategoryUnspecified)
					must(t, err)
					_, err = f.Write([]byte("not what it was"))
					must(t, errors.Join(err, f.Close()))
				}
			}
		},
	} {
		t.Run(string(reason), func(t *testing.T) {
			cfg := testConfig(vfs.NewMem())
			s := open(t, cfg)
			must(t, s.Batch(1, groupsBatch(5, "a", "b")))
			must(t, s.Close())
			change(t, &cfg)
			s = open(t, cfg)
			defer func() { must(t, s.Close()) }()
			wantRebuilds(t, s, map[Reason]uint64{reason: 1})
			wantGroups(t, s, 1)
			if got := s.Resume(1); got != (eventlog.Position{Offset: 0, LeaderEpoch: -1}) {
				t.Errorf("resumes at %+v", got)
			}
			must(t, s.Batch(1, groupsBatch(5, "c")))
			wantGroups(t, s, 1, "c")
			if names, _ := cfg.FS.List("projection"); len(names) != 2 { // LOCK and a store
				t.Errorf("files %v", names)
			}
		})
	}
}

// TestPartitionsAddedToTheLogTopic: read again by the new count, its groups would not be found any more.
func TestPartitionsAddedToTheLogTopic(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	s := open(t, cfg)
	must(t, s.Batch(1, groupsBatch(5, "a", "b")))
	must(t, s.Close())

	more := cfg
	more.Identity.Partitions = 4
	if s, err := Open(more); !errors.Is(err, ErrPartitions) {
		t.Errorf("opened with a partition more: %v, %v", s, err)
	}
	s = open(t, cfg)
	wantRebuilds(t, s, map[Reason]uint64{})
	wantGroups(t, s, 1, "a", "b")
	must(t, s.Close())

	// Where topics have no ids, it may be another topic of that name.
	cfg = testConfig(vfs.NewMem())
	cfg.Identity.TopicID = [16]byte{}
	must(t, open(t, cfg).Close())
	cfg.Identity.Partitions = 4
	s = open(t, cfg)
	defer func() { must(t, s.Close()) }()
	wantRebuilds(t, s, map[Reason]uint64{ReasonPartitions: 1})
}

func TestAnotherNameOfTheTopicIsAnotherTopic(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	must(t, open(t, cfg).Close())
	cfg.Identity.Topic = "other"
	s := open(t, cfg)
	defer func() { must(t, s.Close()) }()
	wantRebuilds(t, s, map[Reason]uint64{ReasonTopic: 1})
}

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

// TestDamageIsFoundWhileReading flips bytes in a table: the store is replaced, the tail is told to read again, and nothing
// crashes.
func TestDamageIsFoundWhileReading(t *testing.T) {
	fs := vfs.NewMem()
	cfg := testConfig(fs)
	s := open(t, cfg)
	groups := manyNames(2000)
	must(t, s.Batch(1, groupsBatch(0, groups...)))
	must(t, s.Batch(2, groupsBatch(0, "x")))
	must(t, s.Close())
	damageTables(t, fs)
	s = open(t, cfg)
	defer func() { must(t, s.Close()) }()
	// opening reads little; a scan reads all
	err := s.Groups(1, func(string) bool { return true })
	if len(s.Stats().Rebuilds) == 0 { // damage was not found at the start
		if !errors.Is(err, ErrStorage) {
			t.Fatalf("a damaged table was read: %v", err)
		}
		if err := s.Err(1); !errors.Is(err, ErrStorage) {
			t.Errorf("Err says %v", err)
		}
		rebuild(t, s, 1, s.Batch(1, groupsBatch(2000, "y")), ReasonDamaged)
	}
	must(t, s.Err(1))
	if rebuilds := s.Stats().Rebuilds[ReasonDamaged]; rebuilds != 1 {
		t.Errorf("%d rebuilds", rebuilds)
	}
	must(t, s.Batch(1, groupsBatch(0, groups...)))
	wantGroups(t, s, 1, groups...)
	// the other partition was in the same store
	if s.Resume(2) != (eventlog.Position{Offset: 0, LeaderEpoch: -1}) {
		t.Errorf("partition 2 resumes at %+v", s.Resume(2))
	}
	must(t, s.Batch(2, groupsBatch(0, "x")))
	wantGroups(t, s, 2, "x")
}

func manyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("group-%06d", i)
	}
	return names
}

// damageTables flips a byte in the middle of every table.
func damageTables(t *testing.T, fs vfs.FS) {
	t.Helper()
	names, err := fs.List("projection/store-000001")
	must(t, err)
	n := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		n++
		name = "projection/store-000001/" + name
		b := readFile(t, fs, name)
		b[len(b)/3] ^= 0xff
		writeFile(t, fs, name, b)
	}
	if n == 0 {
		t.Fatal("no tables")
	}
}

func readFile(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	info, err := fs.Stat(name)
	must(t, err)
	f, err := fs.Open(name)
	must(t, err)
	defer f.Close()
	b := make([]byte, info.Size())
	_, err = f.ReadAt(b, 0)
	must(t, err)
	return b
}

func writeFile(t *testing.T, fs vfs.FS, name string, b []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	must(t, err)
	_, err = f.Write(b)
	must(t, errors.Join(err, f.Close()))
}

// TestNoDamageCrashes damages random bytes of random files, or cuts them short, on a real file system. Whatever is
// found, the store opens, and after the tail has done its part it holds what the log holds.
func TestNoDamageCrashes(t *testing.T) {
	dir := t.TempDir()
	cfg := testConfig(nil)
	cfg.Dir = filepath.Join(dir, "whole")
	groups := manyNames(300)
	s := open(t, cfg)
	must(t, s.Batch(1, groupsBatch(0, groups...)))
	must(t, s.Close())
	var seed [32]byte
	copy(seed[:], fmt.Sprint(time.Now().UnixNano()))
	random := rand.New(rand.NewChaCha8(seed))
	for round := range 60 {
		cfg.Dir = filepath.Join(dir, fmt.Sprint(round))
		must(t, os.CopyFS(cfg.Dir, os.DirFS(filepath.Join(dir, "whole"))))
		var files []string
		must(t, filepath.WalkDir(cfg.Dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && d.Name() != "LOCK" {
				files = append(files, path)
			}
			return err
		}))
		name := files[random.IntN(len(files))]
		b, err := os.ReadFile(name)
		must(t, err)
		if len(b) > 0 && random.IntN(3) > 0 {
			b[random.IntN(len(b))] ^= byte(1 + random.IntN(255))
		} else if len(b) > 0 {
			b = b[:random.IntN(len(b))]
		}
		must(t, os.WriteFile(name, b, 0o644))

		s := open(t, cfg)
		position := s.Resume(1)
		_ = s.Groups(1, func(string) bool { return true }) // finds what is to be found
		b2 := groupsBatch(0, groups...)
		b2.Entries = b2.Entries[position.Offset:]
		if err := s.Batch(1, b2); err != nil {
			rebuild(t, s, 1, err, ReasonDamaged)
			must(t, s.Batch(1, groupsBatch(0, groups...)))
		}
		if got := groupsOf(t, s, 1); !reflect.DeepEqual(got, groups) {
			t.Fatalf("seed %q, round %d, %s: %d groups", seed, round, name, len(got))
		}
		must(t, s.Close())
		must(t, os.RemoveAll(cfg.Dir))
	}
}

// TestAKillLosesOnlyTheTail: what was not flushed is read from the log again, and what was is a whole prefix.
func TestAKillLosesOnlyTheTail(t *testing.T) {
	fs := vfs.NewCrashableMem()
	cfg := testConfig(fs)
	s := open(t, cfg)
	for i := range int64(100) {
		must(t, s.Batch(1, groupsBatch(i, fmt.Sprintf("g%03d", i))))
		if i == 49 {
			must(t, s.engine.flush())
		}
	}
	killed := fs.CrashClone(vfs.CrashCloneCfg{})
	must(t, s.Close())
	cfg.FS = killed
	s = open(t, cfg)
	defer func() { must(t, s.Close()) }()
	n := s.Resume(1).Offset
	if n < 50 || n > 100 || int64(len(groupsOf(t, s, 1))) != n {
		t.Errorf("applied %d, %d groups", n, len(groupsOf(t, s, 1)))
	}
	wantRebuilds(t, s, map[Reason]uint64{})
}

func TestFlushesByItself(t *testing.T) {
	fs := vfs.NewMem()
	cfg := testConfig(fs)
	cfg.FlushInterval = time.Millisecond
	s := open(t, cfg)
	defer func() { must(t, s.Close()) }()
	must(t, s.Batch(1, groupsBatch(0, "a")))
	for s.engine.db.Metrics().Flush.Count == 0 {
		time.Sleep(time.Millisecond) // the flush is another goroutine's, and tells nobody
	}
}

func TestTwoStoresCannotShareADirectory(t *testing.T) {
	for name, cfg := range map[string]Config{"memory": testConfig(vfs.NewMem()), "disk": testConfig(nil)} {
		t.Run(name, func(t *testing.T) {
			if cfg.FS == nil {
				cfg.Dir = filepath.Join(t.TempDir(), "p")
			}
			s := open(t, cfg)
			_, err := Open(cfg)
			if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), cfg.Dir) {
				t.Errorf("a second store: %v", err)
			}
			must(t, s.Batch(1, groupsBatch(0, "a"))) // the first is unharmed
			must(t, s.Close())
			must(t, open(t, cfg).Close())
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	good := testConfig(vfs.NewMem())
	for name, change := range map[string]func(*Config){
		"no directory":  func(c *Config) { c.Dir = "" },
		"no partitions": func(c *Config) { c.Identity.Partitions = 0 },
		"no retention":  func(c *Config) { c.DeleteRetention = 0 },
	} {
		cfg := good
		change(&cfg)
		if s, err := Open(cfg); err == nil {
			t.Errorf("%s: opened", name)
			must(t, s.Close())
		}
	}
	if os.Getuid() == 0 {
		return // root writes everywhere
	}
	cfg := good
	cfg.FS, cfg.Dir = nil, "/proc/nowhere"
	if _, err := Open(cfg); !errors.Is(err, ErrStorage) {
		t.Errorf("a directory that can't be made: %v", err)
	}
}

func TestADirectoryThatIsAFile(t *testing.T) {
	cfg := testConfig(nil)
	cfg.Dir = filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(cfg.Dir, nil, 0o644))
	if _, err := Open(cfg); !errors.Is(err, ErrStorage) || !strings.Contains(err.Error(), cfg.Dir) {
		t.Errorf("%v", err)
	}
}

func TestNothingWorksAfterClose(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	must(t, s.Close())
	must(t, s.Close())
	if err := s.Batch(1, groupsBatch(0, "a")); !errors.Is(err, ErrClosed) {
		t.Errorf("Batch: %v", err)
	}
	if _, err := s.Group(1, "a"); !errors.Is(err, ErrClosed) {
		t.Errorf("Group: %v", err)
	}
	if err := s.Wait(context.Background(), 1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("Wait: %v", err)
	}
	if err := s.Err(1); !errors.Is(err, ErrClosed) {
		t.Errorf("Err: %v", err)
	}
	if _, err := s.Snapshot(); !errors.Is(err, ErrClosed) {
		t.Errorf("Snapshot: %v", err)
	}
}
