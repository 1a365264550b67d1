package projection

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"streamkeeper/eventlog"
)

// TestSnapshotStaysWhatItWas: whatever is applied afterwards, a snapshot says what the model of its moment says.
func TestSnapshotStaysWhatItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := open(t, testConfig(vfs.NewMem()))
		defer func() { must(t, s.Close()) }()
		g := newGenLog()
		apply := func(steps string) {
			from := len(g.entries)
			for range rapid.IntRange(1, 20).Draw(t, steps) {
				g.step(t, true)
			}
			end := int64(len(g.entries))
			must(t, s.Batch(1, batchOf(g.entries[from:], end, end)))
		}
		apply("before")
		moment := len(g.entries)
		sn, err := s.Snapshot()
		must(t, err)
		defer func() { must(t, sn.Close()) }()
		apply("after")
		if rapid.Bool().Draw(t, "reset") {
			must(t, s.Reset(1, "cut off"))
		}

		m := g.model(moment)
		var groups, withMembers, withOffsets []string
		must(t, sn.Groups(1, func(g string) bool { groups = append(groups, g); return true }))
		must(t, sn.GroupsWithMembers(1, func(g string) bool { withMembers = append(withMembers, g); return true }))
		must(t, sn.GroupsWithOffsets(1, func(g string) bool { withOffsets = append(withOffsets, g); return true }))
		for what, c := range map[string][2][]string{
			"groups":              {groups, m.names(ofType(eventlog.TypeGroup))},
			"groups with members": {withMembers, m.names(ofType(eventlog.TypeMember))},
			"groups with offsets": {withOffsets, m.names(ofType(eventlog.TypeOffsetCommit))},
		} {
			if !reflect.DeepEqual(c[0], c[1]) {
				t.Fatalf("%s: %q, want %q", what, c[0], c[1])
			}
		}
		for _, group := range testGroups {
			records, err := sn.Group(1, group)
			must(t, err)
			if !reflect.DeepEqual(records, m.group(group)) {
				t.Fatalf("group %q: %+v", group, records)
			}
			var offsets []Stored
			must(t, sn.Offsets(1, group, func(st Stored) bool {
				offsets = append(offsets, st)
				k := st.Record.Key
				one, ok, err := sn.Offset(1, k.Group, k.Topic, k.Partition)
				if err != nil || !ok || !reflect.DeepEqual(one, st) {
					t.Fatalf("offset %+v: %+v, %v, %v", k, one, ok, err)
				}
				return true
			}))
			if !reflect.DeepEqual(offsets, m.offsets(group)) {
				t.Fatalf("offsets of %q: %+v", group, offsets)
			}
		}
		if got := sn.Applied(1); got != int64(moment) {
			t.Fatalf("applied %d, want %d", got, moment)
		}
	})
}

func TestCallbacksEndIterations(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	must(t, s.Batch(1, groupsBatch(0, "a", "b", "c")))
	var got []string
	must(t, s.Groups(1, func(g string) bool { got = append(got, g); return g != "b" }))
	if !reflect.DeepEqual(got, []string{"a", "b"}) {
		t.Errorf("got %q", got)
	}
}

// TestASnapshotAcrossARebuildIsNoticed: the partition is forgotten between the two steps of taking one.
func TestASnapshotAcrossARebuildIsNoticed(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	must(t, s.Batch(0, groupsBatch(0, "x")))
	must(t, s.Batch(1, groupsBatch(0, "a", "b", "c")))
	e, err := s.current()
	must(t, err)
	marks := s.marks(e)
	must(t, s.Reset(1, "cut off"))
	must(t, s.Batch(1, groupsBatch(0, "z"))) // at the end again
	sn := newSnapshot(e, marks)
	defer func() { must(t, sn.Close()) }()
	if err := sn.Groups(1, func(string) bool { return true }); !errors.Is(err, ErrLoading) {
		t.Errorf("the rebuilt partition: %v", err)
	}
	must(t, sn.Groups(0, func(string) bool { return true }))
}

// TestReadersNeverSeeAPart races rebuilds against reads: a reader is told that the partition is loading, or sees all of it.
func TestReadersNeverSeeAPart(t *testing.T) {
	s := open(t, testConfig(vfs.NewMem()))
	defer func() { must(t, s.Close()) }()
	groups := []string{"a", "b", "c"}
	must(t, s.Batch(1, groupsBatch(0, groups...)))
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			err := s.Reset(1, "cut off")
			for i := 0; i < len(groups) && err == nil; i++ {
				b := groupsBatch(int64(i), groups[i])
				b.HighWatermark = int64(len(groups))
				err = s.Batch(1, b)
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	whole, loading := 0, 0
	check := func(what string, n int, err error) {
		t.Helper()
		switch {
		case errors.Is(err, ErrLoading):
			loading++
		case err != nil || n != len(groups):
			t.Fatalf("%s: %d groups, %v", what, n, err)
		default:
			whole++
		}
	}
	// For a moment, and where the two take turns on a busy machine until both were seen.
	for begun := time.Now(); ; {
		if took := time.Since(begun); took > 300*time.Millisecond && whole > 0 && loading > 0 || took > time.Minute {
			break
		}
		n := 0
		err := s.Groups(1, func(string) bool { n++; return true })
		check("store", n, err)
		sn, err := s.Snapshot()
		must(t, err)
		n = 0
		err = sn.Groups(1, func(string) bool { n++; return true })
		check("snapshot", n, err)
		must(t, sn.Close())
	}
	close(stop)
	must(t, <-done)
	if whole == 0 || loading == 0 {
		t.Errorf("%d reads saw all, %d were told to wait: nothing was raced", whole, loading)
	}
}
