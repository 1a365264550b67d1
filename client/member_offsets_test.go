package client

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// other waits for the next commit or fetch, and answers heartbeats meanwhile.
func (l *life) other() *exchange {
	l.t.Helper()
	for {
		select {
		case x := <-l.others:
			return x
		case x := <-l.beats:
			x.ok(max(x.beat().MemberEpoch, 1))
		case <-time.After(time.Hour):
			l.t.Fatal("nothing comes")
		}
	}
}

// committed answers a commit: each partition with the code that code says.
func (x *exchange) committed(code func(topic string, partition int32) *kerr.Error) {
	resp := kmsg.NewPtrOffsetCommitResponse()
	for _, t := range x.req.(byNameCommit).Topics {
		out := kmsg.NewOffsetCommitResponseTopic()
		out.Topic = t.Topic
		for _, p := range t.Partitions {
			o := kmsg.NewOffsetCommitResponseTopicPartition()
			o.Partition = p.Partition
			if e := code(t.Topic, p.Partition); e != nil {
				o.ErrorCode = e.Code
			}
			out.Partitions = append(out.Partitions, o)
		}
		resp.Topics = append(resp.Topics, out)
	}
	x.out <- outcome{resp: resp}
}

func all(e *kerr.Error) func(string, int32) *kerr.Error {
	return func(string, int32) *kerr.Error { return e }
}

