package shard

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// The steps of a conversion to a classic group (D10) that the group's log sees. Between them the cluster is asked elsewhere:
//
//	BeginConversion    the group is frozen, durably, and its offsets are told
//	                   (they are committed at the cluster's own coordinator)
//	FinishConversion   offsets and group get their tombstones; or
//	CancelConversion   the group is ours again, after what the cluster had of it was removed
//
// The other way is one step: TakeOver writes the offsets with the group's first records, and CancelConversion lifts its mark when
// the cluster's copy is deleted.

var (
	// ErrConverting: the group is being converted, or a conversion of it was interrupted; it can't be changed until that is settled
	// (COORDINATOR_LOAD_IN_PROGRESS: the client asks again).
	ErrConverting = errors.New("the group is being converted to a classic group of the cluster")
	// ErrUnsettled: a transaction with offsets of the group is open; whether they count is not known yet.
	ErrUnsettled = errors.New("a transaction with offsets of the group is open")
	// ErrTooManyOffsets: the group has more committed offsets than are moved, or than fit one batch of the log on the way here.
	ErrTooManyOffsets = errors.New("the group has too many committed offsets")
)

// convertedOffsetsMax is how many offsets of one group are moved: ten times the partitions that a cluster is run with per broker; a
// group beyond it stays a streams group, and does not fill the heap.
const convertedOffsetsMax = 100_000

// CommittedOffset is one committed offset of a group.
type CommittedOffset struct {
	Topic     string
	Partition int32
	eventlog.OffsetCommit
}

// Standing is what a classic join needs to know of a streams group.
type Standing struct {
	Exists     bool
	Members    int
	Stored     int32 // the topology epoch whose description is stored: EpochNone, EpochUncertain, or an epoch
	Conversion eventlog.Conversion
}

// Standing tells how a group stands. A group that does not exist is no error.
func (h *Host) Standing(ctx context.Context, group string) (Standing, error) {
	return call(ctx, h, "standing", group, func(t *turn) (Standing, effect, error) {
		return Standing{
			Exists: t.g.Exists(), Members: t.g.Members(), Stored: t.g.StoredDescriptionTopologyEpoch(), Conversion: t.g.Conversion(),
		}, effect{barrier: true}, nil
	})
}

// BeginConversion freezes an empty group, durably, and returns its offsets, ascending by topic and partition; over says that the
// cluster has an empty group of that id. A conversion that was interrupted goes on. ok is false where the group has members or is gone.
func (h *Host) BeginConversion(ctx context.Context, group string, over bool) (committed []CommittedOffset, c eventlog.Conversion, ok bool, err error) {
	type begun struct {
		committed  []CommittedOffset
		conversion eventlog.Conversion
		ok         bool
	}
	b, err := call(ctx, h, "begin conversion", group, func(t *turn) (*begun, effect, error) {
		records, ok := t.g.BeginConversion(over)
		if !ok {
			return &begun{}, effect{}, nil
		}
		b := &begun{ok: true}
		v := t.s.view(group)
		for range v.OpenAll() {
			return nil, effect{}, ErrUnsettled
		}
		for tp, o := range v.All() {
			if len(b.committed) == convertedOffsetsMax {
				return nil, effect{}, ErrTooManyOffsets
			}
			b.committed = append(b.committed, CommittedOffset{Topic: tp.Topic, Partition: tp.Partition, OffsetCommit: o})
		}
		if v.err != nil {
			return nil, effect{}, v.failed()
		}
		slices.SortFunc(b.committed, func(x, y CommittedOffset) int {
			return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Partition, y.Partition))
		})
		settled := func() { b.conversion = t.g.Conversion() }
		return b, effect{records: records, settled: settled, barrier: true}, nil
	})
	if err != nil {
		return nil, eventlog.ConversionNone, false, err
	}
	return b.committed, b.conversion, b.ok, nil
}

