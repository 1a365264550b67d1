package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Where a partition ends is asked by those who conclude from it that something is not there. The leader's word is not enough: a broker that hung while
// another became the leader answers the question that lay in its socket with its old end, and has not noticed yet; one that is cut off from the
// others does so for as long as that lasts. A leader epoch in the question does not help, because who asks may know no more than that broker.
//
// But a record is acknowledged only once min.insync.replicas brokers have it. So of any replicas - min.insync.replicas + 1 brokers one has each record
// that was acknowledged before they were asked, whoever led the partition then. With three replicas and min.insync.replicas=2 the leader and one
// follower suffice. The leader tells its high watermark, which covers all that it acknowledged itself; a follower the end of what it has.
// A client may ask a follower as Kafka's tools do (replica id -2).
//
// Nor may the end be one that nobody will ever read, because who concludes from it reads up to it first. A former leader that is cut off from the others has
// records that it took and that will be cut off there. It does not know of the leader epoch in which the leader answers, so it has acknowledged nothing
// behind that one's high watermark (which a new leader does not tell before it covers all that earlier ones acknowledged), and counts as if it
// ended there. Where brokers don't tell epochs the end is the highest that enough brokers have (ends.bound): the more answer, the less
// counts what one of them has alone.

const (
	// endPatience is how long enough replicas may take to answer before they are asked again, or, where a single one may acknowledge, are done without.
	endPatience = 2 * time.Second
	// endSettle is how long the other replicas are waited for where those that suffice name an end behind the leader's, which the others may refute. Brokers
	// that are well answer within a few milliseconds; and who asks may have only half a second for all of it (D9).
	endSettle = 200 * time.Millisecond
	// askingMax bounds the questions that wait for one broker: one that hangs would collect all that are asked meanwhile. Beyond it that broker counts as silent.
	askingMax = 32
	// debuggingReplica is the replica id of who asks a follower (ListOffsetsRequest.DEBUGGING_REPLICA_ID).
	debuggingReplica = -2

	// How long all followers have to refuse the question before the leader's word counts alone: with the error of a broker that does not lead (which one of Kafka's
	// that has the partition never has for this question, but for a moment after a reassignment), and with any other, as brokers of Kafka's have
	// that have just started and don't know the topic yet (missingMax).
	notLeaderFor = time.Second
	refusedFor   = missingMax
)

// errFewReplicas: too few of a partition's replicas answer for its end to be known.
var errFewReplicas = errors.New("too few replicas of the partition answer")

// End implements Log.
func (k *Kafka) End(ctx context.Context, p int32) (int64, error) {
	ctx, cancel := mergeContext(ctx, k.ctx)
	defer cancel()
	for attempt := 0; ; attempt++ {
		end, err := k.endOnce(ctx, p)
		if err == nil || !errors.Is(err, errFewReplicas) {
			return end, err
		}
		k.leaders.refresh()
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case <-time.After(retryPause(attempt)):
		}
	}
}

// endOnce asks the leader and enough others. Where these do not answer with an end the error is errFewReplicas.
func (k *Kafka) endOnce(ctx context.Context, p int32) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	replicas, leader := k.replicas(p), k.leader(p)
	type answer struct {
		node int32
		at   told
		err  error
	}
	answers := make(chan answer, len(replicas))
	asked := 0
	for _, node := range replicas {
		if node == leader {
			continue
		}
		asked++
		go func() {
			at, err := k.followerEnd(ctx, node, p)
			answers <- answer{node, at, err}
		}()
	}
	at, by, err := k.listOffset(ctx, p, offsetLatest)
	if err != nil {
		return 0, err
	}
	insync := int(k.insync.Load())
	one := insync <= 1
	known := ends{replicas: len(replicas), insync: max(1, insync), leader: at}
	enough := len(replicas) - known.insync // besides the leader
	patience := time.NewTimer(endPatience)
	defer patience.Stop()
	var settle <-chan time.Time
	var refusals []error
	silent := 0
	var last error
	for asked > 0 {
		if len(known.others) >= enough {
			if known.bound() == at.offset {
				break // the others can't lower it
			}
			if settle == nil {
				settle = time.After(endSettle)
			}
		}
		select {
		case a := <-answers:
			asked--
			var code *kerr.Error
			switch {
			case a.node == by: // it became the leader meanwhile, and has answered as one
			case a.err == nil:
				known.others = append(known.others, a.at)
				if a.at.epoch > at.epoch {
					k.leaders.refresh() // another leads
				}
			case errors.As(a.err, &code):
				refusals = append(refusals, a.err)
				last = a.err
			default:
				silent++
				last = a.err
			}
			continue
		case <-settle:
		case <-patience.C:
			last = fmt.Errorf("no answer in %v", endPatience)
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		silent += asked
		break
	}
	if silent > 0 {
		refusals = nil
	}
	alone := k.refusals.take(p, len(known.others), refusals, time.Now())
	switch {
	case len(known.others) >= enough || one:
		return known.bound(), nil
	case alone:
		// A cluster whose followers can't be asked. Its leader may know better than Kafka's whether it still is the leader.
		return at.offset, nil
	}
	return 0, fmt.Errorf("end of %s-%d: %w: %d of %d besides the leader, %d are needed: %w", k.id.Topic, p, errFewReplicas, len(known.others), len(replicas)-1, enough, last)
}

