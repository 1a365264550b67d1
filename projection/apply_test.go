package projection

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
)

func rawEntry(offset int64, key, value string) eventlog.Entry {
	return eventlog.Entry{Offset: offset, ProducerID: -1, Key: []byte(key), Value: []byte(value)}
}

// TestAnUnreadableRecordStopsThePartition: not a step further, nothing before it lost, and it is said where and why.
func TestAnUnreadableRecordStopsThePartition(t *testing.T) {
	for _, c := range []struct {
		name, key, value string
		why              error
		text             string
	}{
		{"newer version", "\x00\x11\x00\x01g", "\x00\x01", eventlog.ErrUnknownVersion, "StreamsGroupMetadata"},
		{"cut off value", "\x00\x11\x00\x01g", "\x00\x00\x01", eventlog.ErrCorrupt, "StreamsGroupMetadata"},
		{"cut off key", "\x00\x11\x00\x09g", "\x00\x00", eventlog.ErrCorrupt, "StreamsGroupMetadata"},
		{"newer offset", "\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", "\x00\x05", eventlog.ErrUnknownVersion, "OffsetCommit"},
		{"newer ownership", "\x7d\x00", `{"format":2}`, eventlog.ErrUnknownVersion, "Ownership"},
		{"no key", "", "x", eventlog.ErrCorrupt, "key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(vfs.NewMem())
			s := open(t, cfg)
			var applied []int64
			s.OnApplied(func(p int32, next int64) { applied = append(applied, next) })
			must(t, s.Batch(1, groupsBatch(0, "a")))
			b := groupsBatch(1, "b", "c", "d")
			b.Entries[1] = rawEntry(2, c.key, c.value)
			b.Entries[1].ProducerID = 7 // a claim has one
			check := func(s *Store) {
				t.Helper()
				err := s.Batch(1, b)
				if !errors.Is(err, eventlog.ErrRefused) || !errors.Is(err, c.why) {
					t.Fatalf("Batch: %v", err)
				}
				for _, part := range []string{"partition 1", "__streams_groups", "offset 2", c.text} {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q is not in: %v", part, err)
					}
				}
				if got := s.Err(1); got == nil || got.Error() != err.Error() {
					t.Errorf("Err: %v", got)
				}
				if s.Applied(1) != 2 {
					t.Errorf("applied %d", s.Applied(1))
				}
				wantGroups(t, s, 1, "a", "b")
				if err := s.Wait(context.Background(), 1, 3); !errors.Is(err, eventlog.ErrRefused) {
					t.Errorf("Wait: %v", err)
				}
				if st := s.Stats(); st.Refused != 1 || st.Lag != 2 {
					t.Errorf("numbers: %+v", st)
				}
			}
			check(s)
			check(s) // again: nothing is applied twice
			if !reflect.DeepEqual(applied, []int64{1, 2}) {
				t.Errorf("told of %v", applied)
			}
			must(t, s.Err(0)) // another partition is not concerned
			must(t, s.Batch(0, groupsBatch(0, "z")))
			must(t, s.Close())

			s = open(t, cfg) // the same program started again
			if got := s.Resume(1); got.Offset != 2 {
				t.Errorf("resumes at %+v", got)
			}
			must(t, s.Err(1))
			check(s)
			must(t, s.Close())

			s = open(t, cfg) // a newer program, which can read it
			defer func() { must(t, s.Close()) }()
			b.Entries[1] = groupEntry(2, "c")
			b.Entries = b.Entries[1:]
			must(t, s.Batch(1, b))
			must(t, s.Err(1))
			wantGroups(t, s, 1, "a", "b", "c", "d")
		})
	}
}

