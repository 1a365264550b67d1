package eventlog

import (
	"context"
	"errors"
	"time"
)

// Identity names a log: a topic that was deleted and made again is another log.
type Identity struct {
	Topic      string
	TopicID    [16]byte
	Partitions int32
}

// ControlType says what a control record settles.
type ControlType int8

const (
	ControlNone   ControlType = iota // an ordinary record
	ControlCommit                    // the producer's transaction committed
	ControlAbort                     // … aborted
	ControlOther                     // any other control record: ignored
)

// Header is a record header.
type Header struct {
	Key   string
	Value []byte
}

// Entry is one record as the tail read it, with what its batch says of it. ProducerID is -1 where the batch had
// none. Plain or pending is decided by Transactional, never by ProducerID (design D4).
type Entry struct {
	Offset        int64
	Timestamp     int64 // ms since 1970
	ProducerID    int64
	ProducerEpoch int16
	Transactional bool
	Control       ControlType
	Headers       []Header
	Key           []byte
	Value         []byte // nil: tombstone
}

// Batch is what one read of a partition brought. Entries may be empty: the log can end in offsets that
// compaction emptied, and a reader that stands at the end is told so again and again.
type Batch struct {
	Entries       []Entry
	Next          int64 // the first offset that is not read yet
	LeaderEpoch   int32 // of the last batch read; the one before where Entries is empty
	HighWatermark int64 // as the leader said with this read
	LogStart      int64
}

// AtEnd says that the reader stood at the end of the log when the batch was read.
func (b Batch) AtEnd() bool { return b.Next >= b.HighWatermark }

// Position is where reading goes on: Offset is the next one wanted, LeaderEpoch the epoch of the record before
// it (-1: none), by which a log that was cut off below us is noticed.
type Position struct {
	Offset      int64
	LeaderEpoch int32
}

// Follower takes what the Tail reads. Calls for one partition never overlap.
type Follower interface {
	// Resume says where reading of partition p begins; asked at the start and after each Reset.
	Resume(p int32) Position
	// Batch applies b. An error that wraps ErrRefused stops the reading of this partition until the process is
	// started again (a newer format, an undecodable record); ErrRebuild makes the tail call Reset and begin
	// again; any other error is repeated after a pause.
	Batch(p int32, b Batch) error
	// Reset tells that what was read of p is no longer in the log as it was (cut off, deleted below the
	// position, another topic): all of it must be forgotten.
	Reset(p int32, why string) error
}

// Ownership facts of one claim.
type Claim struct {
	Partition     int32
	ProducerID    int64
	ProducerEpoch int16
	// Generation is the offset of the claim's ownership record: what tells two claims apart (never the epoch).
	Generation int64
	// Number is which transactional id of the partition the producer id is from.
	Number int32
	// FreshProducer says that the cluster gave a producer id other than that of the previous ownership record (its
	// transactional id expired, or its epochs were used up), and could not be made to refuse the predecessor's. ClaimAfter
	// has then waited one lease; the owner reads to the log's end (End, asked after ClaimAfter returned) before it serves.
	FreshProducer bool
}

// Log is a record log. *Kafka (kafka.go) is the real one, *Fake the one for tests.
type Log interface {
	Identity() Identity
	// BatchBytesMax is the size of the largest batch that the topic takes (max.message.bytes), in bytes.
	BatchBytesMax() int
	// Claim takes partition p over: the cluster refuses writers of earlier claims from the moment that the
	// ownership record is in the log. o's producer id, epoch and claim offset are filled in here.
	// It is ClaimAfter without a previous owner.
	Claim(ctx context.Context, p int32, o Ownership) (Writer, error)
	// ClaimAfter is Claim by one who knows the last ownership record of p (nil: there is none). Where the cluster gives
	// another producer id than prev's, that one is fenced before the claim; where the cluster does not let it be, ClaimAfter returns only after
	// the lease has passed since the claim was in the log, with Claim.FreshProducer set (design D4).
	ClaimAfter(ctx context.Context, p int32, o Ownership, prev *Owner, lease time.Duration) (Writer, error)
	// End is the end of p: everything that was acknowledged before the call is below it. It is the leader's high watermark, or more.
	End(ctx context.Context, p int32) (int64, error)
	// Denied is why the cluster does not let this process read p, as it said last; nil where it does, and where it was not asked. Follow asks on.
	Denied(p int32) error
	// Unreached is for how long the broker that leads p has not answered this process, while other brokers say that it is the leader, and its last error; 0 where it
	// answers, where nobody leads p, and where no broker can be asked.
	Unreached(p int32) (time.Duration, error)
	// Unclaimable is for how long the broker that a claim of p needs besides the leader, the coordinator of its transactional id, has not answered this process, while other
	// brokers say that it is the coordinator, and its last error; 0 where it answers, where no claim has asked it, and where no broker can be asked. p may be read all the same.
	Unclaimable(p int32) (time.Duration, error)
	// Follow reads all partitions into f until ctx ends. It returns ctx's error, or the error that makes
	// following impossible (the topic is gone, has another id or partition count).
	Follow(ctx context.Context, f Follower) error
	Close()
}

