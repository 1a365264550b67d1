package eventlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func plainEntry(offset, pid int64, epoch int16) Entry {
	return Entry{Offset: offset, ProducerID: pid, ProducerEpoch: epoch}
}

func txnEntry(offset, pid, generation int64) Entry {
	return Entry{Offset: offset, ProducerID: pid, Transactional: true,
		Headers: []Header{{"other", []byte{1}}, {HeaderGeneration, binary.BigEndian.AppendUint64(nil, uint64(generation))}}}
}

// fenceStep is an entry and whether it is void: a plain or transactional one, or an ownership record with its Claim.
type fenceStep struct {
	what  string
	entry Entry
	claim *int64
	void  bool
}

func claimStep(what string, offset, pid int64, epoch int16, claim int64, void bool) fenceStep {
	return fenceStep{what, plainEntry(offset, pid, epoch), &claim, void}
}

func step(what string, e Entry, void bool) fenceStep {
	return fenceStep{what: what, entry: e, void: void}
}

func (f *Fence) judge(s fenceStep) (void bool) {
	if s.claim == nil {
		return f.Void(s.entry)
	}
	return !f.Observe(s.entry, &Ownership{ProducerID: s.entry.ProducerID, ProducerEpoch: s.entry.ProducerEpoch, Claim: *s.claim})
}

