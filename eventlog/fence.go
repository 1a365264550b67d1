package eventlog

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// HeaderGeneration is the record header that carries the generation of the claim under which a client's transactional
// record was written: 8 bytes, big endian.
const HeaderGeneration = "sk-gen"

// Fence tells which entries of one partition count (design D4): those that the cluster would have refused, had it known
// of the claim before them, are void. Show it every entry once, in the order of the log: ownership records to Observe, all others to Void. The zero
// Fence has seen nothing. It is a value: a copy is a snapshot.
//
// While no ownership record was seen, everything counts. Then
//
//   - a plain entry counts if it comes from the producer id and epoch of the current claim;
//   - a transactional one, whose producer is a client, if its generation header is that of the current claim;
//   - a control record always: it settles what counts, and nothing else.
//
// Compaction removes ownership records, too: a claim's own record goes when it is written again, or when a later claim is
// there. A reader that comes by later, or that resumes in front of it, meets entries of a claim that it never saw, and
// must not void them. So the Fence watches for holes in the offsets. While there is none since the last ownership record
// that was seen, no other can have been there, and the rules above are exact. After a hole, an entry that can only be
// from a later claim is believed: a higher epoch of the same producer id, a producer id never seen, a higher generation.
// What is wrongly believed that way was seen and repaired by the owner, further on in the log.
type Fence struct {
	claimed    bool
	pid        int64
	epoch      int16
	generation int64
	next       int64 // the offset after the last entry shown
	hole       bool  // offsets are missing since the last ownership record observed
	// newer: entries of a claim after generation were believed; loose: generation itself was, from a header, and which
	// producer it belongs to isn't known.
	newer, loose bool
	former       []int64 // producer ids of earlier claims, oldest first
}

// formerMax is how many producer ids of earlier claims a Fence remembers. A partition's producer id changes when 32,767
// epochs are used up or the transactional id expired; only writers of the last change or two can still be running.
const formerMax = 8

// Generation is the offset of the ownership record of the current claim; ok is false while none was seen.
func (f *Fence) Generation() (offset int64, ok bool) { return f.generation, f.claimed }

// Void says that e, which is no ownership record, does not count.
func (f *Fence) Void(e Entry) bool {
	f.show(e)
	switch {
	case e.Control != ControlNone || !f.claimed:
		return false
	case e.Transactional:
		return !f.currentGeneration(e)
	}
	return !f.currentProducer(e)
}

// Observe judges an ownership record, and makes it the current claim if it counts; otherwise the result is false. What
// counts is
//
//   - a new claim (o.Claim is -1), unless it comes from a producer id that an earlier claim has already replaced. A lower
//     epoch of the same producer id does count: a cluster that lets it in has forgotten the higher ones (the embedded
//     log gives an expired transactional id its old producer id again, from epoch 0);
//   - the current claim written again. That of an earlier claim does not: a fenced writer must not take the fence back.
//
// A record whose batch is not from the producer that it names counts never: it was copied or forged.
func (f *Fence) Observe(e Entry, o *Ownership) bool {
	f.show(e)
	if e.Transactional || e.ProducerID < 0 || e.ProducerID != o.ProducerID || e.ProducerEpoch != o.ProducerEpoch || o.Claim >= e.Offset {
		return false
	}
	if f.claimed && slices.Contains(f.former, e.ProducerID) {
		return false
	}
	generation := o.Claim
	if o.Claim < 0 {
		generation = e.Offset
	} else if f.claimed {
		same := e.ProducerID == f.pid && e.ProducerEpoch == f.epoch
		switch {
		case o.Claim < f.generation:
			return false
		case o.Claim == f.generation:
			if f.newer || !same && !f.loose {
				return false
			}
		case !f.hole: // the claim that it repeats would have been seen
			return false
		}
	}
	f.replaceProducer(e)
	f.claimed, f.generation = true, generation
	f.hole, f.newer, f.loose = false, false, false
	return true
}

// show notes that e was read.
func (f *Fence) show(e Entry) {
	if e.Offset > f.next {
		f.hole = true
	}
	f.next = e.Offset + 1
}

func (f *Fence) currentProducer(e Entry) bool {
	if e.ProducerID == f.pid && e.ProducerEpoch == f.epoch {
		return true
	}
	later := e.ProducerID == f.pid && e.ProducerEpoch > f.epoch ||
		e.ProducerID >= 0 && e.ProducerID != f.pid && !slices.Contains(f.former, e.ProducerID)
	if !f.hole || !later {
		return false
	}
	f.replaceProducer(e)
	f.newer, f.loose = !f.loose, false
	return true
}

func (f *Fence) currentGeneration(e Entry) bool {
	g, ok := entryGeneration(e)
	switch {
	case !ok || g >= e.Offset:
		return false
	case g == f.generation:
		return !f.newer
	case g < f.generation || !f.hole:
		return false
	}
	f.generation = g
	f.newer, f.loose = false, !f.newer
	return true
}

func entryGeneration(e Entry) (int64, bool) {
	for _, h := range e.Headers {
		if h.Key == HeaderGeneration && len(h.Value) == 8 {
			return int64(binary.BigEndian.Uint64(h.Value)), true
		}
	}
	return 0, false
}

func (f *Fence) replaceProducer(e Entry) {
	if f.claimed && f.pid != e.ProducerID {
		f.former = append(slices.Clone(f.former), f.pid) // cloned: copies of a Fence must not share it
		if n := len(f.former); n > formerMax {
			f.former = f.former[n-formerMax:]
		}
	}
	f.pid, f.epoch = e.ProducerID, e.ProducerEpoch
}

// The bytes of a Fence, for a projection to keep with the position they belong to:
//
//	int8 flags (1 claimed, 2 hole, 4 newer, 8 loose), int64 producer id, int16 epoch, int64 generation, int64 next,
//	then an int64 per former producer id
const fenceBytesMin = 1 + 8 + 2 + 8 + 8

// AppendTo appends the bytes of f to dst.
func (f *Fence) AppendTo(dst []byte) []byte {
	var flags byte
	for i, set := range []bool{f.claimed, f.hole, f.newer, f.loose} {
		if set {
			flags |= 1 << i
		}
	}
	dst = append(dst, flags)
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.pid))
	dst = binary.BigEndian.AppendUint16(dst, uint16(f.epoch))
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.generation))
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.next))
	for _, id := range f.former {
		dst = binary.BigEndian.AppendUint64(dst, uint64(id))
	}
	return dst
}

// DecodeFence reads what AppendTo wrote; the error wraps ErrCorrupt.
func DecodeFence(b []byte) (Fence, error) {
	if n := len(b) - fenceBytesMin; n < 0 || n%8 != 0 || n/8 > formerMax || b[0] >= 1<<4 {
		return Fence{}, fmt.Errorf("%w: fence of %d bytes", ErrCorrupt, len(b))
	}
	f := Fence{
		claimed:    b[0]&1 != 0,
		hole:       b[0]&2 != 0,
		newer:      b[0]&4 != 0,
		loose:      b[0]&8 != 0,
		pid:        int64(binary.BigEndian.Uint64(b[1:])),
		epoch:      int16(binary.BigEndian.Uint16(b[9:])),
		generation: int64(binary.BigEndian.Uint64(b[11:])),
		next:       int64(binary.BigEndian.Uint64(b[19:])),
	}
	for b = b[fenceBytesMin:]; len(b) > 0; b = b[8:] {
		f.former = append(f.former, int64(binary.BigEndian.Uint64(b)))
	}
	return f, nil
}