func TestCommit(t *testing.T) {
	living(t, func(c *MemberConfig) { c.InstanceID = "i" }, func(l *life) {
		l.entered(0, 1)
		done := make(chan error, 1)
		commit := func(offsets map[TopicPartition]Offset) {
			go func() { done <- l.m.Commit(context.Background(), offsets) }()
		}
		commit(map[TopicPartition]Offset{{"in", 1}: {7, 3, "m"}, {"in", 0}: {5, -1, ""}, {"also", 2}: {1, -1, ""}})
		x := l.other()
		r := x.req.(byNameCommit)
		if r.Group != "g" || r.MemberID != l.m.ID() || r.Generation != 1 || *r.InstanceID != "i" || r.MaxVersion() != 9 || len(r.Topics) != 2 || r.Topics[0].Topic != "also" ||
			r.Topics[1].Partitions[1].Offset != 7 || r.Topics[1].Partitions[1].LeaderEpoch != 3 || *r.Topics[1].Partitions[1].Metadata != "m" {
			t.Fatalf("%+v", r.OffsetCommitRequest)
		}
		// What is refused for good, what may pass, and what is done: only the second is sent again.
		x.committed(func(topic string, partition int32) *kerr.Error {
			switch {
			case topic == "also":
				return kerr.OffsetMetadataTooLarge
			case partition == 1:
				return kerr.UnknownTopicOrPartition
			}
			return nil
		})
		x = l.other()
		if r := x.req.(byNameCommit); len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].Partition != 1 {
			t.Fatalf("%+v", r.OffsetCommitRequest)
		}
		x.committed(all(nil))
		if err := <-done; !errors.Is(err, kerr.OffsetMetadataTooLarge) || !strings.HasPrefix(err.Error(), `commit offsets of group "g": also-2: `) {
			t.Error(err)
		}
		commit(nil)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Each row of Kafka's table of commit errors.
func TestCommitErrors(t *testing.T) {
	one := map[TopicPartition]Offset{{"in", 0}: {5, -1, ""}}
	for _, e := range []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator, kerr.RequestTimedOut, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.StaleMemberEpoch} {
		living(t, nil, func(l *life) {
			l.entered(0)
			done := make(chan error, 1)
			go func() { done <- l.m.Commit(context.Background(), one) }()
			x := l.other()
			before := x.at
			x.committed(all(e))
			x = l.other()
			within(t, e.Message, x.at-before, 80*time.Millisecond, 120*time.Millisecond)
			x.committed(all(nil))
			if err := <-done; err != nil {
				t.Errorf("%v: %v", e, err)
			}
			if _, elsewhere := moved(e); elsewhere != (l.looked() == 2) {
				t.Errorf("%v: %d lookups", e, l.looked())
			}
		})
	}
	for _, e := range []*kerr.Error{kerr.UnknownMemberID, kerr.GroupAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.InvalidCommitOffsetSize, kerr.UnknownServerError} {
		living(t, nil, func(l *life) {
			l.entered(0)
			done := make(chan error, 1)
			go func() { done <- l.m.Commit(context.Background(), one) }()
			l.other().committed(all(e))
			if err := <-done; !errors.Is(err, e) {
				t.Errorf("%v: %v", e, err)
			}
		})
	}
	living(t, nil, func(l *life) { // no answer for a while, and then never
		l.entered(0)
		done := make(chan error, 1)
		go func() { done <- l.m.Commit(context.Background(), one) }()
		l.other().fail(errReset)
		for l.other(); ; {
			select {
			case err := <-done:
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				within(t, "the end", time.Since(l.start), adminTimeout, adminTimeout+time.Second)
				return
			case <-l.others:
			case x := <-l.beats:
				x.ok(1)
			}
		}
	})
	living(t, nil, func(l *life) { // before the join
		if err := l.m.Commit(context.Background(), one); !errors.Is(err, ErrNotMember) {
			t.Error(err)
		}
	})
}

// What is committed with a STALE_MEMBER_EPOCH is sent again with the newer epoch, but never with that of a later life: the tasks are somebody else's by then.
func TestCommitEndsWithTheLifeThatItBeganIn(t *testing.T) {
	one := map[TopicPartition]Offset{{"in", 0}: {5, -1, ""}}
	living(t, nil, func(l *life) {
		l.entered(0)
		done := make(chan error, 1)
		go func() { done <- l.m.Commit(context.Background(), one) }()
		x := l.other()
		l.beat().ok(2)
		l.beat() // the answer before it was read
		x.committed(all(kerr.StaleMemberEpoch))
		x = <-l.others
		if epoch := x.req.(byNameCommit).Generation; epoch != 2 {
			t.Errorf("sent again with epoch %d", epoch)
		}
		x.committed(all(nil))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for _, lost := range []*kerr.Error{kerr.UnknownMemberID, kerr.FencedMemberEpoch} {
		for _, e := range []*kerr.Error{kerr.StaleMemberEpoch, kerr.NotCoordinator, kerr.UnknownTopicOrPartition} {
			living(t, nil, func(l *life) {
				l.entered(0)
				done := make(chan error, 1)
				go func() { done <- l.m.Commit(context.Background(), one) }()
				x := l.other() // whose answer is late
				l.beat().refuse(lost, "")
				l.beat().ok(7, assigned(1))
				l.beat().ok(7)
				x.committed(all(e))
				select {
				case err := <-done:
					if !errors.Is(err, ErrNotMember) {
						t.Errorf("%v, %v: %v", lost, e, err)
					}
				case x := <-l.others:
					t.Errorf("%v, %v: sent again with epoch %d", lost, e, x.req.(byNameCommit).Generation)
					x.committed(all(nil))
					<-done
				}
			})
		}
	}
}

// The last commit is made while tasks are given up, with the epoch that still counts.
func TestCommitFromRevoke(t *testing.T) {
	var m *Member
	living(t, func(c *MemberConfig) {
		c.Revoke = func(ctx context.Context, _ Tasks) error {
			return m.Commit(ctx, map[TopicPartition]Offset{{"in", 0}: {9, -1, ""}})
		}
	}, func(l *life) {
		m = l.m
		l.entered(0)
		l.cancel()
		x := l.other()
		if r := x.req.(byNameCommit); r.Generation != 1 {
			t.Errorf("%+v", r.OffsetCommitRequest)
		}
		x.committed(all(nil))
		x = l.beat()
		for x.beat().MemberEpoch != -1 {
			x.ok(1)
			x = l.beat()
		}
		x.ok(-1)
		if err := l.ended(); err != nil {
			t.Error(err)
		}
	})
}

func TestCommitted(t *testing.T) {
	living(t, nil, func(l *life) {
		type result struct {
			offsets []CommittedOffset
			err     error
		}
		done := make(chan result, 1)
		fetch := func() {
			go func() {
				o, err := l.m.Committed(context.Background(), TopicPartition{"in", 1}, TopicPartition{"in", 0})
				done <- result{o, err}
			}()
		}
		answer := func(x *exchange, group *kerr.Error, partition *kerr.Error) {
			resp := kmsg.NewPtrOffsetFetchResponse()
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group = "g"
			if group != nil {
				g.ErrorCode = group.Code
			}
			for _, t := range x.req.(byName).Groups[0].Topics {
				topic := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic}
				for _, p := range t.Partitions {
					o := kmsg.NewOffsetFetchResponseGroupTopicPartition()
					o.Partition, o.Offset = p, int64(p)*10-1
					if partition != nil {
						o.ErrorCode = partition.Code
					}
					topic.Partitions = append(topic.Partitions, o)
				}
				g.Topics = append(g.Topics, topic)
			}
			resp.Groups = append(resp.Groups, g)
			x.out <- outcome{resp: resp}
		}
		fetch() // before the join
		x := <-l.others
		if g := x.req.(byName).Groups[0]; g.MemberID != nil || g.MemberEpoch != -1 || !x.req.(byName).RequireStable {
			t.Errorf("%+v", g)
		}
		answer(x, nil, nil)
		if r := <-done; r.err != nil || len(r.offsets) != 2 || r.offsets[0].Offset != NoOffset || r.offsets[1].Offset != 9 {
			t.Errorf("%+v", r)
		}
		l.entered(0)
		for _, e := range []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.NotCoordinator, kerr.StaleMemberEpoch} {
			fetch()
			x = l.other()
			if g := x.req.(byName).Groups[0]; *g.MemberID != l.m.ID() || g.MemberEpoch != 1 {
				t.Errorf("%+v", g)
			}
			answer(x, e, nil)
			answer(l.other(), nil, nil)
			if r := <-done; r.err != nil {
				t.Errorf("%v: %v", e, r.err)
			}
		}
		fetch()
		answer(l.other(), nil, kerr.UnstableOffsetCommit)
		answer(l.other(), nil, nil)
		if r := <-done; r.err != nil {
			t.Error(r.err)
		}
		for _, e := range []*kerr.Error{kerr.UnknownMemberID, kerr.GroupAuthorizationFailed} {
			fetch()
			answer(l.other(), e, nil)
			if r := <-done; !errors.Is(r.err, e) || r.offsets != nil {
				t.Errorf("%v: %+v", e, r)
			}
		}
		fetch()
		answer(l.other(), nil, kerr.TopicAuthorizationFailed)
		if r := <-done; !errors.Is(r.err, kerr.TopicAuthorizationFailed) {
			t.Errorf("%+v", r)
		}
		if o, err := l.m.Committed(context.Background()); err != nil || !reflect.DeepEqual(o, []CommittedOffset(nil)) {
			t.Errorf("%+v, %v", o, err)
		}
	})
}
