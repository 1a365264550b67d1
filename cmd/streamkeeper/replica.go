package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"

	"streamkeeper/cleanup"
	"streamkeeper/eventlog"
	"streamkeeper/internal/annex"
	"streamkeeper/internal/config"
	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/gateway"
	"streamkeeper/internal/sensor"
	"streamkeeper/internal/telemetry"
	"streamkeeper/internal/wall"
	"streamkeeper/plugin"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/offsets"
)

const (
	// upstreamTry is how long one attempt to reach the cluster may take, and so how often a start that waits says so.
	upstreamTry = 10 * time.Second
	// heartbeatsPerSession is how many heartbeats fit an ownership session. A replica hears with its next one that another is gone, and the shards wait for
	// the last replica to hear of it.
	heartbeatsPerSession = 12
	// deleteRetentionUnread is taken for the log topic's delete.retention.ms where the cluster does not tell it: Kafka's default.
	deleteRetentionUnread = 24 * time.Hour
	// dataDirMode is that of a data directory which is made here: committed offsets and names of groups are nobody else's business.
	dataDirMode = 0o750
	// tracesMax bounds the sending of the last spans: nobody waits long for a backend of traces that does not answer.
	tracesMax = 3 * time.Second
)

// replica is one replica before it runs.
type replica struct {
	flags    config.Replica
	eff      config.Effective
	upstream []string
	plugin   plugin.Plugin // of topology descriptions, from prepare; nil: none
	log      *slog.Logger
}

// running is what is known once it does.
type running struct {
	bootstrap string // what applications bootstrap to
	admin     string // "" for none
}

// parts are the parts of a running replica, in the order in which they were made.
type parts struct {
	upstream   *kgo.Client
	log        *eventlog.Kafka
	store      *projection.Store
	topics     *coordinator.Topics
	membership *handover
	host       *shard.Host
	service    *coordinator.Coordinator
	gateway    *gateway.Gateway
	cycle      *cleanup.Cycle
	deleted    *cleanup.Topics
	sensors    sensor.Set
	describing *describing  // nil: no topology descriptions
	space      *annex.Space // nil: they are not kept on the cluster
	progress   *progress
	systemd    *telemetry.Systemd // nil: nobody wants to know
	stop       *stopping
	stopping   atomic.Bool
	abandoned  bool // a part did not end when it was told to
}

// prepare finds what can't work as it is set, before a cluster is waited for.
func (r *replica) prepare() (err error) {
	if r.plugin, err = r.openPlugin(); err != nil {
		return err
	}
	return usableDir(r.flags.DataDir)
}

// run makes the parts one after the other, runs them until ctx ends, and takes them down in order. ready is called once
// the replica serves.
func (r *replica) run(ctx context.Context, ready func(*running)) (err error) {
	stop := &stopping{timeout: r.flags.ShutdownTimeout}
	systemd, err := telemetry.NewSystemd(os.Getenv, os.Getpid(), r.log)
	if err != nil { // it would be ended for its silence, for a reason that nobody sees
		return err
	}
	defer systemd.Close()
	telling, told := context.WithCancel(context.WithoutCancel(ctx))
	defer told()
	go systemd.Run(telling)
	instance := uuid.NewString()
	metrics, err := telemetry.NewMetrics()
	if err != nil {
		return err
	}
	traces, err := telemetry.StartTraces(ctx, r.log, attribute.String("service.version", version()),
		attribute.String("service.instance.id", instance), attribute.Int("streamkeeper.node.id", int(r.flags.NodeID)))
	if err != nil {
		return err
	}
	defer r.flush(stop, traces)
	if traces.Where != "" {
		r.log.Info("traces are sent", "to", traces.Where)
	}

	var adm *telemetry.Admin
	if r.flags.AdminListen != "" {
		if adm, err = telemetry.ListenAdmin(r.flags.AdminListen, metrics, r.log); err != nil {
			return err
		}
		defer func() {
			bounded, cancel := stop.context(stopTraces)
			defer cancel()
			_ = adm.Close(bounded)
		}()
		go func() {
			if err := adm.Serve(); err != nil {
				r.log.Error("the admin address is not served any more", "err", err)
			}
		}()
	}

	p := &parts{stop: stop}
	defer func() {
		if !p.close() {
			r.log.Error("the stop is not over in time, the process ends all the same", "waitedFor", "what was made to be taken down")
			err = errors.Join(err, errors.New("the stop is not over in time: what was made is not taken down"))
		}
	}()
	if p.describing, err = newDescribing(r.plugin, plugin.Config{Tracer: traces.Provider.Tracer("streamkeeper"), Logger: r.log}, r.flags.PluginReaskLost); err != nil {
		return err
	}
	if err := r.build(ctx, p, traces, metrics, instance); err != nil {
		return err
	}
	if err := registerMetrics(metrics, p); err != nil {
		return err
	}
	systemd.RequireAlive(p.alive()...)
	systemd.Status(p.status)
	if adm != nil {
		adm.Require(p.checks()...)
		adm.RequireAlive(p.alive()...)
		adm.Handle("GET "+shardsPath, p.shardsHandler(r.flags.NodeID))
	}
	now := &running{bootstrap: r.bootstrap(p.gateway)}
	if adm != nil {
		now.admin = adm.Addr().String()
	}
	p.systemd = systemd
	return r.serve(ctx, p, func() { systemd.Ready(); ready(now) })
}