// TestWhatNoOwnerWroteStopsNobody: whoever may write to the log topic can't stop its readers with something that is no claim.
func TestWhatNoOwnerWroteStopsNobody(t *testing.T) {
	const key = "\x7d\x00"
	claim := func(producer int64) string {
		return fmt.Sprintf(`{"format":1,"nodeId":4,"producerId":%d,"producerEpoch":0,"claim":-1}`, producer)
	}
	for name, c := range map[string]struct {
		producer int64
		value    string
	}{
		"no JSON":                      {7, "hello"},
		"half of it":                   {7, `{"format":1,"nodeId":`},
		"no format":                    {7, `{}`},
		"other types":                  {7, `{"format":1,"nodeId":"four"}`},
		"a newer one of nobody":        {-1, `{"format":2,"producerId":-1,"producerEpoch":-1}`},
		"a newer one of somebody else": {7, `{"format":2,"producerId":8,"producerEpoch":0}`},
		"a claim that was copied":      {7, claim(8)},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, testConfig(vfs.NewMem()))
			defer func() { must(t, s.Close()) }()
			entry := func(offset, producer int64, value string) eventlog.Entry {
				e := rawEntry(offset, key, value)
				e.ProducerID = producer
				return e
			}
			b := groupsBatch(0, "a", "b", "c", "d")
			b.Entries[1] = entry(1, 5, claim(5))
			b.Entries[2] = entry(2, c.producer, c.value)
			b.Entries[3].ProducerID, b.Entries[3].ProducerEpoch = 5, 0 // of the owner
			must(t, s.Batch(1, b))
			must(t, s.Err(1))
			if o, ok := s.Owner(1); !ok || o.NodeID != 4 || o.ProducerID != 5 || o.Generation != 1 {
				t.Errorf("owner %+v, %v", o, ok)
			}
			wantGroups(t, s, 1, "a", "d")
			if st := s.Stats(); st.Void != 1 || st.Refused != 0 {
				t.Errorf("numbers: %+v", st)
			}
		})
	}
}

func TestResetForgetsWhatWasRefused(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	b := groupsBatch(0, "a")
	b.Entries[0].Value = []byte{0, 9}
	if err := s.Batch(1, b); !errors.Is(err, eventlog.ErrRefused) {
		t.Fatal(err)
	}
	must(t, s.Reset(1, "cut off"))
	must(t, s.Err(1))
	must(t, s.Batch(1, groupsBatch(0, "b")))
	wantGroups(t, s, 1, "b")
}

func TestUnknownTypesAreSkippedAndCounted(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	b := groupsBatch(0, "a", "b", "c", "d", "e")
	b.Entries[1] = rawEntry(1, "\x00\x03\x00\x01g", "\xff")    // a consumer group's
	b.Entries[2] = rawEntry(2, "\x00\x12\x00\x01g", "\x00")    // the former type 18
	b.Entries[3] = rawEntry(3, "\x44\x44whatever", "whatever") // nobody's
	must(t, s.Batch(1, b))
	wantGroups(t, s, 1, "a", "e")
	if st := s.Stats(); st.Unknown != 3 || st.Applied != 5 || st.Void != 0 {
		t.Errorf("numbers: %+v", st)
	}
}

