package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// network is what a member needs of the world.
type network interface {
	// coordinator looks up the coordinator of a group, once.
	coordinator(ctx context.Context, group string) (Node, error)
	// request sends a request to a node, once.
	request(ctx context.Context, node Node, req kmsg.Request) (kmsg.Response, error)
}

type kafkaNetwork struct{ cl *kgo.Client }

// lookupPatience is how long a lookup waits for one node before it asks the next as well.
const lookupPatience = time.Second

// coordinator asks the nodes that are known, each once, until one answers. kgo would go on by itself, with pauses of up to 5 s (its default) between nodes
// that are away; who asks here has pauses of its own, and wants to know as soon as one is back.
func (k kafkaNetwork) coordinator(ctx context.Context, group string) (Node, error) {
	ctx, cancel := context.WithCancel(ctx) // ends what is under way when one has answered
	defer cancel()
	known, seeds := k.cl.DiscoveredBrokers(), k.cl.SeedBrokers() // the latter may be named twice: what was discovered may have moved
	rand.Shuffle(len(known), func(i, j int) { known[i], known[j] = known[j], known[i] })
	rand.Shuffle(len(seeds), func(i, j int) { seeds[i], seeds[j] = seeds[j], seeds[i] })
	answers := make(chan lookedUp, len(known)+len(seeds))
	left, under := append(known, seeds...), 0
	next := func() {
		if len(left) > 0 {
			b := left[0]
			left = left[1:]
			under++
			go func() {
				node, err := k.lookup(ctx, b, group)
				answers <- lookedUp{node, err}
			}()
		}
	}
	patience := time.NewTicker(lookupPatience)
	defer patience.Stop()
	var last error
	for next(); under > 0; {
		select {
		case a := <-answers:
			var refused *Error
			if a.err == nil || errors.As(a.err, &refused) || ctx.Err() != nil {
				return a.node, a.err
			}
			under--
			last = a.err
			next()
		case <-patience.C:
			next()
		}
	}
	if last == nil {
		last = errors.New("the client knows no nodes")
	}
	return Node{}, last
}

// lookup asks one node.
func (k kafkaNetwork) lookup(ctx context.Context, b *kgo.Broker, group string) (Node, error) {
	at, err := findCoordinators(ctx, b, []string{group})
	if err != nil {
		unreached(k.cl, err)
		return Node{}, err
	}
	f, ok := at[group]
	if !ok {
		return Node{}, fmt.Errorf("the answer about coordinators says nothing about group %q", group)
	}
	return f.node, f.err
}

func (k kafkaNetwork) request(ctx context.Context, node Node, req kmsg.Request) (kmsg.Response, error) {
	resp, err := k.cl.Broker(int(node.ID)).Request(ctx, req)
	if err != nil {
		unreached(k.cl, err)
		return nil, unsupported(ctx, k.cl, node, req, err)
	}
	return resp, nil
}

// heartbeat is a StreamsGroupHeartbeat that leaves out of version 0 what Kafka's 4.4 client leaves out: brokers of 4.2 and 4.3 know neither
// warm-up tasks nor task offsets.
type heartbeat struct {
	*kmsg.StreamsGroupHeartbeatRequest
}

// AppendTo encodes the request in the version that was agreed on.
func (h heartbeat) AppendTo(dst []byte) []byte {
	if h.Version > 0 {
		return h.StreamsGroupHeartbeatRequest.AppendTo(dst)
	}
	r := *h.StreamsGroupHeartbeatRequest
	r.TaskOffsets, r.TaskEndOffsets = nil, nil
	if r.WarmupTasks != nil {
		r.WarmupTasks = []kmsg.TaskIDs{}
	}
	return r.AppendTo(dst)
}

// push is a StreamsGroupTopologyDescriptionUpdate that says how long its answer may take. That makes kgo send it on a connection of
// its own: a plugin that takes its time does not hold up the heartbeats behind it.
type push struct {
	*kmsg.StreamsGroupTopologyDescriptionUpdateRequest
	timeout time.Duration
}

// Timeout is in milliseconds.
func (p push) Timeout() int32 { return int32(p.timeout.Milliseconds()) }

