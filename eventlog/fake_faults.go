package eventlog

import (
	"fmt"
	"slices"
	"time"
)

// fakeFaults are the faults in force for one partition.
type fakeFaults struct {
	holdAppends, holdAcks, holdClaims, holdTail bool
	forgetful                                   bool
	unfenced, keepsFormer                       bool
	denied                                      error

	appends     []fakeFault // for the next appends, in order
	claimErrors []error
	endErrors   []error
	late        *fakeLate
	restarts    int    // counts leader changes and cuts: followers check their position again
	poke        uint64 // counts Poke
}

type fakeFault struct {
	kind fakeFaultKind
	err  error
}

type fakeFaultKind int

const (
	fakeNone fakeFaultKind = iota
	fakeFail
	fakeDrop
	fakeLoseAck
)

// fakeLate is a batch that the network still has.
type fakeLate struct {
	claim   Claim
	entries []Entry
}

func (t *fakeFaults) next() fakeFault {
	if len(t.appends) == 0 {
		return fakeFault{}
	}
	f := t.appends[0]
	t.appends = t.appends[1:]
	return f
}

// at runs do with the partition, under the lock.
func (f *Fake) at(p int32, do func(part *fakePartition)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	part, err := f.part(p)
	if err != nil {
		panic(err) // a mistake of the test
	}
	do(part)
}

// HoldAppends keeps further appends of p (also those of Barrier and Release) out of the log until ReleaseAppends: the
// leader does not answer. Claims are not held.
func (f *Fake) HoldAppends(p int32) {
	f.at(p, func(part *fakePartition) { part.faults.holdAppends = true })
}

// ReleaseAppends ends HoldAppends: what was held is appended and acknowledged in order, or fenced.
func (f *Fake) ReleaseAppends(p int32) {
	f.at(p, func(part *fakePartition) {
		part.faults.holdAppends = false
		f.stepAll(part)
		f.notify()
	})
}

// HoldAcks lets the next append of each writer of p into the log, where followers see it, but keeps its
// acknowledgement; later ones wait for it (one batch is under way per partition).
func (f *Fake) HoldAcks(p int32) {
	f.at(p, func(part *fakePartition) { part.faults.holdAcks = true })
}

// ReleaseAcks ends HoldAcks.
func (f *Fake) ReleaseAcks(p int32) {
	f.at(p, func(part *fakePartition) {
		part.faults.holdAcks = false
		for _, w := range slices.Clone(part.writers) {
			if w.under != nil {
				w.acknowledge()
			}
		}
		f.stepAll(part)
	})
}

// ReleaseAck acknowledges what is under way in p, and keeps holding: the append behind it enters the log and is held.
func (f *Fake) ReleaseAck(p int32) {
	f.at(p, func(part *fakePartition) {
		for _, w := range slices.Clone(part.writers) {
			if w.under != nil {
				w.acknowledge()
			}
			w.step()
		}
	})
}

func (f *Fake) stepAll(part *fakePartition) {
	for _, w := range slices.Clone(part.writers) {
		w.step()
	}
}

// FailAppend makes the next append of p fail with err; it is not in the log, and the writer is dead.
func (f *Fake) FailAppend(p int32, err error) {
	f.at(p, func(part *fakePartition) { part.faults.appends = append(part.faults.appends, fakeFault{fakeFail, err}) })
}

// LoseAck makes the next append of p fail with ErrOutcomeUnknown although it is in the log.
func (f *Fake) LoseAck(p int32) {
	f.at(p, func(part *fakePartition) {
		part.faults.appends = append(part.faults.appends, fakeFault{kind: fakeLoseAck})
	})
}

// DropAppend makes the next append of p fail with ErrOutcomeUnknown; it is not in the log, but DeliverLate can still
// bring it there.
func (f *Fake) DropAppend(p int32) {
	f.at(p, func(part *fakePartition) {
		part.faults.appends = append(part.faults.appends, fakeFault{kind: fakeDrop})
	})
}

// DeliverLate brings the batch that DropAppend took to the leader, and says whether it was accepted: it is not once a
// later claim of the same producer id is in the log.
func (f *Fake) DeliverLate(p int32) (accepted bool) {
	f.at(p, func(part *fakePartition) {
		late := part.faults.late
		part.faults.late = nil
		if late != nil && part.seen[late.claim.ProducerID] <= late.claim.ProducerEpoch {
			part.write(f, late.entries)
			accepted = true
		}
	})
	return accepted
}