func TestFence(t *testing.T) {
	control := plainEntry(11, 99, 0)
	control.Transactional, control.Control = true, ControlCommit
	noHeader := txnEntry(11, 99, 10)
	noHeader.Headers = noHeader.Headers[:1]
	shortHeader := txnEntry(12, 99, 10)
	shortHeader.Headers = []Header{{HeaderGeneration, []byte{10}}}

	for name, steps := range map[string][]fenceStep{
		"before any claim everything counts": {
			step("no producer id", plainEntry(0, -1, -1), false),
			step("one producer", plainEntry(1, 5, 0), false),
			step("another", plainEntry(2, 6, 3), false),
			step("a client's", txnEntry(3, 99, 0), false),
		},
		"only the claim's producer counts": {
			claimStep("claim", 10, 5, 1, -1, false),
			step("owner", plainEntry(11, 5, 1), false),
			step("older epoch", plainEntry(12, 5, 0), true),
			step("newer epoch, but its claim can't have been there", plainEntry(13, 5, 2), true),
			step("another producer", plainEntry(14, 6, 1), true),
			step("no producer id", plainEntry(15, -1, -1), true),
			step("owner", plainEntry(16, 5, 1), false),
			claimStep("next claim", 17, 5, 2, -1, false),
			step("the former owner", plainEntry(18, 5, 1), true),
			step("the new one", plainEntry(19, 5, 2), false),
		},
		"a claim with another producer id": {
			claimStep("claim", 10, 5, 32766, -1, false),
			claimStep("claim after the epochs were used up", 11, 7, 0, -1, false),
			step("the former owner, whom the cluster can't refuse", plainEntry(12, 5, 32766), true),
			claimStep("its repeat", 13, 5, 32766, 10, true),
			claimStep("its late new claim", 14, 5, 32767, -1, true),
			step("owner", plainEntry(15, 7, 0), false),
		},
		"repeats": {
			claimStep("claim", 10, 5, 1, -1, false),
			claimStep("repeat", 11, 5, 1, 10, false),
			step("owner", plainEntry(12, 5, 1), false),
			claimStep("next claim", 13, 5, 2, -1, false),
			claimStep("repeat of the fenced one", 14, 5, 1, 10, true),
			claimStep("the right epoch, the wrong claim", 15, 5, 2, 10, true),
			claimStep("the right claim, the wrong epoch", 16, 5, 1, 13, true),
			claimStep("a claim that was never there", 17, 5, 2, 16, true),
			claimStep("a claim in the future", 18, 5, 2, 18, true),
			claimStep("repeat", 19, 5, 2, 13, false),
		},
		"a forgotten transactional id starts again": {
			claimStep("claim", 10, 5, 40, -1, false),
			claimStep("the same producer id, from epoch 0", 11, 5, 0, -1, false),
			step("owner", plainEntry(12, 5, 0), false),
			step("former", plainEntry(13, 5, 40), true),
		},
		"transactional entries go by the generation": {
			step("before the claim", txnEntry(9, 99, 3), false),
			claimStep("claim", 10, 5, 1, -1, false),
			step("no header", noHeader, true),
			step("a header of another length", shortHeader, true),
			step("right", txnEntry(13, 99, 10), false),
			step("another client", txnEntry(14, 98, 10), false),
			step("older", txnEntry(15, 99, 3), true),
			step("newer", txnEntry(16, 99, 12), true),
			step("under the owner's producer id", txnEntry(17, 5, 12), true),
			claimStep("repeat", 18, 5, 1, 10, false),
			step("a repeat is no new generation", txnEntry(19, 99, 10), false),
			claimStep("next", 20, 5, 2, -1, false),
			step("now older", txnEntry(21, 99, 10), true),
			step("right", txnEntry(22, 99, 20), false),
		},
		"control records always count": {
			claimStep("claim", 10, 5, 1, -1, false),
			step("commit", control, false),
		},
		"forged ownership records": {
			{"transactional", Entry{Offset: 10, ProducerID: 5, ProducerEpoch: 1, Transactional: true}, new(int64), true},
			step("nothing was claimed", plainEntry(11, 8, 1), false),
		},
		"the first record seen is a repeat": {
			claimStep("repeat", 30, 5, 1, 10, false),
			step("owner", plainEntry(31, 5, 1), false),
			step("its generation", txnEntry(32, 99, 10), false),
			step("of a claim that this reader did not see", txnEntry(33, 99, 20), false),
			step("of one before", txnEntry(34, 99, 10), true),
		},
		"after a hole a later epoch is believed": {
			claimStep("claim", 10, 5, 1, -1, false),
			step("of a claim that compaction took", plainEntry(15, 5, 2), false),
			step("now the older one is void", plainEntry(16, 5, 1), true),
			step("of the claim seen last, which is no longer current", txnEntry(17, 99, 10), true),
			step("of one between", txnEntry(18, 99, 12), false),
			step("and the epoch stays", plainEntry(19, 5, 2), false),
			step("a still later one", plainEntry(20, 5, 3), false),
			claimStep("the repeat of the claim seen first", 21, 5, 1, 10, true),
			claimStep("the repeat of a later one", 22, 5, 3, 14, false),
			step("its owner", plainEntry(23, 5, 3), false),
			step("a repeat does not end the doubt", plainEntry(24, 5, 4), false),
			claimStep("a claim does", 25, 5, 5, -1, false),
			step("not seen", plainEntry(26, 5, 6), true),
			step("owner", plainEntry(27, 5, 5), false),
		},
		"after a hole an unknown producer is believed, a former one is not": {
			claimStep("claim", 10, 5, 1, -1, false),
			claimStep("claim", 11, 6, 0, -1, false),
			step("unknown", plainEntry(15, 7, 1), false),
			step("former", plainEntry(16, 5, 2), true),
			step("the claim seen last may still be the current one", plainEntry(17, 6, 0), false),
			step("its generation, too", txnEntry(18, 99, 11), false),
			step("no producer id", plainEntry(19, -1, -1), true),
			step("the unknown one, of a lower epoch", plainEntry(20, 7, 0), true),
			step("of a higher epoch", plainEntry(21, 7, 2), false),
			step("of the epoch before", plainEntry(22, 7, 1), true),
			claimStep("a repeat by another", 23, 8, 0, 14, false),
			step("none of them is void", plainEntry(24, 6, 0), false),
			step("none of them is void", plainEntry(25, 7, 2), false),
			claimStep("a claim ends the doubt", 26, 9, 0, -1, false),
			step("now former", plainEntry(27, 6, 0), true),
			step("now former", plainEntry(28, 7, 2), true),
			claimStep("now former", 29, 8, 0, -1, true),
		},
		"after a hole a later generation is believed": {
			claimStep("claim", 10, 5, 1, -1, false),
			step("later", txnEntry(15, 99, 13), false),
			step("the epoch that goes with it", plainEntry(16, 5, 2), false),
			step("still that generation", txnEntry(17, 99, 13), false),
			step("older", txnEntry(18, 99, 10), true),
			step("not written yet", txnEntry(19, 99, 19), true),
			claimStep("its repeat", 20, 5, 2, 13, false),
			step("still", txnEntry(21, 99, 13), false),
		},
		"after a hole a generation may become known by its repeat": {
			claimStep("claim", 10, 5, 1, -1, false),
			step("later", txnEntry(15, 99, 13), false),
			claimStep("its repeat, the epoch was not seen", 16, 5, 2, 13, false),
			step("owner", plainEntry(17, 5, 2), false),
			step("former", plainEntry(18, 5, 1), true),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var f Fence
			for _, s := range steps {
				if got := f.judge(s); got != s.void {
					t.Errorf("%d %s: void %v", s.entry.Offset, s.what, got)
				}
				// a fence that was written and read goes on as the one that was not
				again, err := DecodeFence(f.AppendTo(nil))
				if err != nil || !reflect.DeepEqual(again, f) {
					t.Fatalf("%d: read %+v, %v; was %+v", s.entry.Offset, again, err, f)
				}
			}
		})
	}
}