// Done tells the outcome of an append: the offset of its first record, or why it is not in the log as far as
// this writer will ever know (with ErrFenced, ErrOutcomeUnknown and ErrClosed it may be there all the same). It is called
// exactly once per append, in the order of the appends, never from within Append, and must not block.
type Done func(offset int64, err error)

// Writer appends to one partition under one claim. Its methods do not block, but for those with a context.
// After the first error that is neither ErrTooLarge nor ErrEmptyAppend the writer is dead: every waiting append fails with that
// error, and so does every further one; the owner claims anew.
type Writer interface {
	// Claim is the claim in force. A long-lived writer renews itself between two batches: it takes the next producer
	// epoch and writes its ownership record again, whose offset is the new generation.
	Claim() Claim
	// Append queues recs as one atomic operation: adjacent and in one batch. timestamp is in ms.
	Append(timestamp int64, recs []Raw, done Done)
	// Barrier calls done when a batch that was sent after this call is acknowledged; where nothing is waiting to be sent
	// the ownership record is written again. It proves that no other claim was in the log at some moment after the call.
	// Its offset is that of one of the batch's records.
	Barrier(done Done)
	// Renew has the writer renew itself soon, before its time: who adopted its claim elsewhere (Annex) needs a new epoch. Nothing
	// happens where the writer is dead or its claim is an adopted one.
	Renew()
	// Backlog is the number of bytes that wait to be acknowledged.
	Backlog() int
	// Release writes the ownership record with Released set, after all that is queued, and ends the writer.
	Release(ctx context.Context) error
	// Close ends the writer; what waits fails with ErrClosed.
	Close()
}

var (
	// ErrTooLarge: the records of one operation do not fit one batch. Only that operation fails.
	ErrTooLarge = errors.New("records of one operation exceed the log's batch size")
	// ErrFenced: a later claim is in the log.
	ErrFenced = errors.New("fenced: another claim of the partition is in the log")
	// ErrOutcomeUnknown: the append was neither acknowledged nor refused until its deadline.
	ErrOutcomeUnknown = errors.New("outcome of the append is unknown")
	// ErrClosed: the writer was closed by its owner.
	ErrClosed = errors.New("writer is closed")
	// ErrRefused: the partition can't be served by this program (newer format, undecodable record).
	ErrRefused = errors.New("partition refused")
	// ErrRebuild: the follower wants to read the partition again from the log's start.
	ErrRebuild = errors.New("partition must be read again")
	// ErrFenceUnproven: the cluster accepted a write of an older epoch; it can't be used safely (design D4).
	ErrFenceUnproven = errors.New("the cluster does not fence older producer epochs")
	// ErrEmptyAppend: an append without records has no offset. Only that operation fails.
	ErrEmptyAppend = errors.New("append of no records")
	// ErrTopicGone: the topic of an Annex was deleted, and perhaps made again, while the process ran. Opened again it is made anew.
	ErrTopicGone = errors.New("topic is gone")
	// ErrClaimUsed: the claim was adopted in this partition before; a sequence of it must not begin again.
	ErrClaimUsed = errors.New("the claim was adopted before: it must be renewed first")
	// ErrNodeIDTaken: another live process uses this node id.
	ErrNodeIDTaken = errors.New("node id is used by another process")
)

// Ownership record seen in a partition.
type Owner struct {
	Ownership
	Offset     int64 // of the record itself
	Generation int64 // of the claim
	Timestamp  int64 // ms, as the writer's clock said
	Seen       time.Time
	// Former are the producer ids under which no claim counts any more (Fence.Former): not part of the record, but of what was read with it.
	Former []int64 `json:"-"`
}