// Unfence makes the leader of p accept appends of older epochs, as no Kafka broker does: what the fence prevents can then be seen.
func (f *Fake) Unfence(p int32) {
	f.at(p, func(part *fakePartition) { part.faults.unfenced = true })
}

// KeepFormer makes p a partition of a cluster that does not let a producer id be fenced that it has forgotten: it asks its coordinator for every
// producer, say. A claimer then waits for a lease (FreshProducer).
func (f *Fake) KeepFormer(p int32) {
	f.at(p, func(part *fakePartition) { part.faults.keepsFormer = true })
}

// FailClaim makes the next Claim of p fail with err; nothing is written.
func (f *Fake) FailClaim(p int32, err error) {
	f.at(p, func(part *fakePartition) { part.faults.claimErrors = append(part.faults.claimErrors, err) })
}

// HoldClaims makes Claim of p wait until ReleaseClaims.
func (f *Fake) HoldClaims(p int32) {
	f.at(p, func(part *fakePartition) { part.faults.holdClaims = true })
}

// ReleaseClaims ends HoldClaims.
func (f *Fake) ReleaseClaims(p int32) {
	f.at(p, func(part *fakePartition) {
		part.faults.holdClaims = false
		f.notify()
	})
}

// FailEnd makes the next End of p fail with err.
func (f *Fake) FailEnd(p int32, err error) {
	f.at(p, func(part *fakePartition) { part.faults.endErrors = append(part.faults.endErrors, err) })
}

// HoldTail stops the reading of p: followers get nothing of it, nor are they told of its end, until ReleaseTail. End
// still tells the true one.
func (f *Fake) HoldTail(p int32) {
	f.at(p, func(part *fakePartition) { part.faults.holdTail = true })
}

// ReleaseTail ends HoldTail.
func (f *Fake) ReleaseTail(p int32) {
	f.at(p, func(part *fakePartition) {
		part.faults.holdTail = false
		f.notify()
	})
}

// Deny does not let p be read, and says why, until it is called with nil.
func (f *Fake) Deny(p int32, why error) {
	f.at(p, func(part *fakePartition) {
		part.faults.denied = why
		f.notify()
	})
}

// Unreached implements Log: a Fake has no brokers.
func (f *Fake) Unreached(int32) (time.Duration, error) { return 0, nil }

// Unclaimable implements Log.
func (f *Fake) Unclaimable(int32) (time.Duration, error) { return 0, nil }

// Denied implements Log.
func (f *Fake) Denied(p int32) (err error) {
	f.at(p, func(part *fakePartition) { err = part.faults.denied })
	return err
}

// Poke tells followers that stand at the end of p so again.
func (f *Fake) Poke(p int32) {
	f.at(p, func(part *fakePartition) {
		part.faults.poke++
		f.notify()
	})
}

// Steal claims p for another process, also while claims are held, and returns its writer.
func (f *Fake) Steal(p int32, o Ownership) Writer {
	var w *fakeWriter
	f.at(p, func(part *fakePartition) {
		w = &fakeWriter{f: f, part: part, owner: o}
		w.take()
		part.writers = append(part.writers, w)
	})
	return w
}

// Renew makes the writer with that claim renew itself, as one does by itself every few hours: the next producer epoch
// and a new generation. A writer that was fenced dies of it, as the real one does. It panics if the writer is dead or
// waits for an acknowledgement.
func (f *Fake) Renew(w Writer) Claim {
	f.mu.Lock()
	defer f.mu.Unlock()
	fw := w.(*fakeWriter)
	if fw.err != nil || fw.under != nil {
		panic(fmt.Sprintf("a writer can't be renewed while it is dead (%v) or a batch is under way", fw.err))
	}
	if fw.current.ProducerID != fw.part.producer || fw.current.ProducerEpoch != fw.part.issued {
		fw.die(ErrFenced)
		return fw.current
	}
	fw.take()
	return fw.current
}

// ExpireProducer makes the next claim of p get a new producer id with epoch 0, as after transactional.id.expiration.ms:
// the broker then refuses of the predecessor's only what the claimer has it refuse (see KeepFormer).
func (f *Fake) ExpireProducer(p int32) {
	f.at(p, (*fakePartition).expire)
}

// expire gives the partition a producer id that was never given.
func (part *fakePartition) expire() {
	part.ids++
	part.producer, part.issued = firstProducer(part.p)+part.ids*1000000, -1
}

