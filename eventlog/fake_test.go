package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// memory is a Follower that remembers all it is told, and keeps the entries read.
type memory struct {
	mu      sync.Mutex
	entries map[int32][]Entry
	pos     map[int32]Position
	ends    map[int32]int // how often a batch stood at the end
	resets  []string
	fail    func(p int32, b Batch) error
	resume  map[int32]Position
}

func newMemory() *memory {
	return &memory{entries: map[int32][]Entry{}, pos: map[int32]Position{}, ends: map[int32]int{}, resume: map[int32]Position{}}
}

func (m *memory) Resume(p int32) Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pos, ok := m.resume[p]; ok {
		return pos
	}
	return Position{0, EpochNone}
}

func (m *memory) Batch(p int32, b Batch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		if err := m.fail(p, b); err != nil {
			return err
		}
	}
	for _, e := range b.Entries {
		if old := m.entries[p]; len(old) > 0 && old[len(old)-1].Offset >= e.Offset {
			return fmt.Errorf("%w: offset %d after %d", ErrRefused, e.Offset, old[len(old)-1].Offset)
		}
		m.entries[p] = append(m.entries[p], e)
	}
	m.pos[p] = Position{b.Next, b.LeaderEpoch}
	if b.AtEnd() {
		m.ends[p]++
	}
	return nil
}

func (m *memory) Reset(p int32, why string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resets = append(m.resets, fmt.Sprintf("%d: %s", p, why))
	m.entries[p] = nil
	delete(m.resume, p)
	delete(m.pos, p)
	return nil
}

func (m *memory) position(p int32) Position {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pos[p]
}

// atEnd is how often p was said to stand at the end.
func (m *memory) atEnd(p int32) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ends[p]
}

// why are the reasons of resets.
func (m *memory) why() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.resets)
}

// values are the values read of p, without ownership records.
func (m *memory) values(p int32) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return values(m.entries[p])
}

func values(entries []Entry) []string {
	var vs []string
	for _, e := range entries {
		switch {
		case e.Control != ControlNone:
			vs = append(vs, fmt.Sprintf("control%d", e.Control))
		case strings.HasPrefix(string(e.Key), "\x7d\x00"):
		case e.Value == nil:
			vs = append(vs, string(e.Key)+"=")
		default:
			vs = append(vs, string(e.Key)+"="+string(e.Value))
		}
	}
	return vs
}

func kv(key, value string) Raw { return Raw{Key: []byte(key), Value: []byte(value)} }

// outcomes collects what Done functions are told.
type outcomes struct {
	mu  sync.Mutex
	all []string
}

func (o *outcomes) done(name string) Done {
	return func(offset int64, err error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if err != nil {
			o.all = append(o.all, name+": "+err.Error())
			return
		}
		o.all = append(o.all, fmt.Sprintf("%s@%d", name, offset))
	}
}

func (o *outcomes) list() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.all)
}

func equal[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// inBubble runs test with a fake and a follower of it.
func inBubble(t *testing.T, o FakeOptions, test func(t *testing.T, f *Fake, m *memory)) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake(o)
		m := newMemory()
		followed := make(chan error, 1)
		go func() { followed <- f.Follow(t.Context(), m) }()
		defer f.Close() // also where test ends early
		test(t, f, m)
		f.Close()
		if err := <-followed; !errors.Is(err, ErrClosed) {
			t.Fatalf("Follow ended with %v", err)
		}
	})
}

