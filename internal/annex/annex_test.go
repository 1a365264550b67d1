package annex

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/plugin/conformance"
	"streamkeeper/plugin/topic"
	"streamkeeper/shard"
)

// The fake log is as exact in its fence as a broker; what a real one does is in kafka_test.go.
func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) plugin.Plugin {
		r := newWorld(t).replica("a")
		r.ownAll()
		return r
	})
}

func TestConformanceWithOneEpoch(t *testing.T) {
	conformance.Run(t, func(t *testing.T) plugin.Plugin {
		r := newWorld(t).replica("a", func(c *topic.Config) { c.EpochsMax = 1 })
		r.ownAll()
		return r
	})
}

// TestAnotherReplicaTakesOver: what one stored the other one has, at once, also from an empty directory.
func TestAnotherReplicaTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.replica("a"), w.replica("b")
		a.own("g")
		a.mustSet("g", 0, "first")
		a.mustSet("g", 1, "second")
		b.own("g")
		b.want("g", 1, "second")
		b.wantEpochs("g", 0, 1)
		if err := a.set("g", 2, "third"); err != nil {
			t.Fatalf("before the new owner has written anything the cluster takes what the former one writes: %v", err)
		}
		b.mustSet("g", 3, "fourth")
		err := a.set("g", 4, "fifth")
		if err == nil || plugin.IsPermanent(err) || err.Error() != textNotOwner {
			t.Errorf("a write of the former owner: %v", err)
		}
		a.stop()
		fresh := w.replica("c")
		fresh.own("g")
		fresh.wantEpochs("g", 0, 1, 2, 3)
		fresh.mustDelete("g")
		fresh.wantEpochs("g")
	})
}

// TestLateWriteNeverOutlivesItsGroup: a description that a former owner began to write arrives before or after each step of the deletion
// by the new owner. It is never there afterwards: for the new owner, for one that reads the topic anew, and after compaction.
func TestLateWriteNeverOutlivesItsGroup(t *testing.T) {
	const group = "g"
	p := eventlog.Partition(group, partitions)
	for _, fresh := range []bool{false, true} { // whether the cluster has forgotten the former owner's producer id
		for _, when := range []string{"before the deletion", "after the fence", "after the deletion", "after a second life began"} {
			t.Run(when+map[bool]string{true: ", producer id expired"}[fresh], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					a, b := w.replica("a"), w.replica("b")
					a.own(group)
					a.mustSet(group, 0, "first")
					w.annex.DropAppend(p) // the network has it
					if err := a.set(group, 1, "late"); err == nil || plugin.IsPermanent(err) {
						t.Fatalf("a write without an outcome: %v", err)
					}
					if fresh {
						w.log.ExpireProducer(p)
					}
					b.own(group)
					late := func(at string) {
						if at == when {
							accepted := w.annex.DeliverLate(p)
							if want := fresh || when == "before the deletion"; accepted != want {
								t.Errorf("the late write was accepted: %v, want %v", accepted, want)
							}
							synctest.Wait()
						}
					}
					late("before the deletion")
					if when == "after the fence" {
						if err := b.space.Settle(b.ctx(group), group); err != nil {
							t.Fatal(err)
						}
					}
					late("after the fence")
					b.mustDelete(group)
					late("after the deletion")
					b.wantEpochs(group)
					second := map[int32]string{}
					if when == "after a second life began" {
						b.mustSet(group, 1, "second life")
						second[1] = "second life"
					}
					late("after a second life began")
					check := func(r *replica) {
						t.Helper()
						for epoch := range int32(3) {
							r.want(group, epoch, second[epoch])
						}
					}
					check(b)
					if _, err := b.Repair(b.ctx(group), p); err != nil {
						t.Fatal(err)
					}
					check(b)
					w.annex.Compact(p, false)
					c := w.replica("c") // reads what compaction has left
					check(c)
					c.own(group)
					check(c)
				})
			})
		}
	}
}