// TestVoidRecordsAreDroppedUnread: a fenced writer's newer or broken record is nobody's problem.
func TestVoidRecordsAreDroppedUnread(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	owned := func(e eventlog.Entry, pid int64, epoch int16) eventlog.Entry {
		e.ProducerID, e.ProducerEpoch = pid, epoch
		return e
	}
	void := owned(groupEntry(2, "void"), 6, 0)
	broken := owned(rawEntry(3, "\x00\x11\x00\x01g", "\x00\x09"), 6, 0)
	unreadable := owned(rawEntry(4, "\x00\x11\x00", "\x00\x09"), 6, 0)
	foreign := owned(rawEntry(5, "\x00\x03\x00\x01g", "\x00\x00"), 6, 0)
	late := ownershipEntry(6, eventlog.Ownership{NodeID: 9, ProducerID: 7, ProducerEpoch: 0, Claim: 0})
	inTransaction := groupEntry(7, "t")
	inTransaction.ProducerID, inTransaction.Transactional, inTransaction.Headers = 99, true, header(0)
	tombstone := owned(eventlog.Entry{Offset: 8, Key: []byte("\x7d\x00")}, 7, 1)
	var voids []Void
	s.OnVoid(func(p int32, v []Void) {
		if p != 1 || s.Applied(1) != 10 {
			t.Errorf("told for partition %d, applied %d", p, s.Applied(1))
		}
		voids = append(voids, v...)
	})
	must(t, s.Batch(1, eventlog.Batch{
		Entries: []eventlog.Entry{
			ownershipEntry(0, eventlog.Ownership{NodeID: 1, ProducerID: 7, ProducerEpoch: 1, Claim: -1}),
			owned(groupEntry(1, "a"), 7, 1), void, broken, unreadable, foreign, late, inTransaction, tombstone,
			owned(groupEntry(9, "b"), 7, 1),
		},
		Next: 10, HighWatermark: 10,
	}))
	wantGroups(t, s, 1, "a", "b")
	if st := s.Stats(); st.Void != 7 || st.Unknown != 0 {
		t.Errorf("numbers: %+v", st)
	}
	if o, _ := s.Owner(1); o.NodeID != 1 {
		t.Errorf("owner %+v", o)
	}
	group := func(g string) eventlog.Key { return eventlog.Key{Type: eventlog.TypeGroup, Group: g} }
	ownership := eventlog.Key{Type: eventlog.TypeOwnership}
	if want := []Void{{2, group("void")}, {3, group("g")}, {6, ownership}, {7, group("t")}, {8, ownership}}; !reflect.DeepEqual(voids, want) {
		t.Errorf("told of %+v, want %+v", voids, want)
	}
}

func TestOffsetsOfTransactions(t *testing.T) {
	key := eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: "g", Topic: "t"}
	commit := func(offset, value, producer int64) eventlog.Entry {
		raw := eventlog.Encode(eventlog.Record{Key: key, Value: &eventlog.OffsetCommit{Offset: value, LeaderEpoch: -1, ExpireTimestamp: -1}})
		return eventlog.Entry{Offset: offset, ProducerID: producer, Transactional: producer >= 100, Key: raw.Key, Value: raw.Value}
	}
	tombstone := func(offset int64) eventlog.Entry {
		return eventlog.Entry{Offset: offset, ProducerID: 1, Key: eventlog.AppendKey(nil, key)}
	}
	marker := func(offset, producer int64, c eventlog.ControlType) eventlog.Entry {
		return eventlog.Entry{Offset: offset, ProducerID: producer, Transactional: true, Control: c}
	}
	const none = -1
	for name, c := range map[string]struct {
		entries   []eventlog.Entry
		committed int64
		pending   map[int64]int64 // offset by producer
	}{
		"plain under a producer id is not pending": {[]eventlog.Entry{commit(0, 5, 1)}, 5, nil},
		"pending until it is settled":              {[]eventlog.Entry{commit(0, 5, 1), commit(1, 6, 100)}, 5, map[int64]int64{100: 6}},
		"committed":                                {[]eventlog.Entry{commit(0, 6, 100), marker(1, 100, eventlog.ControlCommit)}, 6, nil},
		"aborted":                                  {[]eventlog.Entry{commit(0, 5, 1), commit(1, 6, 100), marker(2, 100, eventlog.ControlAbort)}, 5, nil},
		"another's marker":                         {[]eventlog.Entry{commit(0, 6, 100), marker(1, 101, eventlog.ControlCommit)}, none, map[int64]int64{100: 6}},
		"a marker of another kind":                 {[]eventlog.Entry{commit(0, 6, 100), marker(1, 100, eventlog.ControlOther)}, none, map[int64]int64{100: 6}},
		"a marker without anything":                {[]eventlog.Entry{commit(0, 5, 1), marker(1, 100, eventlog.ControlCommit)}, 5, nil},
		"older than a plain one":                   {[]eventlog.Entry{commit(0, 6, 100), commit(1, 5, 1), marker(2, 100, eventlog.ControlCommit)}, 5, nil},
		"two producers, the later record wins": {[]eventlog.Entry{
			commit(0, 6, 100), commit(1, 7, 101), marker(2, 101, eventlog.ControlCommit), marker(3, 100, eventlog.ControlCommit),
		}, 7, nil},
		"the last of a transaction":               {[]eventlog.Entry{commit(0, 6, 100), commit(1, 7, 100), marker(2, 100, eventlog.ControlCommit)}, 7, nil},
		"a tombstone takes what is pending along": {[]eventlog.Entry{commit(0, 6, 100), commit(1, 7, 101), tombstone(2), marker(3, 100, eventlog.ControlCommit)}, none, nil},
		"pending again after a tombstone":         {[]eventlog.Entry{commit(0, 6, 100), tombstone(1), commit(2, 7, 100)}, none, map[int64]int64{100: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, batch := range []int{len(c.entries), 1} { // in one batch, and one by one
				s := open(t, testConfig(vfs.NewMem()))
				end := int64(len(c.entries))
				for at := 0; at < len(c.entries); at += batch {
					must(t, s.Batch(1, batchOf(c.entries[at:at+batch], int64(at+batch), end)))
				}
				st, ok, err := s.Offset(1, "g", "t", 0)
				must(t, err)
				got := int64(none)
				if ok {
					got = st.Record.Value.(*eventlog.OffsetCommit).Offset
				}
				if got != c.committed {
					t.Errorf("committed %d, want %d", got, c.committed)
				}
				var pending map[int64]int64
				must(t, s.Pending(1, "g", func(producer int64, st Stored) bool {
					if pending == nil {
						pending = map[int64]int64{}
					}
					pending[producer] = st.Record.Value.(*eventlog.OffsetCommit).Offset
					return true
				}))
				if !reflect.DeepEqual(pending, c.pending) || s.Stats().Pending != len(c.pending) {
					t.Errorf("pending %v (%d), want %v", pending, s.Stats().Pending, c.pending)
				}
				must(t, s.Close())
			}
		})
	}
}

