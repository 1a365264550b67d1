package coordinator

import (
	"context"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
	"streamkeeper/shard"
	"streamkeeper/shard/groupconfig"
	"streamkeeper/shard/offsets"
	"streamkeeper/shard/streams"
)

// Shards is what the coordinator needs of the shards of this replica and of the log; *shard.Host is one.
type Shards interface {
	// Partition is the shard of a group; Partitions is how many there are.
	Partition(group string) int32
	Partitions() int32
	// Owns says that this replica serves the shard; Owner whom the log names as its owner.
	Owns(p int32) bool
	Owner(p int32) (eventlog.Owner, bool)
	// Known says that the log has the streams group, as far as this replica has read it; with an error where it reads no further. Barrier
	// reads up to the end.
	Known(group string) (bool, error)
	Barrier(ctx context.Context, p int32) error
	// Fresh says that the shard was read to its end a moment ago; Unread that there is certainly something in it that was not read, or may well be.
	Fresh(p int32) bool
	Unread(p int32) bool

	Heartbeat(ctx context.Context, c shard.Caller, version int16, req *kmsg.StreamsGroupHeartbeatRequest) (shard.HeartbeatResult, error)
	Describe(ctx context.Context, group string) (kmsg.StreamsGroupDescribeResponseGroup, error)
	Explain(ctx context.Context, group string) (shard.Explained, error)
	Commit(ctx context.Context, c offsets.Commit, member string, epoch int32, instance *string) (*kmsg.OffsetCommitResponse, error)
	Fetch(ctx context.Context, group *kmsg.OffsetFetchRequestGroup, requireStable bool) (kmsg.OffsetFetchResponseGroup, error)
	DeleteOffsets(ctx context.Context, req *kmsg.OffsetDeleteRequest, judge func(topic string, partition int32) int16) (*kmsg.OffsetDeleteResponse, error)
	DeleteGroup(ctx context.Context, group string) error
	List(ctx context.Context) ([]shard.Listed, error)

	// AlterConfig changes what is configured for a group; GroupConfig and GroupsWithConfig read it, as far as this replica has read the log.
	AlterConfig(ctx context.Context, group string, validateOnly bool, alter func(*groupconfig.Broker, map[string]string) (map[string]string, *streams.Error)) error
	GroupConfig(group string) (map[string]string, error)
	GroupsWithConfig(p int32, f func(group string)) error
	// Groups are the settings of streams groups.
	Groups() *groupconfig.Broker

	// Members are the replicas in the ownership group, as the cluster says. Forget has the replica of an ownership record forgotten, if this
	// replica owns the ownership group's shard; Forgotten says that it was, and was not heard of since.
	Members(ctx context.Context) ([]shard.GroupMember, error)
	Forget(ctx context.Context, o eventlog.Owner) error
	Forgotten(o eventlog.Owner) bool
}

// Config configures a Coordinator.
type Config struct {
	// Node is this replica as clients see it.
	Node Node
	// LogTopic is the name of the record log.
	LogTopic string
	// DescriptionTopic is the name of the topic with topology descriptions; "" where there is none.
	DescriptionTopic string
	Shards           Shards
	// Replicas are ownership records of all replicas, of the last day at least; Nodes is made of them.
	Replicas func() []eventlog.Owner
	// Topics knows the cluster's topics.
	Topics *Topics
	// RequiredTopics names the topics of a group that is in the log but was not heard of since this process
	// started, or since its topics were let go; empty where the group is unknown.
	RequiredTopics func(group string) ([]string, error)
	// Foreign tells whether the cluster itself has a live group of that id; nil: never asked.
	Foreign ForeignGroups
	// Creator creates internal topics of groups; nil: they are left to somebody else.
	Creator TopicCreator
	// Peers sends requests to other replicas; nil: there are none. Close closes it.
	Peers Peers
	// Descriptions keeps topology descriptions; nil: none are kept, and members never asked.
	Descriptions *Descriptions
	// Conversions makes classic groups of empty streams groups that classic members join; nil: such joins are refused.
	Conversions *Conversions
	// Assignor is the name that describe gives for the next assignment.
	Assignor string
	// WriteTimeout is how long a request may wait for what it wrote to be durable (offsets.commit.timeout.ms); the client is
	// then told to try again, and what was written may be in the log all the same. 5 s where 0, as in Kafka.
	WriteTimeout time.Duration
	// Now is the wall clock; time.Now where nil.
	Now    func() time.Time
	Logger *slog.Logger
}

const writeTimeoutDefault = 5 * time.Second

// Coordinator is the Service. Its methods are safe for concurrent use.
type Coordinator struct {
	cfg        Config
	shards     Shards
	topics     *Topics
	log        *slog.Logger
	remembered remembered
	barriers   barriers
	creation   *creation
	// descriptions is nil where none are kept.
	descriptions *descriptions
	// conversions is nil where groups are not converted.
	conversions *conversions
	others      others

	foreignUnknown foreignUnknown
}

var (
	_ Service = (*Coordinator)(nil)
	_ Shards  = (*shard.Host)(nil)
)

// New returns a coordinator. cfg.Topics must be running before the first request, and Close called after the last.
func New(cfg Config) *Coordinator {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.WriteTimeout <= 0 {
		cfg.WriteTimeout = writeTimeoutDefault
	}
	return &Coordinator{
		cfg: cfg, shards: cfg.Shards, topics: cfg.Topics, log: cfg.Logger,
		barriers: barriers{read: cfg.Shards.Barrier, next: map[int32]*barrier{}, busy: map[int32]bool{}},
		creation: newCreation(cfg), descriptions: newDescriptions(cfg.Descriptions),
		conversions: newConversions(cfg.Conversions),
	}
}

// Close ends the creation of internal topics and closes the topology description plugin. Requests may still come.
func (c *Coordinator) Close() {
	c.creation.close()
	c.conversions.close()
	if c.cfg.Peers != nil {
		c.cfg.Peers.Close()
	}
	if c.descriptions == nil {
		return
	}
	if err := c.descriptions.plugin.Close(context.Background()); err != nil { // bounded by the plugin's own configuration
		c.log.Warn("topology description plugin not closed in order", "err", err)
	}
}

// CreationStats counts the internal topics that were created, or could not be.
func (c *Coordinator) CreationStats() CreationStats {
	return CreationStats{Created: c.creation.created.Load(), Failed: c.creation.failed.Load()}
}

// caller is the caller as shards know it.
func (c Caller) shard() shard.Caller {
	return shard.Caller{ClientID: c.ClientID, ClientHost: c.ClientHost}
}

// writing bounds a call of a shard that may have to wait for the log.
func (c *Coordinator) writing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.cfg.WriteTimeout)
}

// failed makes a failure of err and logs it: what no running system should produce as an error, the rest for debugging.
func (c *Coordinator) failed(api, group string, err error, args ...any) failure {
	return c.report(failureOf(err), api, group, err, args...)
}

func (c *Coordinator) report(f failure, api, group string, err error, args ...any) failure {
	level := slog.LevelDebug
	if f.Unexpected {
		level = slog.LevelError
	}
	if c.log.Enabled(context.Background(), level) {
		c.log.Log(context.Background(), level, "request refused", append([]any{"api", api, "group", group, "code", f.Code, "err", err}, args...)...)
	}
	return f
}
