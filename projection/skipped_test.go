package projection

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"streamkeeper/eventlog"
)

// unknownEntry is a record of a type that this program does not know.
func unknownEntry(offset int64, t int16) eventlog.Entry {
	return rawEntry(offset, string(binary.BigEndian.AppendUint16(nil, uint16(t)))+"\x00\x01g", "whatever")
}

// TestUnknownTypesAreSkippedUntilAProgramKnowsThem: as Kafka does, with a word of warning; but a program that knows the type later on must not go on
// behind what its predecessor skipped.
func TestUnknownTypesAreSkippedUntilAProgramKnowsThem(t *testing.T) {
	var said bytes.Buffer
	cfg := testConfig(vfs.NewMem())
	cfg.Logger = slog.New(slog.NewTextHandler(&said, nil))
	s := open(t, cfg)
	b := groupsBatch(0, "a", "b", "c", "d")
	b.Entries[1], b.Entries[2] = unknownEntry(1, 24), unknownEntry(2, 24)
	must(t, s.Batch(1, b))
	b = groupsBatch(4, "e", "f")
	b.Entries[0] = unknownEntry(4, 32100)
	must(t, s.Batch(1, b))
	b = groupsBatch(6, "g")
	b.Entries[0] = unknownEntry(6, 24)
	must(t, s.Batch(1, b))
	wantGroups(t, s, 1, "a", "d", "f")
	if st := s.Stats(); st.Unknown != 4 || st.Refused != 0 || s.Err(1) != nil {
		t.Errorf("numbers: %+v, %v", st, s.Err(1))
	}
	warnings := strings.Count(said.String(), "records of an unknown type are skipped")
	for _, want := range []string{"offset=1 type=24", "offset=4 type=32100"} {
		if !strings.Contains(said.String(), want) || warnings != 2 {
			t.Errorf("%d warnings, want one for each of two types, %q in\n%s", warnings, want, said.String())
		}
	}
	must(t, s.Close())

	s = open(t, cfg) // the same program: nothing is read again, and nothing said again
	wantRebuilds(t, s, map[Reason]uint64{})
	if pos := s.Resume(1); pos.Offset != 7 {
		t.Errorf("resumes at %d", pos.Offset)
	}
	b = groupsBatch(7, "h", "i")
	b.Entries[0] = unknownEntry(7, 24)
	must(t, s.Batch(1, b))
	if n := strings.Count(said.String(), "records of an unknown type are skipped"); n != warnings {
		t.Errorf("%d warnings after a restart, %d before", n, warnings)
	}
	// What a program leaves behind that does not know type 32002.
	must(t, s.engine.db.Set(skippedKey(1, eventlog.TypeDescriptionRefusal), nil, pebble.NoSync))
	held, err := lookAgain(s, cfg)
	if want := []eventlog.Type{24, 32002, 32100}; err != nil || !reflect.DeepEqual(held.Skipped, want) {
		t.Errorf("skipped %d, want %d; %v", held.Skipped, want, err)
	}

	s = open(t, cfg)
	if err := s.Groups(1, func(string) bool { return true }); !errors.Is(err, ErrLoading) {
		t.Errorf("read before what was skipped is there: %v", err)
	}
	if pos := s.Resume(1); pos.Offset != 0 {
		t.Errorf("resumes at %d, behind records that were skipped", pos.Offset)
	}
	wantRebuilds(t, s, map[Reason]uint64{ReasonSkipped: 1})
	if pos := s.Resume(0); s.Err(0) != nil {
		t.Errorf("another partition: at %v, %v", pos, s.Err(0))
	}
	must(t, s.Batch(1, groupsBatch(0, "a", "d", "f", "i")))
	wantGroups(t, s, 1, "a", "d", "f", "i")
	must(t, s.Close())

	s = open(t, cfg) // and only once
	defer func() { must(t, s.Close()) }()
	wantRebuilds(t, s, map[Reason]uint64{})
	if pos := s.Resume(1); pos.Offset != 4 {
		t.Errorf("resumes at %d", pos.Offset)
	}
}