// TestOwnDelayedSetIsSettled: a Set whose caller has given up is in front of a later Delete, wherever it hangs.
func TestOwnDelayedSetIsSettled(t *testing.T) {
	const group = "g"
	p := eventlog.Partition(group, partitions)
	for _, hang := range []string{"adoption", "append", "acknowledgement"} {
		t.Run(hang, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a := w.replica("a")
				a.own(group)
				if hang != "adoption" {
					a.mustSet(group, 0, "first")
				}
				if hang == "acknowledgement" {
					w.annex.HoldAcks(p)
				} else {
					w.annex.HoldAppends(p)
				}
				ctx, cancel := context.WithTimeout(a.ctx(group), time.Second)
				defer cancel()
				if _, err := wait(t, a.Set(ctx, group, 1, described("given up"))); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("a Set that hangs: %v", err)
				}
				deleted := a.Delete(a.ctx(group), group)
				time.Sleep(time.Second) // of the bubble: everybody has come as far as they can
				w.annex.ReleaseAppends(p)
				w.annex.ReleaseAcks(p)
				if _, err := wait(t, deleted); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				a.wantEpochs(group)
				a.mustSet(group, 1, "second life")
				a.want(group, 1, "second life")
			})
		})
	}
}

// TestSequencesNeverBeginAgain: after an append without an outcome the claim is renewed, and the copy that the network has is refused.
func TestSequencesNeverBeginAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.replica("a")
		a.own("g")
		p := eventlog.Partition("g", partitions)
		a.mustSet("g", 0, "first")
		before, _ := a.held(p)
		w.annex.DropAppend(p)
		if err := a.set("g", 0, "lost"); err == nil || err.Error() != textUnknown || plugin.IsPermanent(err) {
			t.Fatalf("a write without an outcome: %v", err)
		}
		a.mustSet("g", 0, "second")
		after, _ := a.held(p)
		if after.Claim.ProducerEpoch <= before.Claim.ProducerEpoch {
			t.Errorf("the claim is %+v, and was %+v", after.Claim, before.Claim)
		}
		if w.annex.DeliverLate(p) {
			t.Error("the lost write is accepted after the next one")
		}
		a.want("g", 0, "second")
		// An ownership record without an outcome is the same.
		w.annex.LoseAck(p)
		after.Renew()
		synctest.Wait()
		if err := a.set("g", 0, "third"); err == nil || plugin.IsPermanent(err) {
			t.Fatalf("an adoption without an outcome: %v", err)
		}
		a.mustSet("g", 0, "fourth")
		a.want("g", 0, "fourth")
	})
}

// TestRenewedClaimIsAdoptedAnew, between two writes and not in the middle of what is queued.
func TestRenewedClaimIsAdoptedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.replica("a")
		a.own("g")
		p := eventlog.Partition("g", partitions)
		a.mustSet("g", 0, "first")
		w.annex.HoldAcks(p)
		queued := a.Set(a.ctx("g"), "g", 1, described("queued"))
		synctest.Wait()
		h, _ := a.held(p)
		h.Renew()
		synctest.Wait()
		behind := a.Set(a.ctx("g"), "g", 1, described("behind it"))
		synctest.Wait()
		w.annex.ReleaseAcks(p)
		for _, f := range []*plugin.Future[plugin.Void]{queued, behind} {
			if _, err := wait(t, f); err != nil {
				t.Fatal(err)
			}
		}
		a.want("g", 1, "behind it")
		a.mustSet("g", 2, "later")
		entries := w.annex.Entries(p)
		now, _ := a.held(p)
		if last := entries[len(entries)-1]; last.ProducerEpoch != now.Claim.ProducerEpoch {
			t.Errorf("written under epoch %d, the claim has %d", last.ProducerEpoch, now.Claim.ProducerEpoch)
		}
	})
}

