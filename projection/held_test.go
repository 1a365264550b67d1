package projection

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestAStoreOfAnotherLogIsKeptWhereItIsTheLastCopy(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	look := func() Held {
		t.Helper()
		held, err := Look(cfg)
		must(t, err)
		return held
	}
	if h := look(); !reflect.DeepEqual(h, Held{}) {
		t.Errorf("where there is nothing: %+v", h)
	}
	former := cfg.Identity
	s := open(t, cfg)
	if _, err := Look(cfg); !errors.Is(err, ErrLocked) {
		t.Errorf("while it is open: %v", err)
	}
	must(t, s.Close())

	// Without groups it is of no worth, whatever log it is of.
	cfg.KeepOther = true
	cfg.Identity.TopicID[0]++
	s = open(t, cfg)
	wantRebuilds(t, s, map[Reason]uint64{ReasonTopic: 1})
	must(t, s.Batch(0, groupsBatch(0, "a", "b")))
	must(t, s.Batch(1, groupsBatch(0, "c")))
	must(t, s.Close())
	if h := look(); h.Groups != 3 || h.Topic != cfg.Identity.Topic || h.TopicID != cfg.Identity.TopicID || h.Partitions != cfg.Identity.Partitions || h.Read != 3 || h.Empty() {
		t.Errorf("held %+v", h)
	}

	other := cfg
	other.Identity = former
	if s, err := Open(other); !errors.Is(err, ErrOtherLog) || !strings.Contains(err.Error(), "holds 3 of topic __streams_groups") {
		t.Fatalf("of another log: %v, %v", s, err)
	}
	s = open(t, cfg) // nothing was lost by trying
	wantGroups(t, s, 0, "a", "b")
	wantGroups(t, s, 1, "c")
	must(t, s.Close())

	other.KeepOther = false
	s = open(t, other)
	defer func() { must(t, s.Close()) }()
	wantRebuilds(t, s, map[Reason]uint64{ReasonTopic: 1})
	var none []string
	must(t, s.Groups(0, func(g string) bool { none = append(none, g); return true }))
	if len(none) > 0 {
		t.Errorf("groups of another log: %v", none)
	}
}

// Of a partition that was not read to the log's end a store holds a part; whoever takes it for the last copy must know.
func TestAPartitionThatWasNotReadToItsEndIsTold(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	unread := func(want ...int32) {
		t.Helper()
		held, err := Look(cfg)
		must(t, err)
		for p := int32(2); p < cfg.Identity.Partitions; p++ {
			want = append(want, p) // never read
		}
		if !reflect.DeepEqual(held.Unread, want) {
			t.Errorf("unread are %v, want %v", held.Unread, want)
		}
	}
	s := open(t, cfg)
	part := groupsBatch(0, "a", "b")
	part.HighWatermark += 5
	must(t, s.Batch(0, part))
	must(t, s.Batch(1, groupsBatch(0, "c")))
	must(t, s.Close())
	unread(0)

	s = open(t, cfg)
	part.Entries, part.Next = nil, part.HighWatermark
	must(t, s.Batch(0, part))
	must(t, s.Close())
	unread()

	s = open(t, cfg) // a rebuild that was interrupted
	must(t, s.Reset(1, "test"))
	must(t, s.Close())
	unread(1)
}
