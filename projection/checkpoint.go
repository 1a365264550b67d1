package projection

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"streamkeeper/eventlog"
)

// storeMeta says which log a store is of.
type storeMeta struct {
	Format     int      `json:"format"`
	Topic      string   `json:"topic"`
	TopicID    [16]byte `json:"topicId"`
	Partitions int32    `json:"partitions"`
}

// checkpoint is how far a partition is applied. It is written in the same batch as what was applied.
//
//	int64 next offset, int32 leader epoch, int64 ms of the last time at the end,
//	int16 length and bytes of the log's random id, then the fence
type checkpoint struct {
	pos eventlog.Position
	// atEnd is the last time the tail stood at the log's end, or, while it never did, the time it began to read.
	atEnd time.Time
	logID string
	fence eventlog.Fence
}

// checkpointBytesMin is a checkpoint with neither log id nor fence: less is damage.
const checkpointBytesMin = 8 + 4 + 8 + 2

func (c *checkpoint) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.pos.Offset))
	b = binary.BigEndian.AppendUint32(b, uint32(c.pos.LeaderEpoch))
	b = binary.BigEndian.AppendUint64(b, uint64(c.atEnd.UnixMilli()))
	b = binary.BigEndian.AppendUint16(b, uint16(len(c.logID)))
	b = append(b, c.logID...)
	return c.fence.AppendTo(b)
}

func decodeCheckpoint(b []byte) (checkpoint, error) {
	if len(b) < checkpointBytesMin {
		return checkpoint{}, fmt.Errorf("%w: checkpoint of %d bytes", errDamaged, len(b))
	}
	c := checkpoint{pos: eventlog.Position{
		Offset:      int64(binary.BigEndian.Uint64(b)),
		LeaderEpoch: int32(binary.BigEndian.Uint32(b[8:])),
	}}
	c.atEnd = time.UnixMilli(int64(binary.BigEndian.Uint64(b[12:])))
	n := int(binary.BigEndian.Uint16(b[20:]))
	rest := b[checkpointBytesMin:]
	if len(rest) < n {
		return checkpoint{}, fmt.Errorf("%w: checkpoint of %d bytes", errDamaged, len(b))
	}
	c.logID = string(rest[:n])
	fence, err := eventlog.DecodeFence(rest[n:])
	if err != nil {
		return checkpoint{}, fmt.Errorf("%w: checkpoint: %v", errDamaged, err)
	}
	c.fence = fence
	return c, nil
}

// nothing is the checkpoint of a partition of which nothing is applied.
func nothing() checkpoint {
	return checkpoint{pos: eventlog.Position{Offset: 0, LeaderEpoch: eventlog.EpochNone}}
}

// fresh says that nothing was applied yet.
func (c *checkpoint) fresh() bool {
	return c.pos.Offset == 0 && c.pos.LeaderEpoch == eventlog.EpochNone
}

func encodeOwner(o eventlog.Owner) []byte {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err) // numbers, strings and a time within the years that JSON can write
	}
	return b
}

func decodeOwner(b []byte) (eventlog.Owner, error) {
	var o eventlog.Owner
	if err := json.Unmarshal(b, &o); err != nil {
		return o, fmt.Errorf("%w: owner: %v", errDamaged, err)
	}
	return o, nil
}
