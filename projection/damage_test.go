package projection

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
)

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
