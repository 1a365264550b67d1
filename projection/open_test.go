package projection

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
)

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
