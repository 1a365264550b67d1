package projection

import (
	"maps"
	"sync/atomic"
)

// Stats are numbers for metrics. Counters count since the store was opened.
type Stats struct {
	Applied  uint64            // entries, void and unknown ones included
	Void     uint64            // entries that the fence voided
	Unknown  uint64            // entries of types that are not ours
	Rebuilds map[Reason]uint64 // one for a partition, or for a whole store
	Refused  int               // partitions with a record that can't be read
	Loading  int               // partitions that have not stood at the end yet
	Lag      int64             // offsets of all partitions that are not applied yet
	Pending  int               // pending transactional offsets
	Bytes    uint64            // on disk and in memtables
	Full     bool              // the disk is
}

// PartitionStats are those of one partition.
type PartitionStats struct {
	Applied int64 // first offset not applied yet
	Lag     int64 // to the high watermark of the last read
	AtEnd   bool
	Err     error
	Because Reason // why it was read from the log's start last, in this process
}

type countsOf struct{ applied, void, unknown uint64 }

type counts struct{ applied, void, unknown atomic.Uint64 }

func (c *counts) add(n countsOf) {
	c.applied.Add(n.applied)
	c.void.Add(n.void)
	c.unknown.Add(n.unknown)
}

// Stats returns the numbers of this moment.
func (s *Store) Stats() Stats {
	st := Stats{Applied: s.counts.applied.Load(), Void: s.counts.void.Load(), Unknown: s.counts.unknown.Load(), Full: s.disk.full() != nil}
	s.mu.Lock()
	st.Rebuilds = maps.Clone(s.rebuilds)
	s.mu.Unlock()
	for _, part := range s.parts {
		ps := part.stats()
		st.Lag += ps.Lag
		if !ps.AtEnd {
			st.Loading++
		}
		if ps.Err != nil {
			st.Refused++
		}
		part.mu.Lock()
		st.Pending += part.pending
		part.mu.Unlock()
	}
	if e, err := s.current(); err == nil {
		m := e.db.Metrics()
		st.Bytes = m.DiskSpaceUsage() + m.MemTable.Size
		e.release()
	}
	return st
}

// PartitionStats returns the numbers of a partition.
func (s *Store) PartitionStats(p int32) PartitionStats {
	part, err := s.part(p)
	if err != nil {
		return PartitionStats{Err: err}
	}
	return part.stats()
}

func (part *partition) stats() PartitionStats {
	part.mu.Lock()
	defer part.mu.Unlock()
	return PartitionStats{
		Applied: part.pos.Offset,
		Lag:     max(0, part.highWater-part.pos.Offset),
		AtEnd:   part.atEnd,
		Err:     part.err,
		Because: part.because,
	}
}
