package fence

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/history"
	"streamkeeper/internal/wire"
)

const (
	inTopic = "fence-in"
	// lateMax is how long an answer is waited for: longer than any stop, so that what a woken process says late is heard.
	lateMax = 90 * time.Second
)

// asker asks one replica, whether it is the right one or not, and takes note. Each request has a connection of its own.
type asker struct {
	t    *testing.T
	rec  *history.Recorder
	node int32
	addr string
}

// ask sends a request and has its outcome noted. The error is nil, an answer's, or that there is no answer.
func (a *asker) ask(op history.Op, req kmsg.Request, code func(kmsg.Response) int16, set func(*history.Op, kmsg.Response)) error {
	op.Client = fmt.Sprintf("a client of %d", a.node)
	noted := a.rec.Begin(op)
	ctx, cancel := context.WithTimeout(context.Background(), lateMax)
	defer cancel()
	resp, err := func() (kmsg.Response, error) {
		cl, err := wire.Dial(ctx, a.addr, "fence")
		if err != nil {
			return nil, err
		}
		defer cl.Close()
		return cl.Exchange(ctx, req)
	}()
	if err != nil {
		noted.Unknown(err)
		return err
	}
	if err := kerr.ErrorForCode(code(resp)); err != nil {
		// A write that ended with one of these may be in the log.
		if slices.ContainsFunc([]error{kerr.RequestTimedOut, kerr.NotCoordinator, kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.UnknownServerError},
			func(e error) bool { return errors.Is(err, e) }) {
			noted.Unknown(err)
		} else {
			noted.Refused(err)
		}
		return err
	}
	noted.Done(func(o *history.Op) {
		o.Node = a.node
		if set != nil {
			set(o, resp)
		}
	})
	return nil
}

// beat is a heartbeat of a member: at epoch 0 it joins. Its new epoch is returned.
func (a *asker) beat(group, member string, epoch int32) (int32, error) {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.SetVersion(0)
	req.Group, req.MemberID, req.MemberEpoch, req.RebalanceTimeoutMillis = group, member, epoch, -1
	if epoch == 0 {
		process := "process-" + member
		req.RebalanceTimeoutMillis, req.ProcessID = 60_000, &process
		sub := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		sub.SubtopologyID, sub.SourceTopics = "0", []string{inTopic}
		topology := kmsg.NewStreamsGroupHeartbeatRequestTopology()
		topology.Subtopologies = append(topology.Subtopologies, sub)
		req.Topology = &topology
		req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	}
	var got int32
	err := a.ask(history.Op{Kind: history.Heartbeat, Group: group, Member: member, Sent: epoch}, req,
		func(r kmsg.Response) int16 { return r.(*kmsg.StreamsGroupHeartbeatResponse).ErrorCode },
		func(o *history.Op, r kmsg.Response) {
			got = r.(*kmsg.StreamsGroupHeartbeatResponse).MemberEpoch
			o.Epoch = got
		})
	return got, err
}

func (a *asker) commit(group, member string, epoch int32, offset int64) error {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.SetVersion(9)
	req.Group, req.MemberID, req.Generation = group, member, epoch
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = inTopic
	part := kmsg.NewOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset = 0, offset
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return a.ask(history.Op{Kind: history.Commit, Group: group, Topic: inTopic, Offset: offset, Member: member, Sent: epoch}, req,
		func(r kmsg.Response) int16 { return r.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode }, nil)
}

func (a *asker) fetch(group string) (int64, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.SetVersion(8)
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.Partitions = inTopic, []int32{0}
	g.Topics = append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	var got int64
	err := a.ask(history.Op{Kind: history.Fetch, Group: group, Topic: inTopic}, req,
		func(r kmsg.Response) int16 {
			g := r.(*kmsg.OffsetFetchResponse).Groups[0]
			if g.ErrorCode != 0 {
				return g.ErrorCode
			}
			return g.Topics[0].Partitions[0].ErrorCode
		},
		func(o *history.Op, r kmsg.Response) {
			got = r.(*kmsg.OffsetFetchResponse).Groups[0].Topics[0].Partitions[0].Offset
			o.Offset = got
		})
	return got, err
}

func (a *asker) describe(group string) error {
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.SetVersion(0)
	req.Groups = []string{group}
	return a.ask(history.Op{Kind: history.Describe, Group: group}, req,
		func(r kmsg.Response) int16 { return r.(*kmsg.StreamsGroupDescribeResponse).Groups[0].ErrorCode },
		func(o *history.Op, r kmsg.Response) {
			o.Epoch = r.(*kmsg.StreamsGroupDescribeResponse).Groups[0].Epoch
		})
}