// topologyToWire makes what a join sends, ordered as Kafka's client orders it: subtopologies by id, topics by name.
func topologyToWire(epoch int32, subtopologies []Subtopology) (*kmsg.StreamsGroupHeartbeatRequestTopology, error) {
	out := &kmsg.StreamsGroupHeartbeatRequestTopology{Epoch: epoch}
	seen := map[string]bool{}
	for _, in := range subtopologies {
		if seen[in.ID] {
			return nil, fmt.Errorf("two subtopologies have the id %q", in.ID)
		}
		seen[in.ID] = true
		s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		s.SubtopologyID = in.ID
		s.SourceTopics, s.RepartitionSinkTopics = sorted(in.SourceTopics), sorted(in.RepartitionSinkTopics)
		s.RepartitionSourceTopics, s.StateChangelogTopics = internalTopicsToWire(in.RepartitionSourceTopics), internalTopicsToWire(in.ChangelogTopics)
		for _, group := range in.CopartitionGroups {
			g := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup()
			for _, topic := range sorted(group) {
				if i, ok := slices.BinarySearch(s.SourceTopics, topic); ok {
					g.SourceTopics = append(g.SourceTopics, int16(i))
				} else if i := slices.IndexFunc(s.RepartitionSourceTopics, func(t kmsg.TopicInfo) bool { return t.Topic == topic }); i >= 0 {
					g.RepartitionSourceTopics = append(g.RepartitionSourceTopics, int16(i))
				} else {
					return nil, fmt.Errorf("subtopology %q: copartition group %q names %q, which it does not read", in.ID, group, topic)
				}
			}
			s.CopartitionGroups = append(s.CopartitionGroups, g)
		}
		out.Subtopologies = append(out.Subtopologies, s)
	}
	slices.SortFunc(out.Subtopologies, func(a, b kmsg.StreamsGroupHeartbeatRequestTopologySubtopology) int {
		return strings.Compare(a.SubtopologyID, b.SubtopologyID)
	})
	return out, nil
}

func internalTopicsToWire(in []InternalTopic) []kmsg.TopicInfo {
	var out []kmsg.TopicInfo
	for _, t := range in {
		o := kmsg.TopicInfo{Topic: t.Name, NumPartitions: t.Partitions, ReplicationFactor: t.ReplicationFactor}
		if o.ReplicationFactor == 0 {
			o.ReplicationFactor = -1
		}
		for _, k := range slices.Sorted(maps.Keys(t.Configs)) {
			o.Configs = append(o.Configs, kmsg.TopicInfoConfig{Key: k, Value: t.Configs[k]})
		}
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b kmsg.TopicInfo) int { return strings.Compare(a.Topic, b.Topic) })
	return out
}

// sorted is a set made of a list.
func sorted(in []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(in)))
}

// tasksToWire groups sorted tasks by subtopology. It is never nil: nil says that nothing has changed.
func tasksToWire(in []TaskID) []kmsg.TaskIDs {
	out := []kmsg.TaskIDs{}
	for _, t := range in {
		if n := len(out); n == 0 || out[n-1].SubtopologyID != t.Subtopology {
			o := kmsg.NewTaskIDs()
			o.SubtopologyID = t.Subtopology
			out = append(out, o)
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, t.Partition)
	}
	return out
}

func taskOffsetsToWire(in []TaskOffset) []kmsg.TaskOffset {
	out := []kmsg.TaskOffset{}
	for _, o := range in {
		w := kmsg.NewTaskOffset()
		w.SubtopologyID, w.Partition, w.Offset = o.Task.Subtopology, o.Task.Partition, o.Offset
		out = append(out, w)
	}
	return out
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// base is what every heartbeat says.
func (m *Member) base(epoch, endpointEpoch int32) *kmsg.StreamsGroupHeartbeatRequest {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Group, r.MemberID, r.MemberEpoch, r.EndpointInformationEpoch = m.cfg.Group, m.id, epoch, endpointEpoch
	r.InstanceID = text(m.cfg.InstanceID)
	r.ShutdownApplication = m.shutdown.Load()
	return r
}

// join is the first heartbeat, and the one after the coordinator has forgotten the member: everything, and no tasks.
func (m *Member) join(endpointEpoch int32) *kmsg.StreamsGroupHeartbeatRequest {
	r := m.base(joining, endpointEpoch)
	r.RackID, r.ProcessID = text(m.cfg.RackID), &m.cfg.ProcessID
	r.RebalanceTimeoutMillis = int32(min(m.cfg.RebalanceTimeout.Milliseconds(), 1<<31-1))
	r.Topology = m.topology
	r.ActiveTasks, r.StandbyTasks, r.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	r.TaskOffsets, r.TaskEndOffsets = []kmsg.TaskOffset{}, []kmsg.TaskOffset{}
	if e := m.cfg.Endpoint; e != nil {
		r.UserEndpoint = &kmsg.StreamsGroupHeartbeatRequestUserEndpoint{Host: e.Host, Port: e.Port}
	}
	r.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{}
	for _, k := range slices.Sorted(maps.Keys(m.cfg.Tags)) {
		t := kmsg.NewStreamsGroupHeartbeatRequestClientTag()
		t.Key, t.Value = k, m.cfg.Tags[k]
		r.ClientTags = append(r.ClientTags, t)
	}
	return r
}

// pushOf is the push of the description. The topology epoch is that of the joins.
func (m *Member) pushOf(timeout time.Duration) push {
	r := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
	r.Group, r.MemberID, r.TopologyEpoch = m.cfg.Group, m.id, m.cfg.TopologyEpoch
	r.TopologyDescription = *m.description
	return push{r, timeout}
}
