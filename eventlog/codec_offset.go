package eventlog

// OffsetCommit, types 0 and 1.
//
//	offset           int64
//	leaderEpoch      int32   from version 3, default -1
//	metadata         string
//	commitTimestamp  int64   ms
//	expireTimestamp  int64   version 1 only, default -1
//	topicId          uuid    tag 0, from version 4, default zero
//
// Version 4 is flexible. Type 0 knows version 0 only.

func decodeOffsetCommit(r *reader, version int16) *OffsetCommit {
	flexible := version >= 4
	v := &OffsetCommit{LeaderEpoch: -1, ExpireTimestamp: -1}
	v.Offset = r.Int64()
	if version >= 3 {
		v.LeaderEpoch = r.Int32()
	}
	v.Metadata = r.str(flexible)
	v.CommitTimestamp = r.Int64()
	if version == 1 {
		v.ExpireTimestamp = r.Int64()
	}
	if flexible {
		r.tags(func(tag uint32, f *reader) bool {
			if tag != 0 {
				return false
			}
			v.TopicID = f.Uuid()
			return true
		})
	}
	return v
}

// offsetCommit writes version 1, which alone has room for an expire timestamp and none for leader epoch and topic id,
// or else version 4.
func (w *writer) offsetCommit(v *OffsetCommit) {
	if v.ExpireTimestamp != -1 {
		w.int16(1)
		w.int64(v.Offset)
		w.str(v.Metadata, false)
		w.int64(v.CommitTimestamp)
		w.int64(v.ExpireTimestamp)
		return
	}
	w.int16(4)
	w.int64(v.Offset)
	w.int32(v.LeaderEpoch)
	w.str(v.Metadata, true)
	w.int64(v.CommitTimestamp)
	if v.TopicID == [16]byte{} {
		w.noTags()
		return
	}
	w.uvarint(1)
	w.tag(0, func(f *writer) { f.b = append(f.b, v.TopicID[:]...) })
}

func (w *writer) legacyOffsetCommit(v *OffsetCommit) {
	w.int16(0)
	w.int64(v.Offset)
	w.str(v.Metadata, false)
	w.int64(v.CommitTimestamp)
}