// TestNothingIsWrittenAfterTheTenure: also where the next tenure of the same replica has begun.
func TestNothingIsWrittenAfterTheTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.replica("a")
		a.own("g")
		former := a.ctx("g")
		p := eventlog.Partition("g", partitions)
		a.lose(p)
		if err := a.set("g", 0, "x"); !errors.Is(err, shard.ErrNotOwner) {
			t.Errorf("a Set without a tenure: %v", err)
		}
		if _, err := wait(t, a.Set(context.Background(), "g", 0, described("x"))); err == nil || err.Error() != textNotOwner {
			t.Errorf("a Set of a partition that is not served: %v", err)
		}
		a.own("g")
		for _, f := range []*plugin.Future[plugin.Void]{a.Set(former, "g", 0, described("x")), a.Delete(former, "g")} {
			if _, err := wait(t, f); !errors.Is(err, shard.ErrNotOwner) {
				t.Errorf("a call of the former tenure: %v", err)
			}
		}
		a.mustSet("g", 0, "stays")
		if err := a.space.Append(former, "g", []topic.Record{{Key: []byte("k")}}, func(error) {}); !errors.Is(err, shard.ErrNotOwner) {
			t.Errorf("an append of the former tenure: %v", err)
		}
		if err := a.space.Settle(former, "g"); !errors.Is(err, shard.ErrNotOwner) {
			t.Errorf("a settling of the former tenure: %v", err)
		}
		// One that waits for its turn when the tenure ends.
		w.annex.HoldAppends(p)
		hangs := a.Delete(a.ctx("g"), "g")
		synctest.Wait()
		waits := a.Set(a.ctx("g"), "g", 1, described("x"))
		synctest.Wait()
		a.own("g")
		w.annex.ReleaseAppends(p)
		for _, f := range []*plugin.Future[plugin.Void]{hangs, waits} {
			if _, err := wait(t, f); err == nil || plugin.IsPermanent(err) {
				t.Errorf("a call whose tenure ended: %v", err)
			}
		}
		synctest.Wait()
		a.want("g", 0, "stays")
		a.wantEpochs("g", 0)
	})
}

// TestWhatIsQueuedEndsWithTheTenure: where the cluster can't refuse it, nothing else would stop it.
func TestWhatIsQueuedEndsWithTheTenure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.replica("a")
		a.own("g")
		p := eventlog.Partition("g", partitions)
		a.mustSet("g", 0, "first")
		w.annex.HoldAppends(p)
		queued := a.Set(a.ctx("g"), "g", 1, described("queued"))
		synctest.Wait()
		a.lose(p)
		if _, err := wait(t, queued); !errors.Is(err, shard.ErrNotOwner) && (err == nil || plugin.IsPermanent(err)) {
			t.Errorf("what was queued: %v", err)
		}
		synctest.Wait()
		w.annex.ReleaseAppends(p)
		synctest.Wait()
		a.wantEpochs("g", 0)
		if n := a.space.backlog.Load(); n != 0 {
			t.Errorf("%d bytes are still counted", n)
		}
	})
}

// TestBacklogIsBounded: a topic that does not answer costs no more memory than allowed.
func TestBacklogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.replica("a")
		a.space.cfg.BacklogBytesMax = 300
		a.ownAll()
		a.mustSet("g", 0, "first")
		p := eventlog.Partition("g", partitions)
		w.annex.HoldAppends(p)
		ctx, cancel := context.WithTimeout(a.ctx("g"), time.Second)
		defer cancel()
		var busy, gaveUp int
		for range 20 {
			_, err := wait(t, a.Set(ctx, "g", 0, described("again")))
			switch {
			case err != nil && err.Error() == textBusy && !plugin.IsPermanent(err):
				busy++
			case errors.Is(err, context.DeadlineExceeded):
				gaveUp++
				ctx, cancel = context.WithTimeout(a.ctx("g"), time.Second)
				defer cancel()
			default:
				t.Fatalf("a Set that can't be written: %v", err)
			}
		}
		if busy == 0 || gaveUp == 0 || gaveUp > 5 {
			t.Errorf("%d were refused, %d waited", busy, gaveUp)
		}
		w.annex.ReleaseAppends(p)
		synctest.Wait()
		a.mustSet("g", 0, "last")
		if n := a.space.backlog.Load(); n != 0 {
			t.Errorf("%d bytes are still counted", n)
		}
	})
}