// build makes the parts. It waits for a cluster that can't be reached, and fails where something can't work as it is set.
func (r *replica) build(ctx context.Context, p *parts, traces *telemetry.Traces, metrics *telemetry.Metrics, instance string) (err error) {
	tracer := traces.Provider.Tracer("streamkeeper")
	if r.eff.Listen, err = fixPort(r.eff.Listen); err != nil {
		return err
	}
	node, err := r.node()
	if err != nil {
		return err
	}
	address := net.JoinHostPort(node.Host, strconv.Itoa(int(node.Port)))

	clientID := kgo.ClientID(fmt.Sprintf("streamkeeper/%d", node.ID))
	if p.upstream, err = kgo.NewClient(kgo.SeedBrokers(r.upstream...), clientID, kgo.DisableClientMetrics()); err != nil {
		return fmt.Errorf("--bootstrap-servers: %w", err)
	}
	logConfig := eventlog.KafkaConfig{
		SeedBrokers: r.upstream, ClientOptions: []kgo.Opt{clientID}, Topic: r.flags.LogTopic, Partitions: r.flags.LogPartitions,
		ReplicationFactor: r.flags.LogReplicationFactor, Logger: r.log, Tracer: tracer, MayCreate: r.mayCreateLog,
	}
	if p.log, err = opening(ctx, r, p.upstream, func(ctx context.Context) (*eventlog.Kafka, error) {
		if err := notItself(ctx, p.upstream, r.flags.LogTopic); err != nil {
			return nil, err
		}
		return eventlog.OpenKafka(ctx, logConfig)
	}); err != nil {
		return err
	}
	if p.store, err = projection.Open(projection.Config{
		Dir: r.projectionDir(), Identity: p.log.Identity(), KeepOther: !r.flags.AcceptNewLog,
		DeleteRetention: cmp.Or(p.log.Settings().DeleteRetention, deleteRetentionUnread), Now: wall.Now, Logger: r.log,
	}); err != nil {
		if errors.Is(err, projection.ErrOtherLog) {
			err = fmt.Errorf("%w. %s", err, lastCopyAdvice)
		}
		return ofOwnDir(err)
	}
	// Only now: what the directory holds of descriptions is the last copy where that of the groups is, and would make way for another topic's.
	if err := r.openDescriptionTopic(ctx, p, logConfig); err != nil {
		return err
	}
	p.progress = &progress{store: p.store, partitions: p.log.Identity().Partitions}
	p.topics = coordinator.NewTopics(coordinator.TopicsConfig{
		Client: p.upstream, Broker: func(n int32) kmsg.Requestor { return p.upstream.Broker(int(n)) }, Witness: r.flags.LogTopic,
		OnDeleted: func(name string) { p.deleted.Deleted(name) }, Logger: r.log,
	})

	former := formerMember{file: filepath.Join(r.flags.DataDir, formerFile), lock: filepath.Join(r.projectionDir(), projection.LockFile), log: r.log}
	membership, err := shard.NewMembership(shard.MembershipConfig{
		Former: former.read(r.flags.LogTopic, node.ID),
		Joined: former.memory(r.flags.LogTopic, node.ID),
		Opts:   []kgo.Opt{kgo.SeedBrokers(r.upstream...), kgo.DisableClientMetrics()}, LogTopic: r.flags.LogTopic, NodeID: node.ID, Address: address,
		SessionTimeout: r.flags.OwnershipSessionTimeout, HeartbeatInterval: r.flags.OwnershipSessionTimeout / heartbeatsPerSession,
		Logger: r.log,
	})
	if err != nil {
		return err
	}
	p.membership = &handover{KafkaMembership: membership}
	env := offsets.Env{MetadataBytesMax: r.eff.Kafka.OffsetMetadataBytesMax, Retention: r.eff.Kafka.OffsetsRetention}
	p.host = shard.New(shard.Config{
		Log: p.log, Store: p.store, Membership: p.membership,
		Self:    eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: node.ID, Address: address, Instance: instance},
		Topics:  p.topics.Snapshot,
		Groups:  r.eff.Kafka.Groups,
		Offsets: env, Descriptions: p.describing != nil, TenureEnded: p.describing.tenureEnded(p.log.Identity().Partitions),
		Converting: func(group string) { p.service.SettleConversion(group) }, // shards run only when all parts are made
		Now:        wall.Now, Logger: r.log, Tracer: tracer,
	})
	p.service = coordinator.New(coordinator.Config{
		Node: node, LogTopic: r.flags.LogTopic, DescriptionTopic: p.describing.topicName(r.flags.LogTopic), Shards: p.host, Replicas: p.store.Replicas, Topics: p.topics,
		RequiredTopics: func(group string) ([]string, error) { return storedTopics(p.store, p.host.Partition(group), group) },
		Foreign:        coordinator.NewUpstreamGroups(p.upstream),
		Creator:        coordinator.UpstreamCreator{Client: p.upstream},
		Peers:          coordinator.NewKafkaPeers(node.ID),
		Descriptions:   p.describing.coordinator(p.host),
		Conversions:    &coordinator.Conversions{Shards: p.host, Cluster: coordinator.UpstreamClassicGroups{Client: p.upstream}},
		Assignor:       r.eff.Kafka.Groups.Config().Assignor, WriteTimeout: r.eff.Kafka.OffsetsCommitTimeout, Now: wall.Now, Logger: r.log,
	})
	p.cycle = cleanup.New(cleanup.Config{
		Interval: r.eff.Kafka.OffsetsRetentionCheckEvery, Logger: r.log, Tracer: tracer,
		Shards: func() []cleanup.Shard {
			return sweptShards(p.host, p.store, env, func(s *sweptShard) cleanup.Shard { return s })
		},
		Descriptions: p.describing.cleanup(),
	})
	p.deleted = cleanup.NewTopics(cleanup.TopicsConfig{
		Interval: r.eff.Kafka.OffsetsRetentionCheckEvery, Now: wall.Now, Logger: r.log, Tracer: tracer, Gone: p.topics.Gone,
		Shards: func() []cleanup.TopicShard {
			return sweptShards(p.host, p.store, env, func(s *sweptShard) cleanup.TopicShard { return s })
		},
	})
	p.gateway, err = gateway.New(gateway.Config{
		Listen: r.eff.Listen, Advertise: address, BrokerPortBase: r.eff.BrokerPortBase, NodeID: node.ID, Upstream: r.upstream,
		Service: p.service, Logger: r.log, Tracer: tracer, Meter: metrics.Provider().Meter("streamkeeper"),
	})
	return err
}

