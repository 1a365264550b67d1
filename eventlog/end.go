package eventlog

import (
	"context"
	"errors"
	"fmt"
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

const (
	// endPatience is how long enough replicas may take to answer before they are asked again, or, where a single one may acknowledge, are done without.
	endPatience = 2 * time.Second
	// askingMax bounds the questions that wait for one broker: one that hangs would collect all that are asked meanwhile. Beyond it that broker counts as silent.
	askingMax = 32
	// debuggingReplica is the replica id of who asks a follower (ListOffsetsRequest.DEBUGGING_REPLICA_ID).
	debuggingReplica = -2
)

// errFewReplicas: too few of a partition's replicas answer for its end to be known.
var errFewReplicas = errors.New("too few replicas of the partition answer")

// End implements Log.
func (k *Kafka) End(ctx context.Context, p int32) (int64, error) {
	ctx, cancel := mergeContext(ctx, k.ctx)
	defer cancel()
	for attempt := 0; ; attempt++ {
		end, told, err := k.endOnce(ctx, p)
		switch {
		case err == nil:
			return end, nil
		case !errors.Is(err, errFewReplicas):
			return 0, err
		case told && attempt > 0:
			// The others answer, twice, that they say nothing of this partition: a cluster whose followers can't be asked. Its leader may know better
			// than Kafka's whether it still is the leader.
			return end, nil
		}
		k.leaders.refresh()
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case <-time.After(retryPause(attempt)):
		}
	}
}

// endOnce asks the leader and enough others. Where these do not answer with an end the error is errFewReplicas; told says that all of them answered, and
// end is then the leader's.
func (k *Kafka) endOnce(ctx context.Context, p int32) (end int64, told bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	replicas, leader := k.replicas(p), k.leader(p)
	type answer struct {
		node int32
		end  int64
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
			end, err := k.followerEnd(ctx, node, p)
			answers <- answer{node, end, err}
		}()
	}
	end, by, err := k.listOffset(ctx, p, offsetLatest)
	if err != nil {
		return 0, false, err
	}
	enough := len(replicas) - 1 // besides the leader
	one := k.settings.MinInsyncReplicas <= 1
	if !one {
		enough = max(0, len(replicas)-k.settings.MinInsyncReplicas)
	}
	patience := time.NewTimer(endPatience)
	defer patience.Stop()
	highest, answered, silent := end, 0, 0
	var last error
	for ; answered < enough && asked > 0; asked-- {
		select {
		case a := <-answers:
			var code *kerr.Error
			switch {
			case a.node == by: // it became the leader meanwhile, and has answered as one
			case a.err == nil:
				answered++
				highest = max(highest, a.end)
			case errors.As(a.err, &code):
				last = a.err
			default:
				silent++
				last = a.err
			}
			continue
		case <-patience.C:
			last = fmt.Errorf("no answer in %v", endPatience)
		case <-ctx.Done():
			return 0, false, context.Cause(ctx)
		}
		silent += asked
		break
	}
	if answered >= enough || one {
		return highest, true, nil
	}
	return end, silent == 0, fmt.Errorf("end of %s-%d: %w: %d of %d besides the leader, %d are needed: %w", k.id.Topic, p, errFewReplicas, answered, len(replicas)-1, enough, last)
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
func (k *Kafka) followerEnd(ctx context.Context, node, p int32) (int64, error) {
	k.mu.Lock()
	full := k.asking[node] >= askingMax
	if !full {
		k.asking[node]++
	}
	k.mu.Unlock()
	if full {
		return 0, &connectionError{node, fmt.Errorf("%d questions wait for it already", askingMax)}
	}
	type answer struct {
		end int64
		err error
	}
	got := make(chan answer, 1)
	go func() {
		// Not under ctx, which ends when enough others have answered: what was sent waits for its answer in the connection all the same.
		end, err := k.askOffset(k.ctx, node, p, -1, offsetLatest, debuggingReplica)
		k.mu.Lock()
		k.asking[node]--
		k.mu.Unlock()
		got <- answer{end, err}
	}()
	select {
	case a := <-got:
		return a.end, a.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// bounds asks the leader of p where the log starts and ends (high watermark).
func (k *Kafka) bounds(ctx context.Context, p int32) (start, end int64, err error) {
	if start, _, err = k.listOffset(ctx, p, offsetEarliest); err != nil {
		return 0, 0, err
	}
	end, _, err = k.listOffset(ctx, p, offsetLatest)
	return start, end, err
}

// Special timestamps of ListOffsets.
const (
	offsetLatest   = -1
	offsetEarliest = -2
)

// listOffset asks the leader of p, by is who that was.
func (k *Kafka) listOffset(ctx context.Context, p int32, timestamp int64) (offset int64, by int32, err error) {
	err = k.atLeader(ctx, p, func(ctx context.Context, l leadership) (err error) {
		by = l.node
		offset, err = k.askOffset(ctx, l.node, p, l.epoch, timestamp, -1)
		return err
	})
	if err != nil {
		return 0, by, fmt.Errorf("offsets of %s-%d: %w", k.id.Topic, p, err)
	}
	return offset, by, nil
}

// askOffset sends one ListOffsets request to a broker.
func (k *Kafka) askOffset(ctx context.Context, node, p, epoch int32, timestamp int64, replica int32) (int64, error) {
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
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("broker %d answers ListOffsets without partition %d", node, p)
	}
	got := resp.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}