func TestFenceRefusesARecordThatNamesAnotherProducer(t *testing.T) {
	for _, e := range []Entry{plainEntry(1, -1, -1), plainEntry(1, 6, 1), plainEntry(1, 5, 2)} {
		var f Fence
		if f.Observe(e, &Ownership{ProducerID: 5, ProducerEpoch: 1, Claim: -1}) {
			t.Errorf("%+v counts", e)
		}
		if _, claimed := f.Generation(); claimed {
			t.Errorf("%+v took the fence", e)
		}
	}
}

func TestFenceForgetsOldProducers(t *testing.T) {
	var f Fence
	for i := range int64(20) {
		if !f.Observe(plainEntry(i, 100+i, 0), &Ownership{ProducerID: 100 + i, Claim: -1}) {
			t.Fatalf("claim %d is void", i)
		}
	}
	if len(f.former) != formerMax || f.former[formerMax-1] != 118 {
		t.Errorf("remembers %v", f.former)
	}
	snapshot := f
	f.Observe(plainEntry(20, 200, 0), &Ownership{ProducerID: 200, Claim: -1})
	if snapshot.former[formerMax-1] != 118 {
		t.Error("a copy changed with the original")
	}
}

func TestDecodeFenceRefusesDamage(t *testing.T) {
	var f Fence
	f.Observe(plainEntry(1, 5, 1), &Ownership{ProducerID: 5, ProducerEpoch: 1, Claim: -1})
	b := f.AppendTo(nil)
	for _, bad := range [][]byte{nil, b[:len(b)-1], append(b[:len(b):len(b)], 0), append([]byte{0xff}, b[1:]...), append(b[:len(b)-1:len(b)-1], make([]byte, 10*formerMax)...), append(b[:len(b)-2:len(b)-2], formerMax+1, 0)} {
		if _, err := DecodeFence(bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

// history is a log as claims and writers make it. The cluster refuses older epochs of a producer id once a newer one
// is in the log, and nobody else.
type history struct {
	steps      []fenceStep // void: what a reader of all of them must say
	pid        int64
	epoch      int16
	generation int64
	current    int64           // index of the ownership record that the log ends with
	retired    []fenceStep     // a writer of each former claim
	newest     map[int64]int16 // by producer id
}

// String prints a step shortly: "7 claim 5.1 void".
func (s fenceStep) String() string {
	kind := "plain"
	if s.claim != nil && *s.claim < 0 {
		kind = "claim"
	} else if s.claim != nil {
		kind = fmt.Sprintf("repeat of %d by", *s.claim)
	} else if g, ok := entryGeneration(s.entry); ok {
		kind = fmt.Sprintf("generation %d by", g)
	}
	return fmt.Sprintf("%d %s %d.%d void=%v", s.entry.Offset, kind, s.entry.ProducerID, s.entry.ProducerEpoch, s.void)
}

func genHistory(t *rapid.T) *history {
	h := &history{pid: 5, epoch: -1, generation: -1, newest: map[int64]int16{}}
	add := func(e Entry, claim *int64, void bool) {
		e.Offset = int64(len(h.steps))
		h.steps = append(h.steps, fenceStep{"", e, claim, void})
	}
	writer := func(pid int64, epoch int16, generation int64) fenceStep {
		return fenceStep{entry: plainEntry(0, pid, epoch), claim: &generation}
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		switch action := rapid.IntRange(0, 9).Draw(t, "action"); {
		case action <= 1 || h.generation < 0: // a claim
			if h.generation >= 0 {
				h.retired = append(h.retired, writer(h.pid, h.epoch, h.generation))
			}
			if h.generation >= 0 && rapid.IntRange(0, 3).Draw(t, "new producer") == 0 {
				h.pid, h.epoch = h.pid+1, -1
			}
			h.epoch++
			h.newest[h.pid] = h.epoch
			h.generation = int64(len(h.steps))
			claim := int64(-1)
			add(plainEntry(0, h.pid, h.epoch), &claim, false)
		case action <= 5:
			add(plainEntry(0, h.pid, h.epoch), nil, false)
		case action == 6: // a repeat
			claim := h.generation
			add(plainEntry(0, h.pid, h.epoch), &claim, false)
		case action == 7: // a client's, of this or of a former claim
			g := h.generation
			if n := len(h.retired); n > 0 && rapid.Bool().Draw(t, "late") {
				g = *h.retired[rapid.IntRange(0, n-1).Draw(t, "whose")].claim
			}
			add(txnEntry(0, 99, g), nil, g != h.generation)
		default: // a former owner that the cluster can't refuse
			if len(h.retired) == 0 {
				continue
			}
			w := h.retired[rapid.IntRange(0, len(h.retired)-1).Draw(t, "who")]
			if h.newest[w.entry.ProducerID] > w.entry.ProducerEpoch {
				continue
			}
			if rapid.Bool().Draw(t, "repeats its ownership record") {
				add(w.entry, w.claim, true)
			} else {
				add(w.entry, nil, true)
			}
		}
	}
	return h
}

// TestFenceOfAWholeLogIsExact: a reader that sees every entry voids what is void, and nothing else.
func TestFenceOfAWholeLogIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f Fence
		for _, s := range genHistory(t).steps {
			if got := f.judge(s); got != s.void {
				t.Fatalf("%+v: void %v", s, got)
			}
		}
	})
}