func (r *replica) projectionDir() string { return filepath.Join(r.flags.DataDir, "projection") }

// lastCopyAdvice is what to do where the directory has groups and their log is not there.
const lastCopyAdvice = "If the topic was deleted, this directory may be the last copy of the groups and their committed offsets: keep a copy of it; " +
	"streamkeeper restore writes it into a new topic. " +
	"If --bootstrap-servers or --log-topic lead elsewhere than before, mend them. To begin anew without these groups, start with --accept-new-log"

// mayCreateLog refuses to make an empty log where the data directory has groups of it: their applications would start over.
func (r *replica) mayCreateLog() error {
	if r.flags.AcceptNewLog {
		return nil
	}
	held, err := projection.Look(projection.Config{Dir: r.projectionDir(), Logger: r.log})
	if err != nil {
		return ofOwnDir(err)
	}
	if held.Empty() {
		return nil
	}
	return fmt.Errorf("--data-dir: %s holds %s (and the configuration of %d) of topic %s. %s", r.projectionDir(), counted(held.Groups, "group"), held.Configured, held.Topic, lastCopyAdvice)
}

// node is this replica as clients see it.
func (r *replica) node() (coordinator.Node, error) {
	_, port, err := net.SplitHostPort(r.eff.Listen)
	if err != nil {
		return coordinator.Node{}, fmt.Errorf("--listen: %w", err)
	}
	if r.eff.AdvertisePort > 0 {
		port = strconv.Itoa(r.eff.AdvertisePort)
	}
	n, err := coordinator.ParseNode(r.flags.NodeID, net.JoinHostPort(r.eff.AdvertiseHost, port))
	if err != nil {
		return n, fmt.Errorf("--advertise: %w", err)
	}
	return n, nil
}

