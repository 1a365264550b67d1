package eventlog

// Compact compacts the whole of p. See CompactBefore.
func (f *Fake) Compact(p int32, keepTombstones bool) {
	f.CompactBefore(p, 1<<62, keepTombstones)
}

// CompactBefore does what Kafka's cleaner does below offset: of each key only the latest record stays, tombstones stay
// only if keepTombstones (the cleaner drops them delete.retention.ms after a first pass), records of aborted
// transactions go, and a control record goes as a tombstone does, once no record of its transaction is left. It does not
// pass the first offset of an open transaction. Offsets stay as they are, and so does the last batch of the log even
// where it is left empty. It knows nothing of void records: one that is newer than the right one takes its place.
func (f *Fake) CompactBefore(p int32, offset int64, keepTombstones bool) {
	f.at(p, func(part *fakePartition) {
		aborted, open := part.transactions()
		offset = min(offset, open, part.end)
		latest := map[string]int64{}
		for _, b := range part.batches {
			for _, e := range b.entries {
				if e.Offset < offset && e.Control == ControlNone && !aborted[e.Offset] {
					latest[string(e.Key)] = e.Offset
				}
			}
		}
		stays := func(e Entry) bool {
			return e.Offset >= offset || e.Control == ControlNone && !aborted[e.Offset] &&
				latest[string(e.Key)] == e.Offset && (e.Value != nil || keepTombstones)
		}
		marked := part.marked(stays)
		var batches []fakeBatch
		for i, b := range part.batches {
			var entries []Entry
			for _, e := range b.entries {
				if stays(e) || marked[e.Offset] || keepTombstones && e.Control != ControlNone {
					entries = append(entries, e)
				}
			}
			if len(entries) > 0 || b.last >= offset || i == len(part.batches)-1 {
				b.entries = entries
				batches = append(batches, b)
			}
		}
		part.batches = batches
		f.notify()
	})
}

// transactions tells which records belong to aborted transactions, and the first offset of the oldest open one.
func (part *fakePartition) transactions() (aborted map[int64]bool, open int64) {
	aborted = map[int64]bool{}
	pending := map[int64][]int64{} // offsets by producer id
	for _, b := range part.batches {
		for _, e := range b.entries {
			switch {
			case e.Control == ControlNone && e.Transactional:
				pending[e.ProducerID] = append(pending[e.ProducerID], e.Offset)
			case e.Control == ControlAbort:
				for _, o := range pending[e.ProducerID] {
					aborted[o] = true
				}
				delete(pending, e.ProducerID)
			case e.Control == ControlCommit:
				delete(pending, e.ProducerID)
			}
		}
	}
	open = 1 << 62
	for _, offsets := range pending {
		open = min(open, offsets[0])
	}
	return aborted, open
}

// marked tells which control records still have a record of their transaction before them.
func (part *fakePartition) marked(stays func(Entry) bool) map[int64]bool {
	marked := map[int64]bool{}
	left := map[int64]bool{} // by producer id: a record of the transaction under way stays
	for _, b := range part.batches {
		for _, e := range b.entries {
			switch {
			case e.Control == ControlNone && e.Transactional:
				left[e.ProducerID] = left[e.ProducerID] || stays(e)
			case e.Control == ControlCommit || e.Control == ControlAbort:
				marked[e.Offset] = left[e.ProducerID]
				delete(left, e.ProducerID)
			}
		}
	}
	return marked
}