// newest is the newest version, or format, of each record type's value that can be read.
var newest = map[eventlog.Type]int{
	eventlog.TypeLegacyOffsetCommit: 0, eventlog.TypeOffsetCommit: 4, eventlog.TypeClassicGroup: 4,
	eventlog.TypeGroup: 0, eventlog.TypeMember: 0, eventlog.TypeTargetAssignment: 0, eventlog.TypeTargetAssignmentMember: 0,
	eventlog.TypeCurrentMemberAssignment: 0, eventlog.TypeTopology: 0,
	eventlog.TypeOwnership: 1, eventlog.TypeGroupConfig: 1, eventlog.TypeDescriptionRefusal: 1,
}

// TestANewerVersionOfAnyKindRefusesThePartition: a record of a kind that is known, in a version that is not, may say anything. Nothing behind it is read,
// a tombstone of the kind is no obstacle, and whoever takes the store for the last copy is told that it is not whole.
func TestANewerVersionOfAnyKindRefusesThePartition(t *testing.T) {
	kinds := 0
	for n := -1 << 15; n < 1<<15; n++ {
		kind := eventlog.Type(n)
		if !kind.Known() {
			continue
		}
		kinds++
		version, ok := newest[kind]
		if !ok {
			t.Errorf("%s is not in the table of this test", kind)
			continue
		}
		t.Run(kind.String(), func(t *testing.T) {
			k := eventlog.Key{Type: kind, Group: "g"}
			switch kind {
			case eventlog.TypeOwnership:
				k.Group = ""
			case eventlog.TypeLegacyOffsetCommit, eventlog.TypeOffsetCommit:
				k.Topic = "t"
			case eventlog.TypeMember, eventlog.TypeTargetAssignmentMember, eventlog.TypeCurrentMemberAssignment:
				k.Member = "m"
			}
			newer := binary.BigEndian.AppendUint16(nil, uint16(version+1))
			if kind >= eventlog.TypeOwnership {
				newer = fmt.Appendf(nil, `{"format":%d}`, version+1)
			}
			cfg := testConfig(vfs.NewMem())
			s := open(t, cfg)
			b := groupsBatch(0, "a", "b", "c", "d")
			b.Entries[1] = eventlog.Entry{Offset: 1, ProducerID: 7, Key: eventlog.AppendKey(nil, k)} // a tombstone has no version
			b.Entries[2].ProducerID = 7
			b.Entries[0].ProducerID, b.Entries[3].ProducerID = 7, 7
			must(t, s.Batch(1, b))
			if held, err := lookAgain(s, cfg); err != nil || !reflect.DeepEqual(held.Unread, unreadBut(cfg, 1)) {
				t.Fatalf("held %+v, %v", held, err)
			}
			s = open(t, cfg)
			b = groupsBatch(4, "e", "f", "g")
			b.Entries[1] = eventlog.Entry{Offset: 5, ProducerID: 7, Key: eventlog.AppendKey(nil, k), Value: newer}
			b.Entries[0].ProducerID, b.Entries[2].ProducerID = 7, 7
			err := s.Batch(1, b)
			if !errors.Is(err, eventlog.ErrRefused) || !errors.Is(err, eventlog.ErrUnknownVersion) {
				t.Fatalf("Batch: %v", err)
			}
			for _, part := range []string{"partition 1", "offset 5", kind.String(), fmt.Sprint(version + 1), fmt.Sprintf("newest that can be read is %d", version)} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in: %v", part, err)
				}
			}
			wantGroups(t, s, 1, "a", "c", "d", "e")
			held, err := lookAgain(s, cfg)
			if err != nil || !reflect.DeepEqual(held.Unread, unreadBut(cfg)) {
				t.Errorf("held %+v, %v", held, err)
			}
		})
	}
	if kinds != len(newest) {
		t.Errorf("%d kinds, want %d", kinds, len(newest))
	}
}

// lookAgain closes the store and looks what its directory holds.
func lookAgain(s *Store, cfg Config) (Held, error) {
	if err := s.Close(); err != nil {
		return Held{}, err
	}
	return Look(cfg)
}

// unreadBut are all partitions but those.
func unreadBut(cfg Config, read ...int32) (unread []int32) {
	for p := range cfg.Identity.Partitions {
		if len(read) == 0 || p != read[0] {
			unread = append(unread, p)
		}
	}
	return unread
}