// TestFenceNeverVoidsWhatCounts: whatever compaction took away, before the reader came by or between two of its visits,
// no entry that counted when it was written is void.
func TestFenceNeverVoidsWhatCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := genHistory(t)
		var f Fence
		// the log is cleaned up to here when the reader stands there; entries after that were not cleaned when it reads them
		cleaned := rapid.IntRange(0, len(h.steps)).Draw(t, "cleaned")
		resumed := rapid.IntRange(0, cleaned).Draw(t, "resumed")
		last := -1 // the ownership record that cleaning keeps: the last valid one (void ones are repaired)
		for i, s := range h.steps[:cleaned] {
			if s.claim != nil && !s.void {
				last = i
			}
		}
		var read []fenceStep
		for i, s := range h.steps {
			if i >= resumed && i < cleaned && i != last && (s.claim != nil || rapid.Bool().Draw(t, "taken")) {
				continue
			}
			read = append(read, s)
			if got := f.judge(s); got && !s.void {
				t.Fatalf("%d is void (resumed at %d, cleaned up to %d)\n%+v\nread: %v", i, resumed, cleaned, f, read)
			} else if i > cleaned && i > last && last >= resumed && f.claimedSince(cleaned) && got != s.void {
				t.Fatalf("%d after the cleaned part: void %v", i, got)
			}
		}
	})
}

// claimedSince says that the fence is exact and based on a record after offset.
func (f *Fence) claimedSince(offset int) bool {
	return f.claimed && !f.hole && f.generation >= int64(offset)
}
