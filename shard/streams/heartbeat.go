package streams

import (
	"slices"
	"strconv"
	"strings"

	"streamkeeper/eventlog"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Keys of the assignment configurations in type-17 records.
const (
	configStandbys = "num.standby.replicas"
	configRackTags = "rack.aware.assignment.tags"
)

// Heartbeat handles a heartbeat that Validate accepted: join, rejoin, beat, leave. The group may be fresh. A refusal is a
// *Error; it changes nothing but, at most, soft facts.
func (g *Group) Heartbeat(env Env, req *kmsg.StreamsGroupHeartbeatRequest) (Result, error) {
	if req.MemberEpoch == epochLeave || req.MemberEpoch == epochStaticLeft {
		return g.leave(env, req)
	}
	b := beat{g: g, env: env, req: req, joining: req.MemberEpoch == epochJoin}
	if err := b.run(); err != nil {
		// What was learned of the topics stays true; that they were looked at does not count, for nothing was written about it.
		return Result{Soft: Soft{configured: b.result.Soft.configured}}, err
	}
	return b.result, nil
}

// beat is one heartbeat of a member that stays: a view of the group in which this member, the topology and the epochs are
// already what the records will make them.
type beat struct {
	g       *Group
	env     Env
	req     *kmsg.StreamsGroupHeartbeatRequest
	joining bool

	was      *member // the member before this heartbeat; a bare one if it is new
	now      *member // and after it
	replaces string  // static membership: the id that was's place was taken from; "" if none
	owned    *assignment

	topology *topology
	conf     *configured
	meta     eventlog.Group // the type-17 value after this heartbeat
	statuses []kmsg.StreamsGroupHeartbeatResponseStatus

	targetEpoch int32
	target      assignment

	result Result
}

// run takes the steps in the order in which Kafka 4.4 takes them (GroupMetadataManager.streamsGroupHeartbeat): it
// decides which refusal a request with several faults meets, and the order of the records.
func (b *beat) run() error {
	if err := b.findMember(); err != nil {
		return err
	}
	bump := b.updateMember()
	if err := b.updateTopology(); err != nil {
		return err
	}
	hashChanged, err := b.configure()
	if err != nil {
		return err
	}
	if err := b.checkOwned(); err != nil {
		return err
	}
	if err := b.takeOffsets(); err != nil {
		return err
	}
	b.bumpEpoch(bump || hashChanged)
	if err := b.updateTarget(); err != nil {
		return err
	}
	if err := b.reconcile(); err != nil {
		return err
	}
	b.timer(Timer{Key: TimerKey{Kind: TimerSession, Member: b.now.id}, After: b.env.Config.SessionTimeout})
	if b.req.ShutdownApplication {
		b.result.Soft.shutdownBy = b.now.id
	}
	b.result.Soft.versions = 1 << b.env.APIVersion
	b.respond()
	if !b.g.exists && b.env.Quirks&QuirkFirstSoftLost != 0 {
		b.result.Soft = Soft{delay: b.result.Soft.delay}
	}
	return nil
}

func (b *beat) record(k eventlog.Key, v eventlog.Value) {
	k.Group = b.g.id
	b.result.Records = append(b.result.Records, eventlog.Record{Key: k, Value: v})
}

func (b *beat) timer(t Timer) { b.result.Timers = append(b.result.Timers, t) }

func (b *beat) status(code int8, detail string) {
	s := kmsg.NewStreamsGroupHeartbeatResponseStatus()
	s.StatusCode, s.StatusDetail = code, detail
	b.statuses = append(b.statuses, s)
}

// updateMember takes over the fields of the request; it says whether that makes a new group epoch.
func (b *beat) updateMember() (bump bool) {
	meta := b.updatedMeta()
	b.now = b.was
	if meta == b.was.meta {
		return false
	}
	n := *b.was
	n.meta = meta
	b.now = &n
	b.record(eventlog.Key{Type: eventlog.TypeMember, Member: n.id}, meta)
	if b.req.InstanceID == nil {
		return true
	}
	// A static member comes and goes with other addresses and time-outs without disturbing the others.
	was := b.was.meta
	return was.TopologyEpoch != meta.TopologyEpoch || !equalPtr(was.RackID, meta.RackID) || was.ProcessID != meta.ProcessID || !slices.Equal(was.ClientTags, meta.ClientTags)
}

// updatedMeta is the member's description after the request: the same pointer if nothing in it changed. Null keeps a field; the
// client id and host are those of the connection; an endpoint that is not given is kept by a beat and cleared by a join.
func (b *beat) updatedMeta() *eventlog.Member {
	was, req := b.was.meta, b.req
	if !b.joining && req.InstanceID == nil && req.RackID == nil && req.RebalanceTimeoutMillis < 0 && req.ProcessID == nil && req.ClientTags == nil &&
		req.UserEndpoint == nil && was.ClientID == b.env.ClientID && was.ClientHost == b.env.ClientHost {
		return was
	}
	m := *was
	m.ClientID, m.ClientHost = b.env.ClientID, b.env.ClientHost
	if req.InstanceID != nil {
		instance := *req.InstanceID // the request stays the caller's
		m.InstanceID = &instance
	}
	if req.RackID != nil {
		rack := *req.RackID
		m.RackID = &rack
	}
	const unchanged = -1
	if req.RebalanceTimeoutMillis != unchanged {
		m.RebalanceTimeoutMs = req.RebalanceTimeoutMillis
	}
	if req.Topology != nil {
		m.TopologyEpoch = req.Topology.Epoch
	}
	if req.ProcessID != nil {
		m.ProcessID = *req.ProcessID
	}
	if req.ClientTags != nil {
		m.ClientTags = clientTags(req.ClientTags)
	}
	if req.UserEndpoint != nil {
		m.UserEndpoint = &eventlog.Endpoint{Host: req.UserEndpoint.Host, Port: req.UserEndpoint.Port}
	} else if b.joining {
		m.UserEndpoint = nil
	}
	// A member that was just created has to be written even where it looks like a bare one.
	if equalMeta(was, &m) && was != bareMeta {
		return was
	}
	return &m
}

func clientTags(list []kmsg.StreamsGroupHeartbeatRequestClientTag) []eventlog.KeyValue {
	tags := make([]eventlog.KeyValue, len(list))
	for i, t := range list {
		tags[i] = eventlog.KeyValue{Key: t.Key, Value: t.Value}
	}
	slices.SortStableFunc(tags, compareKeys)
	return tags
}

// updateTopology takes the first topology of the group and compares every later one with it.
func (b *beat) updateTopology() error {
	b.topology = b.g.topology
	if b.req.Topology != nil {
		t := newTopology(topologyOfRequest(b.req.Topology))
		switch {
		case b.topology == nil:
			b.topology = t
			b.record(eventlog.Key{Type: eventlog.TypeTopology}, t.value)
		case t.value.Epoch < b.topology.value.Epoch: // an old version of the application in a rolling upgrade
		case !equalTopologies(b.topology, t):
			return refuse(codeInvalidRequest, "Topology updates are not supported yet.")
		}
	}
	if b.topology == nil {
		return refuse(codeUnknownServerError, "The topology is null and the group topology is also null.")
	}
	if t := b.g.topology; t != nil && b.now.meta.TopologyEpoch < t.value.Epoch {
		b.status(statusStaleTopology, "The member's topology epoch "+itoa(b.now.meta.TopologyEpoch)+" is behind the group's topology epoch "+itoa(t.value.Epoch)+".")
	}
	return nil
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

// configure looks at the cluster's topics, if they may have changed since the last time or the topology is new.
func (b *beat) configure() (hashChanged bool, err error) {
	b.meta = b.g.meta
	b.conf = b.g.soft.configured
	if b.conf != nil && b.g.topology != nil && b.g.soft.topicsSeen == b.env.Topics.Version() {
		return false, nil
	}
	b.meta.MetadataHash = b.topology.hash(b.env.Topics)
	hashChanged = b.meta.MetadataHash != b.g.meta.MetadataHash
	b.result.Soft.topicsSeen, b.result.Soft.hasTopicsSeen = b.env.Topics.Version(), true
	// What is known may be of other topics than those of the record: a refusal keeps it and writes nothing.
	if hashChanged || b.conf == nil || b.conf.hash != b.meta.MetadataHash || b.g.topology == nil {
		if b.conf, err = configure(b.topology, b.env.Topics); err != nil {
			return false, err
		}
		b.conf.hash = b.meta.MetadataHash
		b.result.Soft.configured = b.conf
	}
	return hashChanged, nil
}

// checkOwned refuses owned tasks that the topology does not have; it can only tell while the topology is ready.
func (b *beat) checkOwned() error {
	if _, all := owns(b.req); !all {
		return nil
	}
	if b.conf.ready() {
		for _, list := range [...][]kmsg.TaskIDs{b.req.ActiveTasks, b.req.StandbyTasks, b.req.WarmupTasks} {
			for _, ids := range list {
				s := b.conf.sub(ids.SubtopologyID)
				if s == nil {
					return refuse(codeInvalidRequest, "Subtopology %s does not exist in the topology.", ids.SubtopologyID)
				}
				for _, p := range ids.Partitions {
					if p < 0 || p >= s.tasks {
						return refuse(codeInvalidRequest, "Task %d for subtopology %s is invalid. Number of tasks for this subtopology: %d", p, s.id, s.tasks)
					}
				}
			}
		}
	}
	b.owned = ownedTasks(b.req)
	return nil
}

// ownedTasks are the tasks that the member says it has; nil if it does not say.
func ownedTasks(req *kmsg.StreamsGroupHeartbeatRequest) *assignment {
	if _, all := owns(req); !all {
		return nil
	}
	return &assignment{active: tasksOfRequest(req.ActiveTasks), standby: tasksOfRequest(req.StandbyTasks), warmup: tasksOfRequest(req.WarmupTasks)}
}

// bumpEpoch makes a new group epoch if there is a reason: a changed member, changed topics, a topology that became ready or
// stopped being so, another configuration.
func (b *beat) bumpEpoch(bump bool) {
	b.meta.ValidatedTopologyEpoch = eventlog.EpochNone
	if b.conf.ready() {
		b.meta.ValidatedTopologyEpoch = b.topology.value.Epoch
	}
	bump = bump || b.meta.ValidatedTopologyEpoch != b.g.meta.ValidatedTopologyEpoch
	if !sameConfigs(b.meta.LastAssignmentConfigs, b.env.Config) {
		b.meta.LastAssignmentConfigs = assignmentConfigs(b.env.Config)
		bump = true
	}
	if !bump {
		return
	}
	b.meta.Epoch++
	v := b.meta
	b.record(eventlog.Key{Type: eventlog.TypeGroup}, &v)
}

// assignmentConfigs are the settings that an assignment depends on, ascending by key.
func assignmentConfigs(c Config) []eventlog.KeyValue {
	configs := []eventlog.KeyValue{{Key: configStandbys, Value: strconv.Itoa(c.NumStandbyReplicas)}}
	if len(c.RackAwareTags) > 0 {
		configs = append(configs, eventlog.KeyValue{Key: configRackTags, Value: strings.Join(c.RackAwareTags, ",")})
	}
	return configs
}

// sameConfigs compares without building the list: it runs at every heartbeat.
func sameConfigs(configs []eventlog.KeyValue, c Config) bool {
	if len(c.RackAwareTags) > 0 {
		return slices.Equal(configs, assignmentConfigs(c))
	}
	return len(configs) == 1 && configs[0].Key == configStandbys && configs[0].Value == strconv.Itoa(c.NumStandbyReplicas)
}

// reconcile takes the member one step towards its target.
func (b *beat) reconcile() error {
	if b.now.reconciledTo(b.targetEpoch) {
		return nil
	}
	next, err := reconciliation{g: b.g, m: b.now, epoch: b.targetEpoch, target: b.target, owned: b.owned}.next()
	if err != nil || next.equalAssignment(b.now) {
		return err
	}
	b.now = next
	b.record(eventlog.Key{Type: eventlog.TypeCurrentMemberAssignment, Member: next.id}, next.currentRecord())
	b.timer(rebalanceTimer(next))
	return nil
}
