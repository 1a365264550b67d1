package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

// onlookEvery is the time between two questions of an onlooker.
const onlookEvery = 200 * time.Millisecond

// onlooker asks one replica, and no other, about groups of all of them, whoever owns them: a client with an old view. A replica that was replaced and does
// not know it yet would tell it what is no longer so. What it is told joins the history; that a group isn't there is never true.
type onlooker struct {
	w        *world
	replica  int
	conn     *wire.Client
	answered atomic.Int64

	mu     sync.Mutex
	denied []string
}

// deniedMax bounds what is told of denials: one that goes on makes hundreds.
const deniedMax = 10

func (o *onlooker) run(ctx context.Context) {
	groups := o.w.groups()
	members := groupsOf(o.w.members)
	for ctx.Err() == nil {
		var err error
		switch group := groups[rand.IntN(len(groups))]; rand.IntN(3) {
		case 0:
			err = o.find(group)
		case 1:
			err = o.describe(group)
		case 2: // what applications commit is not in the history
			group, p := members[rand.IntN(len(members))], rand.Int32N(inPartitions)
			err = o.note(history.Op{Kind: history.Fetch, Group: group, Topic: inTopic, Partition: p}, kafkatest.Member{Group: group, Topic: inTopic}.Fetch(p),
				func(op *history.Op, r kmsg.Response) { op.Offset = kafkatest.CommittedIn(r, inTopic, p) })
		}
		if err == nil {
			o.answered.Add(1)
		}
		select {
		case <-ctx.Done():
		case <-time.After(onlookEvery):
		}
	}
	o.forget()
}

func (o *onlooker) forget() {
	if o.conn != nil {
		o.conn.Close()
	}
	o.conn = nil
}

// exchange asks; an error that is no answer ends the connection.
func (o *onlooker) exchange(req kmsg.Request) (kmsg.Response, error) {
	// Not ended by the run's end: see member.ask.
	ctx, cancel := context.WithTimeout(context.Background(), answerMax)
	defer cancel()
	if o.conn == nil {
		conn, err := wire.Dial(ctx, o.w.keepers[o.replica].Bootstrap(), fmt.Sprint("onlooker-", o.replica))
		if err != nil {
			return nil, err
		}
		o.conn = conn
	}
	resp, err := o.conn.Exchange(ctx, req)
	if err != nil {
		o.forget()
	}
	return resp, err
}

// note asks and has the outcome noted.
func (o *onlooker) note(op history.Op, req kmsg.Request, done func(*history.Op, kmsg.Response)) error {
	op.Client = fmt.Sprint("onlooker-", o.replica)
	noted := o.w.rec.Begin(op)
	resp, err := o.exchange(req)
	if err != nil {
		noted.Unknown(err)
		return err
	}
	if err := kafkatest.Refusal(resp); err != nil {
		noted.Failed(err)
		return err
	}
	noted.Done(func(op *history.Op) {
		op.Node = firstNode + int32(o.replica)
		done(op, resp)
	})
	return nil
}

// describe asks for a group's epoch.
func (o *onlooker) describe(group string) error {
	err := o.note(history.Op{Kind: history.Describe, Group: group}, kafkatest.DescribeStreams(group),
		func(op *history.Op, r kmsg.Response) {
			op.Epoch = r.(*kmsg.StreamsGroupDescribeResponse).Groups[0].Epoch
		})
	if errors.Is(err, kerr.GroupIDNotFound) {
		o.deny("%s: replica %d describes it: %v", group, o.replica, err)
	}
	return err
}

// find looks the coordinator up: a group that is ours is at one of ours, also by the word of a replica that still reads the log, because its data directory was lost say: it
// asks others, or has the client ask again.
func (o *onlooker) find(group string) error {
	resp, err := o.exchange(kafkatest.FindCoordinators(group))
	if err != nil {
		return err
	}
	node, addr, err := kafkatest.CoordinatorIn(resp)
	if err == nil && node < firstNode {
		o.deny("%s: replica %d leads to node %d at %s, of the cluster", group, o.replica, node, addr)
	}
	return err
}

func (o *onlooker) deny(format string, a ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.denied) < deniedMax {
		o.denied = append(o.denied, fmt.Sprintf("after %.2fs, ", o.w.now().Seconds())+fmt.Sprintf(format, a...))
	}
}

func (o *onlooker) denials() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.denied)
}
