package projection

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
)

// TestFollowsAnAnnex: the latest value of each key, whatever it is; void records leave nothing but their keys, until something that
// counts is written under them; and all of that outlives a restart.
func TestFollowsAnAnnex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := eventlog.NewFake(eventlog.FakeOptions{Partitions: 2})
		annex := eventlog.NewFake(eventlog.FakeOptions{Topic: "annex", Partitions: 2})
		defer log.Close()
		defer annex.Close()
		cfg := testConfig(vfs.NewMem())
		cfg.Opaque = true
		s, stop := following(t, cfg, annex)
		adopt := func() eventlog.Writer {
			t.Helper()
			w, err := log.Claim(t.Context(), 1, eventlog.Ownership{NodeID: 1})
			must(t, err)
			a, err := annex.Adopt(t.Context(), eventlog.Ownership{NodeID: 1}, w.Claim())
			must(t, err)
			return a
		}
		write := func(w eventlog.Writer, key string, value []byte) {
			t.Helper()
			outcome := make(chan error, 1)
			w.Append(1, []eventlog.Raw{{Key: []byte(key), Value: value}}, func(_ int64, err error) { outcome <- err })
			must(t, <-outcome)
		}
		check := func(keys string, voids string) {
			t.Helper()
			synctest.Wait()
			var got, void []string
			must(t, s.Keys(1, nil, nil, func(k []byte) bool {
				v, ok, err := s.Value(1, k)
				if err != nil || !ok {
					t.Errorf("%s has no value: %v", k, err)
				}
				got = append(got, fmt.Sprintf("%s=%s", k, v))
				return true
			}))
			must(t, s.Voids(1, func(k []byte) bool { void = append(void, string(k)); return true }))
			if fmt.Sprint(got) != keys || fmt.Sprint(void) != voids {
				t.Errorf("values %v, void %v; want %s, %s", got, void, keys, voids)
			}
		}
		first := adopt()
		write(first, "b", []byte("1"))
		write(first, "\x00\x11 looks like a group", []byte{0})
		write(first, "b", []byte("2"))
		write(first, "a", []byte{})
		write(first, "gone", []byte("x"))
		write(first, "gone", nil)
		check("[\x00\x11 looks like a group=\x00 a= b=2]", "[]")

		log.ExpireProducer(1) // the cluster can't refuse the former owner any more
		second := adopt()
		write(first, "b", []byte("late"))
		write(first, "new", []byte("late"))
		annex.Inject(1, eventlog.Entry{ProducerID: -1, Key: []byte("a"), Value: []byte("by hand")},
			eventlog.Entry{ProducerID: 9, Transactional: true, Key: []byte("txn"), Value: []byte("x")}, eventlog.Entry{ProducerID: 9, Control: eventlog.ControlCommit})
		check("[\x00\x11 looks like a group=\x00 a= b=2]", "[a b new txn]")
		if _, ok, err := s.Value(1, []byte("new")); ok || err != nil {
			t.Errorf("a void value is shown, or %v", err)
		}
		stop()
		s, stop = following(t, cfg, annex)
		defer func() { stop() }()
		check("[\x00\x11 looks like a group=\x00 a= b=2]", "[a b new txn]")
		write(second, "b", []byte("2"))
		write(second, "new", nil)
		write(second, "txn", nil)
		write(second, "a", []byte("3"))
		check("[\x00\x11 looks like a group=\x00 a=3 b=2]", "[]")

		// A store of nothing that reads what compaction has left.
		annex.Compact(1, false)
		cfg = testConfig(vfs.NewMem())
		cfg.Opaque = true
		stop()
		s, stop = following(t, cfg, annex)
		check("[\x00\x11 looks like a group=\x00 a=3 b=2]", "[]")
		if err := s.Keys(0, nil, nil, func([]byte) bool { t.Error("another partition has keys"); return false }); err != nil {
			t.Error(err)
		}
	})
}

func TestOpaqueKeysByPrefix(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	cfg.Opaque = true
	s := open(t, cfg)
	var entries []eventlog.Entry
	for i, k := range []string{"a", "ab", "abc", "abd", "ac", "b", "\xff", "\xff\xff"} {
		entries = append(entries, eventlog.Entry{Offset: int64(i), ProducerID: -1, Key: []byte(k), Value: []byte("x")})
	}
	must(t, s.Batch(0, eventlog.Batch{Entries: entries, Next: 8, HighWatermark: 8}))
	must(t, s.Batch(1, eventlog.Batch{HighWatermark: 0}))
	for _, c := range []struct {
		prefix, after string
		limit         int
		want          []string
	}{
		{"", "", 9, []string{"a", "ab", "abc", "abd", "ac", "b", "\xff", "\xff\xff"}},
		{"ab", "", 9, []string{"ab", "abc", "abd"}},
		{"ab", "ab", 9, []string{"abc", "abd"}},
		{"ab", "a", 9, []string{"ab", "abc", "abd"}},
		{"ab", "abz", 9, nil},
		{"", "abd", 2, []string{"ac", "b"}},
		{"\xff", "", 9, []string{"\xff", "\xff\xff"}},
		{"", "\xff\xff", 9, nil},
		{"z", "", 9, nil},
	} {
		var after []byte
		if c.after != "" {
			after = []byte(c.after)
		}
		var got []string
		must(t, s.Keys(0, []byte(c.prefix), after, func(k []byte) bool {
			got = append(got, string(k))
			return len(got) < c.limit
		}))
		if !slices.Equal(got, c.want) {
			t.Errorf("prefix %q after %q: %q, want %q", c.prefix, c.after, got, c.want)
		}
	}
}