// CancelConversion makes a frozen group an ordinary one again; false: the cluster has it already, and only FinishConversion is left.
func (h *Host) CancelConversion(ctx context.Context, group string) (bool, error) {
	return call(ctx, h, "cancel conversion", group, func(t *turn) (bool, effect, error) {
		records, ok := t.g.CancelConversion()
		return ok, effect{records: records}, nil
	})
}

// FinishConversion removes a group whose offsets the cluster has acknowledged, and the offsets. It returns false where they do not fit
// one batch of the log: the group is then marked as copied, so that whoever goes on knows that what is left is not the whole, and
// it must be called again. It fails with ErrDescribed while a description may be stored. A group that is gone is done.
func (h *Host) FinishConversion(ctx context.Context, group string) (done bool, err error) {
	return call(ctx, h, "finish conversion", group, func(t *turn) (bool, effect, error) {
		if !t.g.Exists() {
			return true, effect{}, nil
		}
		if t.g.Conversion() == eventlog.ConversionNone {
			return false, effect{}, ErrInternal // nobody froze it: what was copied may not be what is here
		}
		if h.mayBeDescribed(t) {
			return false, effect{}, ErrDescribed
		}
		gone, err := t.g.Delete()
		if err != nil {
			return false, effect{}, err
		}
		v := t.s.view(group)
		moved := offsets.Tombstones(v, group)
		if v.err != nil {
			return false, effect{}, v.failed()
		}
		if all := append(moved[:len(moved):len(moved)], gone...); t.s.fitting(all) == len(all) {
			return true, effect{records: all}, nil
		}
		part := append(t.g.Copied(), moved...)
		return false, effect{records: part[:t.s.fitting(part)], quiet: true}, nil
	})
}

// TakeOver is Heartbeat for a member whose group does not exist yet and is made of an empty classic group of the cluster with these
// offsets. All of it is one batch: ErrTooManyOffsets where they do not fit. The group is marked: the cluster's copy is to be deleted, by
// whoever is told by Config.Converting.
func (h *Host) TakeOver(ctx context.Context, c Caller, version int16, req *kmsg.StreamsGroupHeartbeatRequest, committed []CommittedOffset) (HeartbeatResult, error) {
	return h.heartbeat(ctx, c, version, req, func(t *turn, made []eventlog.Record) ([]eventlog.Record, error) {
		taken := make([]eventlog.Record, len(committed))
		for i := range committed {
			o := committed[i].OffsetCommit
			o.CommitTimestamp = t.now.UnixMilli()
			key := eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: req.Group, Topic: committed[i].Topic, Partition: committed[i].Partition}
			taken[i] = eventlog.Record{Key: key, Value: &o}
		}
		records := streams.TakenOver(made, taken)
		if t.s.fitting(records) < len(records) {
			return nil, ErrTooManyOffsets
		}
		return records, nil
	})
}

// unfrozen refuses what would change a group that is being converted, and asks for the conversion to be settled. A group that was taken
// over from the cluster can be changed, and is only asked for.
func (h *Host) unfrozen(t *turn) error {
	if t.g.Conversion() == eventlog.ConversionNone {
		return nil
	}
	h.settleConversion(t.g.ID())
	if !t.g.Conversion().Frozen() {
		return nil
	}
	return ErrConverting
}

// settled refuses what would remove a group whose id the cluster may have something under.
func (h *Host) settled(t *turn) error {
	if err := h.unfrozen(t); err != nil || t.g.Conversion() == eventlog.ConversionNone {
		return err
	}
	return ErrConverting
}

// readable refuses what would show a part of the offsets for the whole: the cluster has them already.
func (h *Host) readable(t *turn) error {
	if t.g.Conversion() != eventlog.ConversionCopied {
		return nil
	}
	h.settleConversion(t.g.ID())
	return ErrConverting
}

func (h *Host) settleConversion(group string) {
	if h.cfg.Converting != nil {
		h.cfg.Converting(group)
	}
}