func fakeClaim(t *testing.T, f *Fake, p int32) Writer {
	t.Helper()
	w, err := f.Claim(t.Context(), p, Ownership{NodeID: 1, Instance: "a"})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestFakeAppendsAreReadInOrder(t *testing.T) {
	inBubble(t, FakeOptions{Partitions: 2, EntriesPerRead: 2}, func(t *testing.T, f *Fake, m *memory) {
		var o outcomes
		w := fakeClaim(t, f, 1)
		w.Append(5, []Raw{kv("a", "1"), kv("b", "2"), {Key: []byte("c")}}, o.done("first"))
		w.Append(6, []Raw{kv("a", "3")}, o.done("second"))
		w.Append(6, []Raw{kv("a", strings.Repeat("x", 2<<20))}, o.done("large"))
		w.Append(6, nil, o.done("empty"))
		w.Barrier(o.done("barrier"))
		synctest.Wait()
		equal(t, "outcomes", o.list(), []string{"first@1", "second@4", "large: " + ErrTooLarge.Error(), "empty: " + ErrEmptyAppend.Error(), "barrier@5"})
		equal(t, "read", m.values(1), []string{"a=1", "b=2", "c=", "a=3"})
		if end, err := f.End(t.Context(), 1); end != 6 || err != nil || m.position(1).Offset != 6 {
			t.Fatalf("end %d, %v, read to %v", end, err, m.position(1))
		}
		if m.atEnd(0) != 1 || m.atEnd(1) == 0 {
			t.Fatalf("stood at the end %d and %d times", m.atEnd(0), m.atEnd(1))
		}
		time.Sleep(time.Second) // the bubble's clock
		synctest.Wait()
		if m.atEnd(0) < 2 {
			t.Fatal("an idle follower is not told of the end again")
		}
		if err := w.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.Append(7, []Raw{kv("z", "z")}, o.done("late"))
		synctest.Wait()
		if all := o.list(); all[len(all)-1] != "late: "+ErrClosed.Error() {
			t.Fatal(all)
		}
	})
}

func TestFakeFaultsOfAppends(t *testing.T) {
	inBubble(t, FakeOptions{}, func(t *testing.T, f *Fake, m *memory) {
		var o outcomes
		w := fakeClaim(t, f, 0)
		f.HoldAppends(0)
		w.Append(1, []Raw{kv("a", "1")}, o.done("held"))
		w.Barrier(o.done("barrier"))
		synctest.Wait()
		if len(o.list()) != 0 || w.Backlog() == 0 || m.values(0) != nil {
			t.Fatal(o.list(), w.Backlog(), m.values(0))
		}
		f.ReleaseAppends(0)
		synctest.Wait()
		equal(t, "held", o.list(), []string{"held@1", "barrier@1"})

		f.HoldAcks(0)
		w.Append(1, []Raw{kv("a", "2")}, o.done("unacked"))
		w.Append(1, []Raw{kv("a", "3")}, o.done("behind"))
		synctest.Wait()
		equal(t, "visible before its acknowledgement", m.values(0), []string{"a=1", "a=2"})
		f.ReleaseAck(0)
		synctest.Wait()
		equal(t, "one acknowledged", o.list()[2:], []string{"unacked@2"})
		f.ReleaseAcks(0)
		synctest.Wait()
		equal(t, "both acknowledged", o.list()[2:], []string{"unacked@2", "behind@3"})

		f.LoseAck(0)
		w.Append(1, []Raw{kv("a", "4")}, o.done("lost"))
		w.Append(1, []Raw{kv("a", "5")}, o.done("dead"))
		synctest.Wait()
		equal(t, "unknown", o.list()[4:], []string{"lost: " + ErrOutcomeUnknown.Error(), "dead: " + ErrOutcomeUnknown.Error()})
		equal(t, "in the log all the same", m.values(0), []string{"a=1", "a=2", "a=3", "a=4"})

		w = fakeClaim(t, f, 0)
		f.DropAppend(0)
		w.Append(1, []Raw{kv("a", "6")}, o.done("dropped"))
		w = fakeClaim(t, f, 0)
		if f.DeliverLate(0) {
			t.Fatal("a late copy got past the next claim")
		}
		f.DropAppend(0)
		w.Append(1, []Raw{kv("a", "7")}, o.done("dropped"))
		if !f.DeliverLate(0) {
			t.Fatal("a late copy is accepted while no later claim is in the log")
		}
		boom := errors.New("boom")
		w = fakeClaim(t, f, 0)
		f.FailAppend(0, boom)
		w.Append(1, []Raw{kv("a", "8")}, o.done("failed"))
		synctest.Wait()
		if all := o.list(); all[len(all)-1] != "failed: boom" {
			t.Fatal(all)
		}
		f.FailClaim(0, boom)
		if _, err := f.Claim(t.Context(), 0, Ownership{}); err != boom {
			t.Fatal(err)
		}
		f.FailEnd(0, boom)
		if _, err := f.End(t.Context(), 0); err != boom {
			t.Fatal(err)
		}
	})
}

func TestFakeFencesByProducerEpoch(t *testing.T) {
	inBubble(t, FakeOptions{}, func(t *testing.T, f *Fake, m *memory) {
		var o outcomes
		w := fakeClaim(t, f, 0)
		first := w.Claim()
		if c := f.Renew(w); c.Generation != 1 || c.ProducerEpoch != first.ProducerEpoch+1 || w.Claim() != c {
			t.Fatalf("renewed %+v after %+v", c, first)
		}
		rival := f.Steal(0, Ownership{NodeID: 2, Instance: "b"})
		w.Append(1, []Raw{kv("a", "old")}, o.done("old"))
		rival.Append(1, []Raw{kv("a", "new")}, o.done("new"))
		synctest.Wait()
		equal(t, "outcomes", o.list(), []string{"old: " + ErrFenced.Error(), "new@3"})

		// Another producer id: the former one is fenced, also where the claimer knows of one before it.
		f.ExpireProducer(0)
		next, err := f.ClaimAfter(t.Context(), 0, Ownership{NodeID: 2}, &Owner{Ownership: rival.(*fakeWriter).owner, Offset: 2}, time.Minute)
		if err != nil || next.Claim().FreshProducer || next.Claim().ProducerID == rival.Claim().ProducerID {
			t.Fatalf("%+v, %v", next, err)
		}
		rival.Append(1, []Raw{kv("a", "late")}, o.done("late"))
		synctest.Wait()
		equal(t, "outcomes", o.list()[2:], []string{"late: " + ErrFenced.Error()})
		f.ExpireProducer(0)
		last, err := f.ClaimAfter(t.Context(), 0, Ownership{NodeID: 4}, &Owner{Ownership: rival.(*fakeWriter).owner, Offset: 2}, time.Minute)
		if err != nil || last.Claim().FreshProducer {
			t.Fatalf("%+v, %v", last, err)
		}
		next.Append(1, []Raw{kv("a", "late")}, o.done("late"))
		synctest.Wait()
		equal(t, "outcomes", o.list()[3:], []string{"late: " + ErrFenced.Error()})
		rival = last

		f.KeepFormer(0)
		f.ExpireProducer(0)
		prev := &Owner{Ownership: Ownership{ProducerID: rival.Claim().ProducerID}, Offset: rival.Claim().Generation}
		began := time.Now()
		next, err = f.ClaimAfter(t.Context(), 0, Ownership{NodeID: 3}, prev, time.Minute)
		if err != nil || !next.Claim().FreshProducer || time.Since(began) != time.Minute {
			t.Fatalf("%+v, %v after %v", next.Claim(), err, time.Since(began))
		}
		rival.Append(1, []Raw{kv("a", "unfenced")}, o.done("unfenced"))
		synctest.Wait()
		equal(t, "the broker can't refuse a predecessor with another producer id", o.list()[4:], []string{fmt.Sprintf("unfenced@%d", next.Claim().Generation+1)})
	})
}

func TestFakeLogIsCutOff(t *testing.T) {
	inBubble(t, FakeOptions{}, func(t *testing.T, f *Fake, m *memory) {
		w := fakeClaim(t, f, 0)
		for i := range 5 {
			w.Append(1, []Raw{kv("a", fmt.Sprint(i))}, nil)
		}
		synctest.Wait()
		f.MoveLeader(0)
		synctest.Wait()
		equal(t, "resets", m.why(), nil)
		f.Truncate(0, 3)
		w = fakeClaim(t, f, 0)
		w.Append(1, []Raw{kv("a", "other")}, nil)
		synctest.Wait()
		equal(t, "resets", m.why(), []string{"0: the log was cut off below the position"})
		equal(t, "read again", m.values(0), []string{"a=0", "a=1", "a=other"})
		f.HoldTail(0)
		w.Append(1, []Raw{kv("a", "last")}, nil)
		f.DeleteBefore(0, 6)
		f.ReleaseTail(0)
		synctest.Wait()
		equal(t, "resets", m.why()[1:], []string{"0: the log starts after the position"})
	})
}

func TestFakeCompaction(t *testing.T) {
	inBubble(t, FakeOptions{}, func(t *testing.T, f *Fake, m *memory) {
		w := fakeClaim(t, f, 0)
		txn := func(pid int64, control ControlType, r Raw) Entry {
			return Entry{ProducerID: pid, Transactional: true, Control: control, Key: r.Key, Value: r.Value}
		}
		w.Append(1, []Raw{kv("a", "1"), kv("b", "1")}, nil)
		f.Inject(0, txn(7, ControlNone, kv("a", "aborted")))
		f.Inject(0, txn(8, ControlNone, kv("b", "committed")))
		f.Inject(0, txn(7, ControlAbort, Raw{}))
		f.Inject(0, txn(8, ControlCommit, Raw{}))
		w.Append(1, []Raw{kv("c", "1"), {Key: []byte("c")}}, nil)
		f.Inject(0, txn(9, ControlNone, kv("a", "open")))
		w.Append(1, []Raw{kv("a", "2")}, nil)
		f.Compact(0, true)
		equal(t, "tombstones kept", values(f.Entries(0)), []string{"a=1", "b=committed", "control2", "control1", "c=", "a=open", "a=2"})
		f.Compact(0, false)
		equal(t, "tombstones dropped", values(f.Entries(0)), []string{"a=1", "b=committed", "control1", "a=open", "a=2"})
		f.Inject(0, txn(9, ControlAbort, Raw{}))
		f.Compact(0, false)
		equal(t, "transaction settled", values(f.Entries(0)), []string{"b=committed", "control1", "a=2"})
		if end, _ := f.End(t.Context(), 0); end != 12 {
			t.Fatal(end)
		}
	})
}

func TestFakeFollowerErrors(t *testing.T) {
	inBubble(t, FakeOptions{Partitions: 3}, func(t *testing.T, f *Fake, m *memory) {
		tries := map[int32]int{}
		m.mu.Lock()
		m.fail = func(p int32, b Batch) error {
			if len(b.Entries) == 0 {
				return nil
			}
			tries[p]++
			switch {
			case p == 0:
				return ErrRefused
			case p == 1 && tries[p] == 1:
				return fmt.Errorf("%w: format", ErrRebuild)
			case p == 2 && tries[p] < 3:
				return errors.New("disk")
			}
			return nil
		}
		m.mu.Unlock()
		for p := range int32(3) {
			fakeClaim(t, f, p).Append(1, []Raw{kv("a", "1")}, nil)
		}
		time.Sleep(time.Second) // the bubble's clock
		synctest.Wait()
		m.mu.Lock()
		defer m.mu.Unlock()
		equal(t, "tries", []int{tries[0], tries[1], tries[2]}, []int{1, 2, 3})
		equal(t, "resets", m.resets, []string{"1: " + ErrRebuild.Error() + ": format"})
		equal(t, "read", slices.Concat(values(m.entries[0]), values(m.entries[1]), values(m.entries[2])), []string{"a=1", "a=1"})
	})
}

func TestFakeTopicMadeAgainEndsFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFake(FakeOptions{})
		defer f.Close()
		followed := make(chan error, 1)
		go func() { followed <- f.Follow(context.Background(), newMemory()) }()
		synctest.Wait()
		f.DeleteTopic(nil)
		if err := <-followed; err == nil || !strings.Contains(err.Error(), "__streams_groups was deleted and made again") {
			t.Fatal(err)
		}
	})
}
