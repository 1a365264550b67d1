package streams

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// noStatus is an empty, not null, list.
var noStatus = []kmsg.StreamsGroupHeartbeatResponseStatus{}

// respond builds the response of a member that stays.
func (b *beat) respond() {
	r := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	b.result.Response = r
	r.Version = b.env.APIVersion
	r.MemberID, r.MemberEpoch = b.now.id, b.now.epoch
	r.HeartbeatIntervalMillis = int32(b.env.Config.HeartbeatInterval.Milliseconds())
	r.TaskOffsetIntervalMillis = int32(b.env.Config.TaskOffsetInterval.Milliseconds())
	r.AcceptableRecoveryLag = b.env.Config.AcceptableRecoveryLag

	changed := !b.was.assigned.equal(b.now.assigned)
	if b.joining || changed || b.missedAssignment() {
		r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = b.now.assigned.active.wire(), b.now.assigned.standby.wire(), b.now.assigned.warmup.wire()
	}
	b.respondEndpoints(r, changed)

	if p := b.conf.problem; p != nil {
		b.status(p.code, p.detail)
		b.result.Create = b.conf.create
	}
	if by := b.shutdownBy(); by != "" {
		b.status(statusShutdown, "Streams group member "+by+" encountered a fatal error and requested a shutdown for the entire application.")
	}
	if missing := missingTags(b.now, b.env.Config.RackAwareTags); len(missing) > 0 && b.env.APIVersion >= apiVersionWithClientTags {
		b.status(statusMissingClientTags, fmt.Sprintf("Missing required client tags for rack-aware standby assignment: [%s]. "+
			"Configure them via 'client.tag.<tagKey>' in your Streams config.", strings.Join(missing, ", ")))
	}
	r.Status = noStatus
	if b.statuses != nil {
		r.Status = b.statuses
	}
}

// shutdownBy is the member that asked for the shutdown of the application, this request included.
func (b *beat) shutdownBy() string {
	if b.g.soft.shutdownBy != "" {
		return b.g.soft.shutdownBy
	}
	return b.result.Soft.shutdownBy
}

func missingTags(m *member, required []string) (missing []string) {
	for _, tag := range required {
		has := false
		for _, kv := range m.meta.ClientTags {
			has = has || kv.Key == tag
		}
		if !has {
			missing = append(missing, tag)
		}
	}
	return missing
}

// respondEndpoints tells where partitions can be queried, if that changed since the member was told last. The epoch of
// a group that this request creates is 0 whatever the request brought: nobody can know an earlier one.
func (b *beat) respondEndpoints(r *kmsg.StreamsGroupHeartbeatResponse, tasksChanged bool) {
	epoch := b.g.soft.endpointEpoch
	if !equalPtr(b.was.meta.UserEndpoint, b.now.meta.UserEndpoint) || tasksChanged && b.now.hasEndpoint() {
		epoch++
		b.result.Soft.endpointEpoch, b.result.Soft.hasEndpointEpoch = epoch, b.g.exists
	}
	if epoch != b.req.EndpointInformationEpoch {
		r.PartitionsByUserEndpoint = []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpoint{}
		for _, m := range b.membersCallerLast() {
			if m.hasEndpoint() {
				r.PartitionsByUserEndpoint = append(r.PartitionsByUserEndpoint, b.endpointOf(m))
			}
		}
	}
	if b.g.exists {
		r.EndpointInformationEpoch = epoch
	}
}

func (b *beat) membersCallerLast() []*member {
	members := b.members()
	i := slices.Index(members, b.now)
	return append(slices.Delete(members, i, i+1), b.now)
}

// endpointOf lists the partitions that the member's tasks read. Before the counts of a topology are known the lists are empty
// (Kafka 4.4 fails the heartbeat there).
func (b *beat) endpointOf(m *member) kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpoint {
	e := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpoint()
	e.UserEndpoint.Host, e.UserEndpoint.Port = m.meta.UserEndpoint.Host, m.meta.UserEndpoint.Port
	e.ActivePartitions = []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointActivePartition{}
	e.StandbyPartitions = []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpointStandbyPartition{}
	active := b.partitionsOf(m.assigned.active)
	for _, topic := range slices.Sorted(maps.Keys(active)) {
		p := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpointActivePartition()
		p.Topic, p.Partitions = topic, active[topic]
		e.ActivePartitions = append(e.ActivePartitions, p)
	}
	standby := b.partitionsOf(union(m.assigned.standby, m.assigned.warmup))
	for _, topic := range slices.Sorted(maps.Keys(standby)) {
		p := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpointStandbyPartition()
		p.Topic, p.Partitions = topic, standby[topic]
		e.StandbyPartitions = append(e.StandbyPartitions, p)
	}
	return e
}

func (b *beat) partitionsOf(t tasks) map[string][]int32 {
	r := map[string][]int32{}
	t.bySubtopology(func(id string, share tasks) {
		sub := b.conf.sub(id)
		if sub == nil {
			return
		}
		read := func(topic string) {
			info, _ := b.env.Topics.Topic(topic)
			for _, x := range share {
				if x.partition < info.Partitions {
					r[topic] = append(r[topic], x.partition)
				}
			}
		}
		for _, topic := range sub.sources {
			read(topic)
		}
		for _, info := range sub.repartitionSources {
			read(info.Name)
		}
	})
	for topic, partitions := range r { // two subtopologies may read one topic
		slices.Sort(partitions)
		r[topic] = slices.Compact(partitions)
	}
	return r
}

// missedAssignment says that the member does not have what it was assigned, and does not say so because it is giving
// tasks up: the response that told it must have been lost, so it is told again.
func (b *beat) missedAssignment() bool {
	return b.owned != nil && b.env.Quirks&QuirkAssignmentNotRepeated == 0 && !b.owned.same(b.now.assigned)
}
