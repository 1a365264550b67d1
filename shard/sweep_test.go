package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/shard/offsets"
)

// batchesWorld is a log whose batches the test can tell apart: each append is one read of the follower.
type batchesWorld struct {
	*node
	batches [][]eventlog.Record // since the world was made, claims and barriers aside
}

// inSweepWorld runs test with one replica, whose log takes batches of so many bytes, and groups that have been left: g00, g01, and so on, with so many
// offsets each, past their retention.
func inSweepWorld(t *testing.T, batchBytes int, committed []int, test func(t *testing.T, w *batchesWorld, log *eventlog.Fake, ids []string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log, start, end := newReplicasOver(t.Context(), eventlog.FakeOptions{Partitions: 1, BatchBytesMax: batchBytes, EntriesPerRead: 1})
		defer end()
		w := &batchesWorld{node: serving(t, log, start)}
		w.m.extend(10 * retention)
		var ids []string
		for i, n := range committed {
			id := fmt.Sprintf("g%02d", i)
			ids = append(ids, id)
			epoch := w.join(t, id, "m").MemberEpoch
			for from := 0; from < n; from += 500 {
				if err := w.commitMany(id, "m", epoch, from, min(500, n-from)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := w.beat(id, "m", -1); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(retention + time.Minute)
		synctest.Wait()
		w.store.mu.Lock()
		w.store.onRead = func(b eventlog.Batch) {
			var recs []eventlog.Record
			for _, e := range b.Entries {
				r, err := eventlog.Decode(eventlog.Raw{Key: e.Key, Value: e.Value})
				if err != nil {
					t.Error(err)
				}
				if r.Key.Type != eventlog.TypeOwnership {
					recs = append(recs, r)
				}
			}
			if len(recs) > 0 {
				w.batches = append(w.batches, recs)
			}
		}
		w.store.mu.Unlock()
		test(t, w, log, ids)
	})
}

// commitMany commits offsets of so many partitions of topic "in".
func (r *node) commitMany(group, member string, epoch int32, from, n int) error {
	c := offsets.Commit{Group: group, Version: 9, Retention: -1, Topics: []offsets.CommitTopic{{Name: "in", ID: [16]byte{1}}}}
	for p := range n {
		c.Topics[0].Partitions = append(c.Topics[0].Partitions, offsets.CommitPartition{Partition: int32(from + p), Offset: 1, LeaderEpoch: -1})
	}
	_, err := r.Commit(context.Background(), c, member, epoch, nil)
	return err
}

// sweepAll has the groups judged until nothing more is written, and returns how many turns it took.
func (w *batchesWorld) sweepAll(t *testing.T, ids []string) (turns, expired, removed int) {
	t.Helper()
	for len(ids) > 0 {
		judged, err := w.ExpireGroups(t.Context(), 0, ids)
		if err != nil || len(judged) == 0 {
			t.Fatal(judged, err)
		}
		turns++
		for i, j := range judged {
			if j.Err != nil || j.More && i < len(judged)-1 {
				t.Fatalf("group %s: %+v", ids[i], j)
			}
			expired += j.Offsets
			if j.Removed {
				removed++
			}
		}
		if judged[len(judged)-1].More {
			judged = judged[:len(judged)-1]
		}
		ids = ids[len(judged):]
	}
	synctest.Wait()
	return turns, expired, removed
}

// nothingIsLeft says that no record of any group is in the projection.
func (w *batchesWorld) nothingIsLeft(t *testing.T) {
	t.Helper()
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if n := len(w.store.parts[0].values); n != 0 {
		t.Errorf("%d records are left: %v", n, slices.Collect(maps.Keys(w.store.parts[0].values)))
	}
}

func TestASweepWritesManyGroupsInOneAppend(t *testing.T) {
	inSweepWorld(t, 0, []int{1, 3, 0, 2}, func(t *testing.T, w *batchesWorld, _ *eventlog.Fake, ids []string) {
		turns, expired, removed := w.sweepAll(t, ids)
		if turns != 1 || expired != 6 || removed != 4 || len(w.batches) != 1 {
			t.Errorf("%d turns, %d offsets, %d groups, %d batches; want all in one", turns, expired, removed, len(w.batches))
		}
		w.nothingIsLeft(t)
		if s := w.Stats(); s.OffsetExpirations != 6 {
			t.Errorf("%d expirations counted", s.OffsetExpirations)
		}
		time.Sleep(2 * evictInterval)
		if got := w.Stats(); got.Evicted < 4 {
			t.Errorf("%d groups left memory", got.Evicted)
		}
	})
}

// What does not fit a batch is split between groups; the records of a group stay together.
func TestASweepsBatchIsBounded(t *testing.T) {
	const bytes = 64 << 10
	var committed []int
	for range 30 {
		committed = append(committed, 150)
	}
	inSweepWorld(t, bytes, committed, func(t *testing.T, w *batchesWorld, _ *eventlog.Fake, ids []string) {
		turns, expired, removed := w.sweepAll(t, ids)
		if turns < 2 || turns != len(w.batches) || expired != 30*150 || removed != 30 {
			t.Errorf("%d turns, %d batches, %d offsets, %d groups", turns, len(w.batches), expired, removed)
		}
		seen := map[string]int{}
		for i, batch := range w.batches {
			size := batchOverhead
			for _, r := range batch {
				size += rawBytes(eventlog.Encode(r))
				if at, ok := seen[r.Key.Group]; ok && at != i {
					t.Fatalf("records of %s are in the batches %d and %d", r.Key.Group, at, i)
				}
				seen[r.Key.Group] = i
			}
			if size > bytes || i < len(w.batches)-1 && size < bytes/2 {
				t.Errorf("batch %d takes %d bytes of %d", i, size, bytes)
			}
		}
		w.nothingIsLeft(t)
	})
}

// A group that does not fit one batch goes in parts, its own records last and together, and others before and behind it are not held up.
func TestALargeGroupGoesInParts(t *testing.T) {
	const bytes = 64 << 10
	inSweepWorld(t, bytes, []int{1, 4000, 1}, func(t *testing.T, w *batchesWorld, _ *eventlog.Fake, ids []string) {
		_, expired, removed := w.sweepAll(t, ids)
		if expired != 4002 || removed != 3 || len(w.batches) < 4 {
			t.Errorf("%d offsets, %d groups, %d batches", expired, removed, len(w.batches))
		}
		last := map[string]eventlog.Type{}
		for _, batch := range w.batches {
			for _, r := range batch {
				if r.Key.Group == ids[1] && last[ids[1]] != eventlog.TypeOffsetCommit && r.Key.Type == eventlog.TypeOffsetCommit && last[ids[1]] != 0 {
					t.Fatal("an offset of the large group goes after its own records")
				}
				last[r.Key.Group] = r.Key.Type
			}
		}
		w.nothingIsLeft(t)
	})
}

// What one group can't do is no reason against the others, neither is a group that is not there.
func TestAGroupThatCantBeJudgedIsLeftOut(t *testing.T) {
	inSweepWorld(t, 0, []int{1, 1, 1}, func(t *testing.T, w *batchesWorld, _ *eventlog.Fake, ids []string) {
		w.store.mu.Lock()
		w.store.unreadable = ids[1]
		w.store.mu.Unlock()
		time.Sleep(2 * idleKeep) // so that it is read
		judged, err := w.ExpireGroups(t.Context(), 0, append(ids, "nobody"))
		if err != nil || len(judged) != 4 {
			t.Fatal(judged, err)
		}
		gone := Judged{Offsets: 1, Removed: true}
		if judged[0] != gone || !errors.Is(judged[1].Err, ErrLoading) || judged[2] != gone || judged[3] != (Judged{}) {
			t.Errorf("%+v", judged)
		}
		w.store.mu.Lock()
		w.store.unreadable = ""
		w.store.mu.Unlock()
		if _, expired, removed := w.sweepAll(t, ids); expired != 1 || removed != 1 {
			t.Errorf("then %d offsets and %d groups", expired, removed)
		}
		w.nothingIsLeft(t)
	})
}

// A panic in a handler breaks one group.
func TestAPanicInASweepBreaksOneGroup(t *testing.T) {
	inSweepWorld(t, 0, []int{1, 1, 1}, func(t *testing.T, w *batchesWorld, _ *eventlog.Fake, ids []string) {
		judged, err := w.ForgetTopics(t.Context(), 0, ids, func(offsets.TopicRef) bool {
			if w.Stats().Panics == 0 {
				panic("on purpose")
			}
			return true
		}, time.Now())
		if err != nil || len(judged) != 3 || !errors.Is(judged[0].Err, ErrInternal) || judged[1].Offsets != 1 || judged[2].Offsets != 1 {
			t.Errorf("%+v %v", judged, err)
		}
	})
}

// Where the append's outcome is not known nothing is told of any group, and the shard starts over with what the log says.
func TestASweepWhoseAppendIsLostSaysSo(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*eventlog.Fake)
		left int
	}{
		{"the acknowledgement is lost", func(l *eventlog.Fake) { l.LoseAck(0) }, 0},
		{"the append is lost", func(l *eventlog.Fake) { l.DropAppend(0) }, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			inSweepWorld(t, 0, []int{1, 1, 1}, func(t *testing.T, w *batchesWorld, log *eventlog.Fake, ids []string) {
				c.do(log)
				judged, err := w.ExpireGroups(t.Context(), 0, ids)
				if err == nil || judged != nil {
					t.Fatalf("%+v %v", judged, err)
				}
				if n := w.Stats().OffsetExpirations; n != 0 {
					t.Errorf("%d expirations counted of which nobody knows", n)
				}
				w.awaitServing(t)
				if _, expired, removed := w.sweepAll(t, ids); expired != c.left || removed != c.left {
					t.Errorf("then %d offsets and %d groups, want %d", expired, removed, c.left)
				}
				w.nothingIsLeft(t)
			})
		})
	}
}