// told is an offset as a broker tells it, and the leader epoch that it knows of; -1 where it doesn't say.
type told struct {
	offset int64
	epoch  int32
}

// ends are the answers of a partition's replicas.
type ends struct {
	replicas, insync int
	leader           told // its high watermark
	others           []told
}

// bound is the least offset before which each record is that was acknowledged before the question: insync of the replicas have it, so if n of them answer it
// is among the first insync - (replicas-n) of their ends, the highest first. It is not before the leader's, which readers reach.
func (e *ends) bound() int64 {
	all := []int64{e.leader.offset}
	for _, o := range e.others {
		if o.epoch >= 0 && o.epoch < e.leader.epoch {
			o.offset = min(o.offset, e.leader.offset)
		}
		all = append(all, o.offset)
	}
	slices.Sort(all)
	rank := min(max(1, e.insync-(e.replicas-len(all))), len(all))
	return max(e.leader.offset, all[len(all)-rank])
}

// refusals remembers whether the followers of a cluster can be asked where a partition ends.
type refusals struct {
	mu       sync.Mutex
	answered bool                // one has told an end
	since    map[int32]time.Time // all followers of a partition refuse
}

// take takes over what the followers of p said at now: so many told an end, and these errors came, of all others. It says whether the leader's word counts alone.
func (r *refusals) take(p int32, ends int, errs []error, now time.Time) (alone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = r.answered || ends > 0
	if r.answered || len(errs) == 0 {
		delete(r.since, p)
		return false
	}
	since, ok := r.since[p]
	if !ok {
		since = now
		if r.since == nil {
			r.since = map[int32]time.Time{}
		}
		r.since[p] = now
	}
	long := time.Duration(0)
	for _, err := range errs {
		switch {
		case errors.Is(err, kerr.UnsupportedVersion), errors.Is(err, kerr.InvalidRequest):
		case errors.Is(err, kerr.NotLeaderForPartition):
			long = max(long, notLeaderFor)
		default:
			long = refusedFor
		}
	}
	return now.Sub(since) >= long
}

func (k *Kafka) replicas(p int32) []int32 {
	if p < 0 || p >= k.id.Partitions {
		return nil // listOffset says so
	}
	return k.leaders.replicas(p)
}

func (k *Kafka) leader(p int32) int32 {
	if p < 0 || p >= k.id.Partitions {
		return -1
	}
	return k.leaders.get(p).node
}

// followerEnd asks a follower of p for the end of what it has.
func (k *Kafka) followerEnd(ctx context.Context, node, p int32) (told, error) {
	k.mu.Lock()
	full := k.asking[node] >= askingMax
	if !full {
		k.asking[node]++
	}
	k.mu.Unlock()
	if full {
		return told{}, &connectionError{node, fmt.Errorf("%d questions wait for it already", askingMax)}
	}
	type answer struct {
		at  told
		err error
	}
	got := make(chan answer, 1)
	go func() {
		// Not under ctx, which ends when enough others have answered: what was sent waits for its answer in the connection all the same.
		at, err := k.askOffset(k.ctx, node, p, -1, offsetLatest, debuggingReplica)
		k.mu.Lock()
		k.asking[node]--
		k.mu.Unlock()
		got <- answer{at, err}
	}()
	select {
	case a := <-got:
		return a.at, a.err
	case <-ctx.Done():
		return told{}, context.Cause(ctx)
	}
}

// bounds asks the leader of p where the log starts and ends (high watermark).
func (k *Kafka) bounds(ctx context.Context, p int32) (start, end int64, err error) {
	first, _, err := k.listOffset(ctx, p, offsetEarliest)
	if err != nil {
		return 0, 0, err
	}
	last, _, err := k.listOffset(ctx, p, offsetLatest)
	return first.offset, last.offset, err
}

// Special timestamps of ListOffsets.
const (
	offsetLatest   = -1
	offsetEarliest = -2
)

// listOffset asks the leader of p, by is who that was.
func (k *Kafka) listOffset(ctx context.Context, p int32, timestamp int64) (at told, by int32, err error) {
	err = k.atLeader(ctx, p, func(ctx context.Context, l leadership) (err error) {
		by = l.node
		at, err = k.askOffset(ctx, l.node, p, l.epoch, timestamp, -1)
		return err
	})
	if err != nil {
		return told{}, by, fmt.Errorf("offsets of %s-%d: %w", k.id.Topic, p, err)
	}
	return at, by, nil
}

// askOffset sends one ListOffsets request to a broker.
func (k *Kafka) askOffset(ctx context.Context, node, p, epoch int32, timestamp int64, replica int32) (told, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = replica
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = k.id.Topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.CurrentLeaderEpoch, rp.Timestamp = p, epoch, timestamp
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := request[*kmsg.ListOffsetsResponse](ctx, k, node, req)
	if err != nil {
		return told{}, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return told{}, fmt.Errorf("broker %d answers ListOffsets without partition %d", node, p)
	}
	got := resp.Topics[0].Partitions[0]
	return told{got.Offset, got.LeaderEpoch}, kerr.ErrorForCode(got.ErrorCode)
}
