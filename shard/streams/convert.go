package streams

import "streamkeeper/eventlog"

// Conversion of an empty streams group to a classic one of the cluster (GroupMetadataManager.classicGroupJoin of Kafka 4.4, which
// writes tombstones and leaves the offsets where they are; here they lie in another log than the classic group's and have to
// move, D10). As long as the group is being converted nobody may join it and none of its offsets may change: what is copied must be
// what is removed afterwards.

// Conversion says how far the group is.
func (g *Group) Conversion() eventlog.Conversion { return g.meta.Conversion }

// BeginConversion freezes the group; over says that the cluster has an empty group of that id. A group that was frozen before stays as
// it is. ok is false where there is nothing to convert: the group does not exist, or has members.
func (g *Group) BeginConversion(over bool) (records []eventlog.Record, ok bool) {
	if !g.exists || len(g.members) > 0 || g.meta.Conversion == eventlog.ConversionTaken {
		return nil, false // the last: the cluster's copy must go first, or what was removed since would be in the new one again
	}
	if g.meta.Conversion != eventlog.ConversionNone {
		return nil, true
	}
	if over {
		return g.withConversion(eventlog.ConversionBegunOver), true
	}
	return g.withConversion(eventlog.ConversionBegun), true
}

// CancelConversion makes the group ours again. After ConversionCopied there is no way back, and ok is false.
func (g *Group) CancelConversion() (records []eventlog.Record, ok bool) {
	if !g.exists || g.meta.Conversion == eventlog.ConversionNone {
		return nil, true
	}
	if g.meta.Conversion == eventlog.ConversionCopied {
		return nil, false
	}
	return g.withConversion(eventlog.ConversionNone), true
}

// Copied says that the cluster has all offsets: from then on they are removed here.
func (g *Group) Copied() []eventlog.Record { return g.withConversion(eventlog.ConversionCopied) }

func (g *Group) withConversion(c eventlog.Conversion) []eventlog.Record {
	if g.meta.Conversion == c {
		return nil
	}
	next := g.meta
	next.Conversion = c
	return g.metaRecord(next)
}

// TakenOver are the records of the heartbeat that makes a group, with the offsets of the classic group that it is made of in front, and the
// mark that the cluster's copy is still to be deleted. All are to be written at once: the group exists with its offsets, or not.
func TakenOver(made, offsets []eventlog.Record) []eventlog.Record {
	records := offsets[:len(offsets):len(offsets)]
	for _, r := range made {
		if v, ok := r.Value.(*eventlog.Group); ok {
			next := *v
			next.Conversion = eventlog.ConversionTaken
			r.Value = &next
		}
		records = append(records, r)
	}
	return records
}
