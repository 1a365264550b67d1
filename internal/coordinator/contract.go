package coordinator

import (
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/groupconfig"
)

// Caller says who asks: what the request header and the connection tell.
type Caller struct {
	ClientID   string
	ClientHost string // Java's form, "/10.0.0.1"
}

// Node is a replica as clients see it: one more node in Metadata.
type Node struct {
	ID   int32
	Host string
	Port int32
}

// Verdict says whose a group is.
type Verdict int8

const (
	Foreign   Verdict = iota // not a streams group of ours: the cluster answers for it
	Ours                     // ours, and this replica owns its shard
	Elsewhere                // ours, another replica owns its shard (or nobody does right now)
	Undecided                // can't be known now (projection loading, log unreachable), or this replica's claim of its shard is still loading: answer COORDINATOR_LOAD_IN_PROGRESS
)

// Found is what other replicas say of a group.
type Found struct {
	Cluster bool // it is none of ours
	Node    Node // else, where OK is set, the replica that owns it
	OK      bool // false: not known now, the client has to ask again
}

// Service is what the gateway needs. Responses are complete messages in the request's version; a Service never
// returns nil and never panics the caller. Requests that may be about foreign groups are asked about with Judge first.
type Service interface {
	// Node is this replica's own node; Nodes are all replicas seen within the last day and not forgotten since, this one included, ascending by id.
	Node() Node
	Nodes() []Node
	// Owners are the ids of the nodes that own a shard; whole is false where the log could not be read to its end in a bounded time, so that some
	// may be missing.
	Owners(ctx context.Context) (owners map[int32]bool, whole bool)
	// LogTopic is the name of the record log: clients may read it, never write it, delete it or alter it.
	LogTopic() string
	// DescriptionTopic is the name of the topic with topology descriptions, of which the same holds; "" where there is none.
	DescriptionTopic() string

	// Judge says whose the group is. Foreign is only answered after a read barrier on the log partition
	// (design D9); the answer "Ours" is from memory.
	Judge(ctx context.Context, group string) Verdict
	// CatchUp reads the log up to its end, for a bounded time, where a lookup of the groups may need it: the owner of a shard may have
	// changed since this replica last read it. Called before Coordinator where a client is told. It returns those of groups whose owners this replica
	// will not hear of (shard.ErrBlind): others are to be asked, as for those that it does not know.
	CatchUp(ctx context.Context, groups []string) (blind []string)
	// Coordinator names the owner's node of a group of ours; ok is false while nobody owns the shard
	// (COORDINATOR_NOT_AVAILABLE). known is false where the group isn't known as a streams group here.
	Coordinator(ctx context.Context, group string) (n Node, known, ok bool)
	// AskOthers tells of those among groups that Coordinator does not know which this replica can't call the cluster's either, because it has not read
	// the log, and of those that CatchUp returned: whose they are by what other replicas say, or, of the latter, as far as it was read here. Groups that the
	// result lacks are the cluster's, as far as this replica has read.
	AskOthers(ctx context.Context, who Caller, groups []string) map[string]Found

	Heartbeat(ctx context.Context, c Caller, r *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse
	Describe(ctx context.Context, c Caller, r *kmsg.StreamsGroupDescribeRequest) *kmsg.StreamsGroupDescribeResponse
	// Descriptions says whether topology descriptions are kept (KIP-1331); it does not change. Only then may clients be offered
	// TopologyDescriptionUpdate.
	Descriptions() bool
	TopologyDescriptionUpdate(ctx context.Context, c Caller, r *kmsg.StreamsGroupTopologyDescriptionUpdateRequest) *kmsg.StreamsGroupTopologyDescriptionUpdateResponse
	// JoinGroup answers a classic join on a group of ours: refused, or the group is converted and the client sent to the cluster.
	JoinGroup(ctx context.Context, c Caller, r *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse
	OffsetCommit(ctx context.Context, c Caller, r *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse
	// OffsetFetch answers for groups of ours only (v8+: r.Groups holds just those; below: r.Group).
	OffsetFetch(ctx context.Context, c Caller, r *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse
	// OffsetDelete, DeleteGroups, ListGroups: the same. ListGroups lists the groups of shards that this replica
	// answers for, so that those of all replicas together lack none while shards move.
	OffsetDelete(ctx context.Context, c Caller, r *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse
	DeleteGroups(ctx context.Context, c Caller, r *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse
	ListGroups(ctx context.Context, c Caller, r *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse

	// DescribeConfigs, IncrementalAlterConfigs and AlterConfigs answer for GROUP resources with names of streams groups
	// (groupconfig.Prefix) alone, whoever owns the group: it needs not exist. ListConfigResources lists the groups for which such a name is
	// configured, of all shards.
	DescribeConfigs(ctx context.Context, c Caller, r *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse
	IncrementalAlterConfigs(ctx context.Context, c Caller, r *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse
	AlterConfigs(ctx context.Context, c Caller, r *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse
	ListConfigResources(ctx context.Context, c Caller, r *kmsg.ListConfigResourcesRequest) *kmsg.ListConfigResourcesResponse

	// UnregisterBroker takes a replica that is gone out of Nodes, those of all replicas, until it comes back. It does not for one that is alive.
	UnregisterBroker(ctx context.Context, c Caller, node int32) *kmsg.UnregisterBrokerResponse
}

// IsStreamsConfig says that a name that can be configured for a group is about streams groups: it is configured here, all others at
// the cluster.
func IsStreamsConfig(name string) bool { return strings.HasPrefix(name, groupconfig.Prefix) }