// ReturnProducer makes the next claim of p get the producer id of the first one again, as a transaction coordinator does that has lost what it gave since.
// The partition's leader has forgotten what it knew of that id.
func (f *Fake) ReturnProducer(p int32) {
	f.at(p, func(part *fakePartition) {
		part.producer, part.issued = firstProducer(p), part.issued+1000
		delete(part.seen, part.producer)
	})
}

func firstProducer(p int32) int64 { return 1000 + int64(p) }

// Inject appends entries to p as one batch, as a writer of another kind would: transactional records, control records,
// records of an old claim. Offsets are set here; it returns the first.
func (f *Fake) Inject(p int32, entries ...Entry) (first int64) {
	f.at(p, func(part *fakePartition) { first = part.write(f, slices.Clone(entries)) })
	return first
}

// Entries returns what p holds now, compacted or not.
func (f *Fake) Entries(p int32) (entries []Entry) {
	f.at(p, func(part *fakePartition) {
		for _, b := range part.batches {
			entries = append(entries, b.entries...)
		}
	})
	return entries
}

// MoveLeader starts a new leader epoch of p.
func (f *Fake) MoveLeader(p int32) {
	f.at(p, func(part *fakePartition) { f.newEpoch(part) })
}

func (f *Fake) newEpoch(part *fakePartition) {
	part.epoch++
	part.epochs = append(part.epochs, fakeEpoch{part.epoch, part.end})
	part.faults.restarts++
	f.notify()
}

// Truncate cuts p off at offset, as an unclean leader election does, and starts a new leader epoch, which it returns. The new leader knows of
// producers what is left in the log: a writer that lost a batch is refused at its next one, with an outcome that is unknown.
func (f *Fake) Truncate(p int32, offset int64) (epoch int32) {
	f.at(p, func(part *fakePartition) {
		part.batches = slices.DeleteFunc(part.batches, func(b fakeBatch) bool { return b.first >= offset })
		if n := len(part.batches); n > 0 && part.batches[n-1].last >= offset {
			b := &part.batches[n-1]
			b.last = offset - 1
			b.entries = slices.DeleteFunc(slices.Clone(b.entries), func(e Entry) bool { return e.Offset >= offset })
		}
		part.end = min(part.end, offset)
		part.epochs = slices.DeleteFunc(part.epochs, func(e fakeEpoch) bool { return e.start > offset })
		part.begun = slices.DeleteFunc(part.begun, func(b fakeBegun) bool { return b.offset >= offset })
		part.seen = map[int64]int16{}
		for _, b := range part.begun {
			part.seen[b.id] = max(part.seen[b.id], b.epoch)
		}
		part.faults.late = nil
		for _, w := range slices.Clone(part.writers) {
			if w.last >= offset && !part.faults.forgetful {
				w.lost = true
			}
			if w.under != nil && w.under.offset >= offset {
				w.die(ErrOutcomeUnknown)
			}
		}
		f.newEpoch(part)
		epoch = part.epoch
	})
	return epoch
}

// Forget makes leaders let a writer go on that lost a batch with Truncate, as no Kafka broker does: what its refusal prevents can then be seen.
func (f *Fake) Forget() {
	for p := range f.options.Partitions {
		f.at(p, func(part *fakePartition) { part.faults.forgetful = true })
	}
}

// Replace deletes the topic and makes it again: empty, with another id. What is under way ends, and every Follow with ErrTopicGone; whoever opens
// the topic anew finds the new one.
func (f *Fake) Replace() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.topics++
	f.id.TopicID[0]++
	for _, part := range f.parts {
		for _, w := range slices.Clone(part.writers) {
			w.die(ErrOutcomeUnknown)
		}
		part.batches, part.begun, part.seen = nil, nil, map[int64]int16{}
		part.end, part.logStart = 0, 0
		part.epoch, part.epochs = 0, []fakeEpoch{{0, 0}}
		part.faults.late = nil
		part.faults.restarts++
	}
	f.notify()
}

// DeleteBefore deletes what lies before offset, as DeleteRecords does.
func (f *Fake) DeleteBefore(p int32, offset int64) {
	f.at(p, func(part *fakePartition) {
		part.batches = slices.DeleteFunc(part.batches, func(b fakeBatch) bool { return b.last < offset })
		part.logStart = max(part.logStart, min(offset, part.end))
		part.faults.restarts++
		f.notify()
	})
}

// DeleteTopic makes every Follow end with err (a clear one if nil), as a topic does that was deleted or recreated.
func (f *Fake) DeleteTopic(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = fmt.Errorf("log topic %s was deleted and made again", f.id.Topic)
	}
	f.gone = err
	f.notify()
}