// An active group among idle ones loses what it does not read, and is otherwise left alone; a commit that is under way is seen.
func TestASweepSeesWhatIsUnderWay(t *testing.T) {
	inSweepWorld(t, 0, []int{1, 1}, func(t *testing.T, w *batchesWorld, log *eventlog.Fake, ids []string) {
		epoch := w.join(t, ids[1], "back").MemberEpoch
		log.HoldTail(0)
		if err := w.commit(ids[1], "back", epoch, 7); err != nil {
			t.Fatal(err)
		}
		if _, err := w.beat(ids[1], "back", -1); err != nil {
			t.Fatal(err)
		}
		judged, err := w.ExpireGroups(t.Context(), 0, ids)
		if err != nil || judged[0] != (Judged{Offsets: 1, Removed: true}) || judged[1] != (Judged{}) {
			t.Errorf("%+v %v", judged, err)
		}
		log.ReleaseTail(0)
		if got, err := w.fetched(ids[1]); err != nil || got != 7 {
			t.Errorf("the fresh offset is %d, %v", got, err)
		}
	})
}

// Each group of a turn stays in memory until its tombstones are applied: read from the projection before that, it would be back.
func TestSweptGroupsStayUntilTheyAreApplied(t *testing.T) {
	inSweepWorld(t, 0, []int{1, 1, 1}, func(t *testing.T, w *batchesWorld, log *eventlog.Fake, ids []string) {
		w.m.duration.Store(int64(time.Hour)) // or a tail that stands still ends the lease
		log.HoldTail(0)
		if judged, err := w.ExpireGroups(t.Context(), 0, ids); err != nil || len(judged) != 3 {
			t.Fatal(judged, err)
		}
		time.Sleep(3*evictInterval + idleKeep)
		if list, err := w.List(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("listed are %v, %v", list, err)
		}
		for _, id := range ids {
			// It is told at once that the group is gone: the cluster has what there is of it, if anything.
			if got, err, done := async(func() (int64, error) { return w.fetched(id) })(); !done || !errors.Is(err, ErrNotOwner) {
				t.Errorf("group %s has offset %d, %v, %v", id, got, err, done)
			}
			if epoch := w.join(t, id, "again").MemberEpoch; epoch != 2 {
				t.Errorf("group %s begins with epoch %d", id, epoch)
			}
		}
		log.ReleaseTail(0)
		for _, id := range ids {
			if got, err := w.fetched(id); err != nil || got != -1 {
				t.Errorf("group %s, made again, has offset %d, %v", id, got, err)
			}
		}
	})
}

func TestOnlyTheOwnerSweeps(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, _ *eventlog.Fake, start func(int32) *node) {
		r := start(0)
		synctest.Wait()
		if judged, err := r.ExpireGroups(t.Context(), 0, []string{"g"}); !errors.Is(err, ErrNotOwner) {
			t.Errorf("%v %v", judged, err)
		}
		if judged, err := r.ExpireGroups(t.Context(), 0, nil); judged != nil || err != nil {
			t.Errorf("of none: %v %v", judged, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.ExpireGroups(ctx, 0, []string{"g"}); !errors.Is(err, context.Canceled) {
			t.Errorf("asked by nobody: %v", err)
		}
	})
}
