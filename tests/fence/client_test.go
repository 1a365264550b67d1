package fence

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
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
func (a *asker) ask(op history.Op, req kmsg.Request, set func(*history.Op, kmsg.Response)) error {
	op.Client = fmt.Sprintf("a client of %d", a.node)
	noted := a.rec.Begin(op)
	resp, err := a.exchange(req)
	if err != nil {
		noted.Unknown(err)
		return err
	}
	if err := kafkatest.Refusal(resp); err != nil {
		noted.Failed(err)
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

// exchange asks the replica without taking note.
func (a *asker) exchange(req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lateMax)
	defer cancel()
	return kafkatest.Ask(ctx, a.addr, req)
}

// refusal asks without taking note, and returns the error in the answer, or that there is no answer.
func (a *asker) refusal(req kmsg.Request) error {
	resp, err := a.exchange(req)
	if err != nil {
		return err
	}
	return kafkatest.Refusal(resp)
}

// lookup asks for the coordinator of a group.
func (a *asker) lookup(group string) (int32, error) {
	resp, err := a.exchange(kafkatest.FindCoordinators(group))
	if err != nil {
		return -1, err
	}
	node, _, err := kafkatest.CoordinatorIn(resp)
	return node, err
}

func memberIn(group, member string, epoch int32) kafkatest.Member {
	return kafkatest.Member{Group: group, ID: member, Topic: inTopic, Epoch: epoch}
}

// beat is a heartbeat of a member: at epoch 0 it joins. Its new epoch is returned.
func (a *asker) beat(group, member string, epoch int32) (int32, error) {
	var got int32
	err := a.ask(history.Op{Kind: history.Heartbeat, Group: group, Member: member, Sent: epoch}, memberIn(group, member, epoch).Heartbeat(),
		func(o *history.Op, r kmsg.Response) {
			got = r.(*kmsg.StreamsGroupHeartbeatResponse).MemberEpoch
			o.Epoch = got
		})
	return got, err
}

func (a *asker) commit(group, member string, epoch int32, offset int64) error {
	return a.ask(history.Op{Kind: history.Commit, Group: group, Topic: inTopic, Offset: offset, Member: member, Sent: epoch},
		memberIn(group, member, epoch).Commit(0, offset), nil)
}

func (a *asker) fetch(group string) (int64, error) {
	var got int64
	err := a.ask(history.Op{Kind: history.Fetch, Group: group, Topic: inTopic}, memberIn(group, "", -1).Fetch(0),
		func(o *history.Op, r kmsg.Response) {
			got = kafkatest.CommittedIn(r, inTopic, 0)
			o.Offset = got
		})
	return got, err
}

func (a *asker) describe(group string) error {
	return a.ask(history.Op{Kind: history.Describe, Group: group}, kafkatest.DescribeStreams(group),
		func(o *history.Op, r kmsg.Response) {
			o.Epoch = r.(*kmsg.StreamsGroupDescribeResponse).Groups[0].Epoch
		})
}