// TestLegacyOffsetsShareThePlaceOfTheNewOnes: type 0 is read as type 1 with defaults.
func TestLegacyOffsetsShareThePlaceOfTheNewOnes(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	legacy := eventlog.Encode(eventlog.Record{
		Key:   eventlog.Key{Type: eventlog.TypeLegacyOffsetCommit, Group: "g", Topic: "t", Partition: 1},
		Value: &eventlog.OffsetCommit{Offset: 5, LeaderEpoch: -1, Metadata: "m", CommitTimestamp: 9, ExpireTimestamp: -1},
	})
	must(t, s.Batch(1, batchOf([]eventlog.Entry{{Offset: 0, ProducerID: -1, Key: legacy.Key, Value: legacy.Value}}, 1, 1)))
	got, ok, err := s.Offset(1, "g", "t", 1)
	must(t, err)
	want := Stored{0, eventlog.Record{
		Key:   eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: "g", Topic: "t", Partition: 1},
		Value: &eventlog.OffsetCommit{Offset: 5, LeaderEpoch: -1, Metadata: "m", CommitTimestamp: 9, ExpireTimestamp: -1},
	}}
	if !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, ok)
	}
	must(t, s.Batch(1, batchOf([]eventlog.Entry{{Offset: 1, ProducerID: -1, Key: legacy.Key}}, 2, 2)))
	if _, ok, _ := s.Offset(1, "g", "t", 1); ok {
		t.Error("a tombstone of type 0 leaves the offset")
	}
}

func TestEntriesThatWereAppliedAreSkipped(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	must(t, s.Batch(1, groupsBatch(0, "a", "b")))
	again := groupsBatch(0, "x", "y", "c")
	must(t, s.Batch(1, again))
	wantGroups(t, s, 1, "a", "b", "c")
	older := groupsBatch(0, "z")
	must(t, s.Batch(1, older))
	if s.Applied(1) != 3 {
		t.Errorf("applied %d", s.Applied(1))
	}
}

