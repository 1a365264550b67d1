package eventlog

import (
	"encoding/binary"
	"encoding/json"
	"errors"
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
// must not void them. So the Fence watches for holes in the offsets. While there is none since the last claim that was
// seen, no other can have been there, and the rules above are exact. After a hole, an entry is void only if it is so for
// certain: without a producer id, from an epoch below one seen, from a producer id that a claim has replaced, of a
// generation below one seen. The next claim that is seen makes the rules exact again. What is wrongly believed in
// between was seen and repaired by the owner, further on in the log.
type Fence struct {
	claimed    bool
	pid        int64
	epoch      int16
	generation int64
	next       int64 // the offset after the last entry shown
	hole       bool  // offsets are missing since the last claim seen
	// newer: entries of an epoch after that of generation were believed. loose: generation itself was, from a header;
	// which producer it belongs to isn't known.
	newer, loose bool
	former       []int64    // producer ids that a claim has replaced, oldest first
	believed     []producer // since the hole, others than pid, oldest first
}

type producer struct {
	id    int64
	epoch int16
}

// formerMax is how many producer ids of earlier claims a Fence remembers. A partition's producer id changes when 32,767
// epochs are used up or the transactional id expired; only writers of the last change or two can still be running. The
// same number of others is remembered after a hole.
const formerMax = 8

// Generation is the offset of the ownership record of the current claim; ok is false while none was seen.
func (f *Fence) Generation() (offset int64, ok bool) { return f.generation, f.claimed }

// Former are producer ids that a claim has replaced: no later claim by one of them counts.
func (f *Fence) Former() []int64 { return slices.Clone(f.former) }

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

// Observe judges an ownership record, and follows it if it counts; otherwise the result is false. What counts is
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
	if slices.Contains(f.former, e.ProducerID) {
		return false
	}
	if o.Claim < 0 {
		f.claim(e)
		return true
	}
	return f.repeat(e, o.Claim)
}

// Forged says of an ownership record that can't be decoded, with err, that no owner wrote it, of whatever version: claims are JSON with a format, in
// the batch of the producer that they name. It does not count, as one that can be decoded would not (Observe); a reader that refused it would be stopped by
// whoever may write to the topic.
func Forged(e Entry, err error) bool {
	if e.Transactional || e.ProducerID < 0 || !errors.Is(err, ErrUnknownVersion) {
		return true
	}
	var named struct {
		ProducerID    *int64 `json:"producerId"`
		ProducerEpoch *int16 `json:"producerEpoch"`
	}
	if json.Unmarshal(e.Value, &named) != nil {
		return false // in a newer format they may be something else
	}
	return named.ProducerID != nil && *named.ProducerID != e.ProducerID || named.ProducerEpoch != nil && *named.ProducerEpoch != e.ProducerEpoch
}

// claim makes e the current claim.
func (f *Fence) claim(e Entry) {
	former := slices.Clone(f.former) // copies of a Fence must not share it
	if f.claimed {
		for _, b := range append(slices.Clone(f.believed), producer{f.pid, f.epoch}) {
			if b.id != e.ProducerID {
				former = append(former, b.id)
			}
		}
	}
	f.former = former[max(0, len(former)-formerMax):]
	f.believed = nil
	f.claimed, f.pid, f.epoch, f.generation = true, e.ProducerID, e.ProducerEpoch, e.Offset
	f.hole, f.newer, f.loose = false, false, false
}

// repeat judges a claim that was written again. It never makes the rules exact: a later claim may have been taken by
// compaction, and then this is the repeat of a fenced writer.
func (f *Fence) repeat(e Entry, generation int64) bool {
	lower := e.ProducerID == f.pid && e.ProducerEpoch < f.epoch
	switch {
	case !f.claimed:
		f.hole = true // its claim is not here any more
	case generation < f.generation, generation == f.generation && f.newer:
		return false
	case generation == f.generation && !f.loose:
		return e.ProducerID == f.pid && e.ProducerEpoch == f.epoch
	case !f.hole: // the claim that it repeats would have been seen
		return false
	case lower && f.newer:
		return false
	}
	if f.claimed && e.ProducerID != f.pid {
		f.believe(producer{f.pid, f.epoch})
		f.believed = slices.DeleteFunc(slices.Clone(f.believed), func(b producer) bool { return b.id == e.ProducerID })
	}
	f.claimed, f.pid, f.epoch, f.generation = true, e.ProducerID, e.ProducerEpoch, generation
	f.newer, f.loose = false, false
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
	switch {
	case e.ProducerID == f.pid && e.ProducerEpoch == f.epoch:
		return true
	case !f.hole || e.ProducerID < 0 || slices.Contains(f.former, e.ProducerID):
		return false
	case e.ProducerID != f.pid:
		return f.believe(producer{e.ProducerID, e.ProducerEpoch})
	case e.ProducerEpoch < f.epoch:
		return false
	}
	f.epoch = e.ProducerEpoch
	f.newer, f.loose = !f.loose, false
	return true
}

// believe remembers another producer than pid, unless a later epoch of it was seen.
func (f *Fence) believe(p producer) bool {
	i := slices.IndexFunc(f.believed, func(b producer) bool { return b.id == p.id })
	if i >= 0 && p.epoch <= f.believed[i].epoch {
		return p.epoch == f.believed[i].epoch
	}
	believed := slices.Clone(f.believed)
	if i >= 0 {
		believed = slices.Delete(believed, i, i+1)
	}
	believed = append(believed, p)
	f.believed = believed[max(0, len(believed)-formerMax):]
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
	f.newer, f.loose = false, true
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

// The bytes of a Fence, for a projection to keep with the position they belong to:
//
//	int8 flags (1 claimed, 2 hole, 4 newer, 8 loose), int64 producer id, int16 epoch, int64 generation, int64 next,
//	int8 number of former producer ids, an int64 for each,
//	int8 number of believed producers, int64 id and int16 epoch for each

// AppendTo appends the bytes of f to dst.
func (f *Fence) AppendTo(dst []byte) []byte {
	var flags byte
	for i, set := range []bool{f.claimed, f.hole, f.newer, f.loose} {
		if set {
			flags |= 1 << i
		}
	}
	w := writer{b: append(dst, flags)}
	w.int64(f.pid)
	w.int16(f.epoch)
	w.int64(f.generation)
	w.int64(f.next)
	w.int8(int8(len(f.former)))
	for _, id := range f.former {
		w.int64(id)
	}
	w.int8(int8(len(f.believed)))
	for _, b := range f.believed {
		w.int64(b.id)
		w.int16(b.epoch)
	}
	return w.b
}

// DecodeFence reads what AppendTo wrote; the error wraps ErrCorrupt.
func DecodeFence(b []byte) (Fence, error) {
	r := newReader(b)
	flags := r.Int8()
	f := Fence{claimed: flags&1 != 0, hole: flags&2 != 0, newer: flags&4 != 0, loose: flags&8 != 0}
	f.pid, f.epoch = r.Int64(), r.Int16()
	f.generation, f.next = r.Int64(), r.Int64()
	count := func() int8 {
		n := r.Int8()
		if n < 0 || n > formerMax {
			r.fail()
			return 0
		}
		return n
	}
	for range count() {
		f.former = append(f.former, r.Int64())
	}
	for range count() {
		f.believed = append(f.believed, producer{r.Int64(), r.Int16()})
	}
	if r.bad() || len(r.Src) > 0 || flags&^0xf != 0 {
		return Fence{}, fmt.Errorf("%w: fence of %d bytes", ErrCorrupt, len(b))
	}
	return f, nil
}