// fixPort replaces port 0 by a free one: the log and the ownership group name the address before the gateway listens.
func fixPort(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port != "0" {
		return address, err
	}
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("--listen: %w", err)
	}
	defer ln.Close()
	_, port, err = net.SplitHostPort(ln.Addr().String())
	return net.JoinHostPort(host, port), err
}

// passing says that an error of the start may be another one in a while: nobody listens, or a broker is still starting. What the disk refuses is not of
// the cluster, although the system's error numbers look like those of the network.
func passing(err error) bool {
	if ofDisk(err) {
		return false
	}
	var (
		network net.Error
		first   *kgo.ErrFirstReadEOF // a new connection that ends at once, as of a broker that is being stopped, or of a proxy whose broker is away; also one that wants TLS, of which the text speaks
	)
	return errors.As(err, &network) || errors.As(err, &first) || kgo.IsRetryableBrokerErr(err) || errors.Is(err, kgo.ErrClientClosed)
}

// ofDisk says that something below --data-dir can't be read or written.
func ofDisk(err error) bool {
	var path *fs.PathError
	return errors.Is(err, projection.ErrStorage) || errors.As(err, &path)
}

// ofOwnDir says of an error that it is of the data directory, and what to do where another process uses that.
func ofOwnDir(err error) error {
	if errors.Is(err, projection.ErrLocked) {
		return fmt.Errorf("--data-dir: %w: another replica runs with it, and each needs one of its own; or streamkeeper restore reads it, wait until that has ended", err)
	}
	return fmt.Errorf("--data-dir: %w", err)
}

// usableDir makes the data directory and tries whether something can be written into it: before the cluster is waited for, so that a wrong directory is
// told at once.
func usableDir(dir string) error {
	if err := os.MkdirAll(dir, dataDirMode); err != nil {
		return fmt.Errorf("--data-dir: %w", err)
	}
	f, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return fmt.Errorf("--data-dir: %s can't be written to: %w", dir, err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// bootstrap is the address that applications bootstrap to.
func (r *replica) bootstrap(g *gateway.Gateway) string {
	host, port := g.Advertised()
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// storedTopics names the topics of the topology that the projection holds of a group.
func storedTopics(store projection.Reader, p int32, group string) ([]string, error) {
	records, err := store.Group(p, group)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range records {
		t, ok := s.Record.Value.(*eventlog.Topology)
		if !ok {
			continue
		}
		for _, sub := range t.Subtopologies {
			names = append(append(names, sub.SourceTopics...), sub.RepartitionSinkTopics...)
			for _, info := range append(append([]eventlog.TopicInfo(nil), sub.RepartitionSourceTopics...), sub.StateChangelogTopics...) {
				names = append(names, info.Name)
			}
		}
	}
	return names, nil
}

// flush sends the last spans.
func (r *replica) flush(stop *stopping, traces *telemetry.Traces) {
	bounded, cancel := context.WithTimeout(context.Background(), min(tracesMax, stop.left(stopTraces)))
	defer cancel()
	if err := traces.Shutdown(bounded); err != nil {
		r.log.Warn("the last traces are not delivered", "err", err)
	}
}