func TestListenersHearAfterTheFact(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	var heard []string
	s.OnApplied(func(p int32, next int64) {
		if s.Applied(p) != next {
			t.Errorf("told of %d, applied is %d", next, s.Applied(p))
		}
		heard = append(heard, fmt.Sprintf("applied %d:%d", p, next))
	})
	s.OnOwner(func(p int32, o eventlog.Owner) {
		if s.Applied(p) <= o.Offset {
			t.Errorf("told of the owner at %d, applied is %d", o.Offset, s.Applied(p))
		}
		heard = append(heard, fmt.Sprintf("owner %d:%d@%d of %d", p, o.NodeID, o.Offset, o.Generation))
	})
	must(t, s.Batch(2, eventlog.Batch{
		Entries: []eventlog.Entry{
			ownershipEntry(4, eventlog.Ownership{NodeID: 1, ProducerID: 7, ProducerEpoch: 1, Claim: -1}),
			ownershipEntry(5, eventlog.Ownership{NodeID: 1, ProducerID: 7, ProducerEpoch: 1, Claim: 4}),
			ownershipEntry(6, eventlog.Ownership{NodeID: 2, ProducerID: 7, ProducerEpoch: 2, Claim: -1}),
			ownershipEntry(7, eventlog.Ownership{NodeID: 1, ProducerID: 7, ProducerEpoch: 1, Claim: 4}), // void
		},
		Next: 8, HighWatermark: 8,
	}))
	must(t, s.Batch(2, eventlog.Batch{Next: 8, HighWatermark: 8})) // nothing new: nothing to tell
	want := []string{"owner 2:1@4 of 4", "owner 2:1@5 of 4", "owner 2:2@6 of 6", "applied 2:8"}
	if !reflect.DeepEqual(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, testConfig(vfs.NewMem()))
		must(t, s.Batch(1, groupsBatch(0, "a")))
		must(t, s.Wait(t.Context(), 1, 1))
		outcome := make(chan error)
		wait := func(ctx context.Context, p int32, offset int64) {
			go func() { outcome <- s.Wait(ctx, p, offset) }()
			synctest.Wait()
		}
		wait(t.Context(), 1, 3)
		must(t, s.Batch(1, groupsBatch(1, "b")))
		synctest.Wait()
		select {
		case err := <-outcome:
			t.Fatalf("returned early: %v", err)
		default:
		}
		must(t, s.Batch(1, groupsBatch(2, "c")))
		must(t, <-outcome)

		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("too long"))
		defer cancel()
		wait(ctx, 1, 100)
		if err := <-outcome; err == nil || err.Error() != "too long" {
			t.Errorf("out of time: %v", err)
		}
		// a rebuild does not end a wait
		wait(t.Context(), 1, 4)
		must(t, s.Reset(1, "cut off"))
		must(t, s.Batch(1, groupsBatch(0, "a", "b", "c", "d")))
		must(t, <-outcome)
		wait(t.Context(), 1, 100)
		must(t, s.Close())
		if err := <-outcome; !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

func TestWrongPartitionsAreErrors(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	for _, p := range []int32{-1, 3} {
		_, groupErr := s.Group(p, "g")
		for name, err := range map[string]error{
			"Batch": s.Batch(p, groupsBatch(0, "a")), "Reset": s.Reset(p, "x"), "Group": groupErr,
			"Err": s.Err(p), "Wait": s.Wait(t.Context(), p, 0), "PartitionStats": s.PartitionStats(p).Err,
		} {
			if err == nil || !strings.Contains(err.Error(), "has no partition") {
				t.Errorf("%s of partition %d: %v", name, p, err)
			}
		}
		if _, ok := s.Owner(p); ok || s.AtEnd(p) || s.Applied(p) != 0 {
			t.Errorf("partition %d is there", p)
		}
	}
}

func TestStrangersInTheDirectoryAreLeftAlone(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	must(t, cfg.FS.MkdirAll("projection/store-x", 0o755))
	must(t, cfg.FS.MkdirAll("projection/store-000003", 0o755)) // an empty one: damaged
	must(t, cfg.FS.MkdirAll("projection/other", 0o755))
	must(t, open(t, cfg).Close())
	names, err := cfg.FS.List("projection")
	must(t, err)
	slices.Sort(names)
	if got := strings.Join(names, " "); got != "LOCK other store-000004 store-x" {
		t.Errorf("files %s", got)
	}
}
