package eventlog

// Group, type 17, version 0.
//
//	Epoch                           int32
//	MetadataHash                    int64
//	ValidatedTopologyEpoch          int32                  tag 0, default -1
//	LastAssignmentConfigs           [](Key, Value string)  tag 1, default empty; null is read as empty, never written
//	StoredDescriptionTopologyEpoch  int32                  tag 2, default -1
//	FailedDescriptionTopologyEpoch  int32                  tag 3, default -1
//	Conversion                      int8                   tag 10000, default 0; ours: Kafka's readers keep unknown tags aside

// tagConversion is far above what Kafka will number a field of this record with.
const tagConversion = 10_000

func decodeGroup(r *reader) *Group {
	v := &Group{
		ValidatedTopologyEpoch:         EpochNone,
		StoredDescriptionTopologyEpoch: EpochNone,
		FailedDescriptionTopologyEpoch: EpochNone,
	}
	v.Epoch = r.Int32()
	v.MetadataHash = r.Int64()
	r.tags(func(tag uint32, f *reader) bool {
		switch tag {
		case 0:
			v.ValidatedTopologyEpoch = f.Int32()
		case 1:
			v.LastAssignmentConfigs = elements(f, f.countOrNull(keyValueBytesMin), keyValue)
		case 2:
			v.StoredDescriptionTopologyEpoch = f.Int32()
		case 3:
			v.FailedDescriptionTopologyEpoch = f.Int32()
		case tagConversion:
			v.Conversion = Conversion(f.Int8())
		default:
			return false
		}
		return true
	})
	return v
}

func (w *writer) group(v *Group) {
	w.int16(0)
	w.int32(v.Epoch)
	w.int64(v.MetadataHash)

	validated := v.ValidatedTopologyEpoch != EpochNone
	configs := len(v.LastAssignmentConfigs) > 0
	stored := v.StoredDescriptionTopologyEpoch != EpochNone
	failed := v.FailedDescriptionTopologyEpoch != EpochNone
	converting := v.Conversion != ConversionNone
	n := 0
	for _, present := range []bool{validated, configs, stored, failed, converting} {
		if present {
			n++
		}
	}
	w.uvarint(n)
	if validated {
		w.tag(0, func(f *writer) { f.int32(v.ValidatedTopologyEpoch) })
	}
	if configs {
		w.tag(1, func(f *writer) { f.keyValues(v.LastAssignmentConfigs) })
	}
	if stored {
		w.tag(2, func(f *writer) { f.int32(v.StoredDescriptionTopologyEpoch) })
	}
	if failed {
		w.tag(3, func(f *writer) { f.int32(v.FailedDescriptionTopologyEpoch) })
	}
	if converting {
		w.tag(tagConversion, func(f *writer) { f.int8(int8(v.Conversion)) })
	}
}
