package streams

import (
	"streamkeeper/eventlog"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// leave handles the epochs -1 (for good) and -2 (a static member that will be back).
func (g *Group) leave(env Env, req *kmsg.StreamsGroupHeartbeatRequest) (Result, error) {
	if !g.exists {
		return Result{}, refuse(codeGroupIDNotFound, "Group %s not found.", g.id)
	}
	var soft Soft
	if req.ShutdownApplication {
		soft.shutdownBy = req.MemberID // even if the member is not known any more
	}
	m := g.members[req.MemberID]
	if req.InstanceID != nil {
		var err error
		if m, err = g.staticMember(req.MemberID, *req.InstanceID); err != nil {
			return Result{Soft: soft}, err
		}
	}
	if m == nil {
		return Result{Soft: soft}, refuseUnknown(req.MemberID, g.id)
	}
	var r Result
	if req.MemberEpoch == epochStaticLeft {
		r = g.leaveForAWhile(m)
	} else {
		r = g.remove(m)
	}
	r.Soft = soft
	r.Response = kmsg.NewPtrStreamsGroupHeartbeatResponse()
	r.Response.Version = env.APIVersion
	r.Response.MemberID, r.Response.MemberEpoch, r.Response.Status = req.MemberID, req.MemberEpoch, noStatus
	return r, nil
}

// remove takes a member out: on leave, and when its session or its time to give up tasks is over.
func (g *Group) remove(m *member) Result {
	meta := g.meta
	meta.Epoch++
	r := Result{
		Records: append(g.memberTombstones(m.id), eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeGroup, Group: g.id}, Value: &meta}),
		Timers:  []Timer{cancelTimer(TimerSession, m.id), cancelTimer(TimerRebalance, m.id)},
	}
	if len(g.members) == 1 {
		// The target of an empty group is empty too. No timestamp: whoever comes next need not wait.
		r.Records = append(r.Records, eventlog.Record{
			Key: eventlog.Key{Type: eventlog.TypeTargetAssignment, Group: g.id}, Value: &eventlog.TargetAssignment{AssignmentEpoch: meta.Epoch},
		})
	}
	return r
}

// leaveForAWhile marks a static member as gone. It keeps its tasks, and its session timer runs on.
func (g *Group) leaveForAWhile(m *member) Result {
	n := *m
	n.epoch, n.revoking = epochStaticLeft, assignment{}
	n.assigned.active = n.assigned.active.withEpoch(0)
	return Result{Records: []eventlog.Record{{
		Key: eventlog.Key{Type: eventlog.TypeCurrentMemberAssignment, Group: g.id, Member: m.id}, Value: n.currentRecord(),
	}}}
}
