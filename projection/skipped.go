package projection

import (
	"encoding/binary"
	"maps"

	"streamkeeper/eventlog"
)

// Records of types that this program does not know are skipped, as Kafka's loader skips them: a newer program wrote them, and this one can do
// without. But which types they were is remembered, in the batch that skips them: when a program that knows one of them opens the store it can't go on
// where its predecessor stood, because it would never see what was skipped. It reads those partitions from their start.
//
// Types have 16 bits, so there are at most 65,536 keys of this kind in a partition.

// skipped is the first record of a type that was skipped.
type skipped struct {
	of     eventlog.Type
	offset int64
}

func skippedKey(p int32, t eventlog.Type) key {
	return binary.BigEndian.AppendUint16(partitionKey(p, kindSkipped), uint16(t))
}

// skip passes over an entry of a type that is not known.
func (a *apply) skip(e *eventlog.Entry, t eventlog.Type) error {
	a.counts.unknown++
	if _, ok := a.skipped[t]; ok {
		return nil
	}
	if len(a.news) == 0 { // the partition's own may be read meanwhile
		if a.skipped = maps.Clone(a.skipped); a.skipped == nil {
			a.skipped = map[eventlog.Type]struct{}{}
		}
	}
	a.skipped[t] = struct{}{}
	a.news = append(a.news, skipped{t, e.Offset})
	return storage(a.batch.Set(skippedKey(a.part.p, t), nil, nil))
}

// saySkipped logs each type of a partition once.
func (a *apply) saySkipped() {
	for _, n := range a.news {
		a.s.logger.Warn("projection: records of an unknown type are skipped; a version that knows it reads the partition again",
			"partition", a.part.p, "offset", n.offset, "type", int16(n.of))
	}
}

// loadSkipped reads which types were skipped. known: one of them is known by now.
func (part *partition) loadSkipped(e *engine) (known bool, err error) {
	err = scan(e.db, partitionKey(part.p, kindSkipped), func(k *keyReader, _ []byte) (bool, error) {
		b := k.take(2)
		t := eventlog.Type(binary.BigEndian.Uint16(b))
		if err := k.end(kindSkipped); err != nil {
			return false, err
		}
		if part.skipped == nil {
			part.skipped = map[eventlog.Type]struct{}{}
		}
		part.skipped[t] = struct{}{}
		known = known || t.Known()
		return true, nil
	})
	return known, err
}