func TestTooLargeIsRefusedForGood(t *testing.T) {
	w := newWorld(t)
	a := w.replica("a")
	a.own("g")
	var noise strings.Builder // does not compress
	for x := uint64(1); noise.Len() < 2_000_000; {
		x = x*6364136223846793005 + 1442695040888963407
		noise.WriteRune(rune(0x4e00 + x>>48%20000))
	}
	err := a.set("g", 0, noise.String())
	if !plugin.IsPermanent(err) || !strings.Contains(err.Error(), "bytes compressed, more than the 1048") ||
		!strings.Contains(err.Error(), "topic __streams_groups-topologies: raise max.message.bytes") {
		t.Errorf("too large: %.300v", err)
	}
	a.wantEpochs("g")
	small := w.replica("b", func(c *topic.Config) { c.DescriptionBytesMax = 50 })
	small.own("g")
	if err := small.set("g", 0, noise.String()[:300]); !plugin.IsPermanent(err) || !strings.Contains(err.Error(), "more than the 50 ") ||
		!strings.Contains(err.Error(), "description.bytes.max") {
		t.Errorf("too large by the setting: %v", err)
	}
}

// TestTopicThatIsDeletedIsMadeAnew: what was stored is gone, what is stored later is there.
func TestTopicThatIsDeletedIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		next := eventlog.NewFake(eventlog.FakeOptions{Topic: "again", Partitions: partitions, IdleInterval: -1})
		defer next.Close()
		opened := 0
		a := newReplica(t, "a", w.log, func(context.Context) (Topic, error) {
			opened++
			switch opened {
			case 1:
				return Topic{w.annex, 24 * time.Hour}, nil
			case 2:
				return Topic{}, errors.New("the cluster is ill")
			}
			return Topic{next, 24 * time.Hour}, nil
		}, t.TempDir())
		a.own("g")
		a.mustSet("g", 0, "first")
		synctest.Wait()
		if err := a.space.Ready(); err != nil {
			t.Error(err)
		}
		w.annex.DeleteTopic(eventlog.ErrTopicGone)
		synctest.Wait()
		if err := a.set("g", 1, "x"); err == nil || err.Error() != textGone || plugin.IsPermanent(err) {
			t.Errorf("a Set without a topic: %v", err)
		}
		if _, err := wait(t, a.Get(context.Background(), "g", 0)); err == nil || err.Error() != textGone {
			t.Errorf("a Get without a topic: %v", err)
		}
		if err := a.space.Ready(); err != nil {
			t.Errorf("a replica that was ready is so no more: %v", err)
		}
		time.Sleep(3 * reopenPause) // of the bubble
		a.want("g", 0, "")
		a.mustSet("g", 1, "second")
		a.want("g", 1, "second")
		a.wantEpochs("g", 1)
	})
}

// TestARecordOfANewerVersionKeepsNobodyFromBeingReady: an older replica that is started again before a topic that a newer one has written into is ready once
// the rest is read, and not before.
func TestARecordOfANewerVersionKeepsNobodyFromBeingReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.replica("a")
		a.ownAll()
		a.mustSet("g", 0, "first")
		p := eventlog.Partition("g", partitions)
		w.annex.Inject(p, eventlog.Entry{Key: []byte("\x7d\x00"), Value: []byte(`{"format":2}`), ProducerID: 7})
		other := (p + 1) % partitions
		w.annex.HoldTail(other)
		b := w.replica("b")
		synctest.Wait()
		if st := b.space.Stats(); st.Refused != 1 {
			t.Errorf("%d partitions are refused, want 1", st.Refused)
		}
		if err := b.space.Ready(); err == nil || err.Error() != "reading, 1 of 4 partitions are not at their end" {
			t.Errorf("while another partition is read: %v", err)
		}
		w.annex.ReleaseTail(other)
		synctest.Wait()
		if err := b.space.Ready(); err != nil {
			t.Errorf("when the rest is read: %v", err)
		}
	})
}
