package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Settings are those of the topic and the brokers that matter to the log. A duration of 0, or a number of -1, was not
// readable (the cluster doesn't know it, or doesn't let us see it).
type Settings struct {
	BatchBytesMax     int           // max.message.bytes of the topic
	DeleteRetention   time.Duration // delete.retention.ms: how long a tombstone outlives compaction
	MinCompactionLag  time.Duration // min.compaction.lag.ms
	MinInsyncReplicas int           // min.insync.replicas
	ReplicationFactor int           // as the topic has it

	TransactionalIDExpiration time.Duration // transactional.id.expiration.ms, the least of all brokers
	ProducerIDExpiration      time.Duration // producer.id.expiration.ms, the least of all brokers
}

const (
	replicationFactorDefault = 3
	// segmentBytes is Kafka's own for its offsets topic: small enough that compaction soon gets at old records.
	segmentBytes = 104857600
	// compactionLagMin leaves time to repair a void record before compaction takes it for the latest (design D4).
	compactionLagMin = time.Hour
	// batchBytesDefault is used where max.message.bytes can't be read: Kafka's default.
	batchBytesDefault = 1048588
	// batchBytesLeast is the least max.message.bytes that is useful: one member of a large group must fit.
	batchBytesLeast = 64 << 10
	// topicTimeout bounds the creation of the topic on the broker's side.
	topicTimeout = 30 * time.Second
)

// bootstrap creates the topic where it is missing, checks it, and fills in k.id, k.settings and k.leaders.
func (k *Kafka) bootstrap(ctx context.Context) error {
	topic, err := k.ensureTopic(ctx)
	if err != nil {
		return err
	}
	k.id = Identity{Topic: k.cfg.Topic, TopicID: topic.TopicID, Partitions: int32(len(topic.Partitions))}
	if want := k.cfg.Partitions; want > 0 && want != k.id.Partitions {
		return k.wrong("partition count", strconv.Itoa(int(k.id.Partitions)), strconv.Itoa(int(want)),
			k.partitionsAdvice())
	}
	if err := k.readSettings(ctx); err != nil {
		return err
	}
	k.insync.Store(int32(k.settings.MinInsyncReplicas))
	k.batchBytes.Store(int64(k.settings.BatchBytesMax))
	k.settings.ReplicationFactor = len(topic.Partitions[0].Replicas)
	if n := k.settings.MinInsyncReplicas; k.settings.ReplicationFactor >= 3 && n == 1 {
		k.log.Warn("one replica is enough to acknowledge a record of the "+k.cfg.what+": an unclean end of that broker loses it; set min.insync.replicas=2", "topic", k.id.Topic)
	}
	k.leaders = newLeaders(k.client, k.log, k.id)
	k.leaders.roster = &k.roster
	k.leaders.annex = k.cfg.annex
	k.leaders.take(topic)
	return nil
}

// wrong is the error of a topic that can't be used as it is.
func (k *Kafka) wrong(setting, found, want, advice string) error {
	return fmt.Errorf("%s %s: %s is %s, must be %s: %s", k.cfg.what, k.cfg.Topic, setting, found, want, advice)
}

// ensureTopic returns the topic's metadata, after creating it if there is none. Where it was created every partition has a leader. One that was there may have lost some
// leaders for long: the other partitions are served all the same.
func (k *Kafka) ensureTopic(ctx context.Context) (*kmsg.MetadataResponseTopic, error) {
	created, begun := false, time.Now()
	for attempt := 0; ; attempt++ {
		topic, err := topicMetadata(ctx, k.client, &k.roster, k.cfg.Topic)
		switch {
		case err == nil && len(topic.Partitions) > 0 && (!created || hasLeaders(topic)):
			return topic, nil
		case err == nil:
			err = fmt.Errorf("%s %s: %w", k.cfg.what, k.cfg.Topic, errNoLeader)
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return nil, fmt.Errorf("%s %s: %w: the process needs DESCRIBE, READ, WRITE and (to create it) CREATE on it", k.cfg.what, k.cfg.Topic, err)
		case errors.Is(err, kerr.UnknownTopicOrPartition) && !created:
			if refused := k.mayCreate(); refused != nil && time.Since(begun) < missingFor {
				err = refused
				break
			} else if refused != nil {
				return nil, fmt.Errorf("%s %s does not exist: %w", k.cfg.what, k.cfg.Topic, refused)
			}
			switch few := k.createTopic(ctx); {
			case few == nil:
				created = true
				continue
			case !errors.Is(few, ErrFewBrokers) || time.Since(begun) >= missingFor:
				return nil, few
			default:
				err = few // they may still be starting
			}
		case !retriable(err) && !errors.Is(err, kerr.UnknownTopicOrPartition):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(retryPause(attempt)):
		}
	}
}

func (k *Kafka) mayCreate() error {
	if k.cfg.MayCreate == nil {
		return nil
	}
	return k.cfg.MayCreate()
}

func hasLeaders(topic *kmsg.MetadataResponseTopic) bool {
	for _, p := range topic.Partitions {
		if p.Leader < 0 {
			return false
		}
	}
	return len(topic.Partitions) > 0
}

func (k *Kafka) createTopic(ctx context.Context) error {
	partitions := k.cfg.Partitions
	if partitions == 0 {
		partitions = defaultPartitions
	}
	factor, err := k.replicationFactor(ctx)
	if err != nil {
		return err
	}
	configs := [][2]string{
		{"cleanup.policy", "compact"}, // stays the first
		{"compression.type", "producer"},
		{"segment.bytes", strconv.Itoa(segmentBytes)},
		{"min.compaction.lag.ms", strconv.FormatInt(compactionLagMin.Milliseconds(), 10)},
		{"unclean.leader.election.enable", "false"},
	}
	if factor >= 3 {
		configs = append(configs, [2]string{"min.insync.replicas", "2"})
	}
	refused := func(err error) bool {
		return errors.Is(err, kerr.InvalidConfig) || errors.Is(err, kerr.InvalidRequest) || errors.Is(err, kerr.PolicyViolation)
	}
	if max := k.cfg.annex.BatchBytesWanted; max > 0 {
		err = k.createWith(ctx, partitions, factor, append(slices.Clone(configs), [2]string{"max.message.bytes", strconv.Itoa(max)}))
		if refused(err) {
			k.log.Warn("the cluster does not let a topic have such large batches, it is created with the cluster's own limit", "topic", k.cfg.Topic, "max.message.bytes", max, "err", err)
		}
	}
	if k.cfg.annex.BatchBytesWanted == 0 || refused(err) {
		err = k.createWith(ctx, partitions, factor, configs)
	}
	if refused(err) {
		// A compatible log need not know all of Kafka's settings; without the first it is of no use.
		k.log.Warn("the cluster refuses the settings of the "+k.cfg.what+", it is created with cleanup.policy alone", "topic", k.cfg.Topic, "err", err)
		err = k.createWith(ctx, partitions, factor, configs[:1])
	}
	switch {
	case err == nil:
		k.log.Info(k.cfg.what+" created", "topic", k.cfg.Topic, "partitions", partitions, "replicationFactor", factor)
		return nil
	case errors.Is(err, kerr.TopicAlreadyExists):
		return nil // another replica was quicker; what it made is checked like any other
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("%s %s does not exist and can't be created: %w: allow CREATE on it, or create it yourself with cleanup.policy=compact", k.cfg.what, k.cfg.Topic, err)
	}
	return fmt.Errorf("%s %s can't be created (%d partitions, replication factor %d): %w", k.cfg.what, k.cfg.Topic, partitions, factor, err)
}

// ErrFewBrokers: the cluster has fewer brokers than the topic is to have replicas. It passes where the cluster is still starting.
var ErrFewBrokers = errors.New("too few brokers")

// replicationFactor is how many replicas the topic is created with. The setting left out, there are three, but not more than the brokers' own topic of
// offsets has (offsets.topic.replication.factor), without which there is no ownership group either: where that says that there are brokers to come
// the topic must not be made with fewer replicas for good, because we started before them. A cluster that doesn't tell is taken as it is.
func (k *Kafka) replicationFactor(ctx context.Context) (int16, error) {
	brokers, err := k.brokers(ctx)
	if err != nil {
		return 0, err
	}
	if factor := k.cfg.ReplicationFactor; factor > 0 {
		if int(factor) > len(brokers) {
			return 0, fmt.Errorf("%w: %s %s: replication factor %d is more than the cluster's %d brokers: set a smaller one, or add brokers", ErrFewBrokers, k.cfg.what, k.cfg.Topic, factor, len(brokers))
		}
		return factor, nil
	}
	c, unread := firstAnswer(ctx, &k.roster, brokers, k.brokerConfigs)
	if unread != nil {
		k.log.Debug("the settings of no broker can be read", "err", unread)
	} else if n, ok := c.number("offsets.topic.replication.factor"); ok && int(min(n, replicationFactorDefault)) > len(brokers) {
		return 0, fmt.Errorf("%w: %s %s is to have %d replicas, as the brokers' offsets.topic.replication.factor is %d, and the cluster has %d brokers yet: start the others, or set --log-replication-factor",
			ErrFewBrokers, k.cfg.what, k.cfg.Topic, min(n, replicationFactorDefault), n, len(brokers))
	}
	if unread != nil && len(brokers) < replicationFactorDefault {
		k.log.Warn("the brokers' settings can't be read, so it is not known whether there are brokers to come: the "+k.cfg.what+" is created on those that are there",
			"topic", k.cfg.Topic, "brokers", len(brokers), "err", unread)
	}
	return int16(min(replicationFactorDefault, len(brokers))), nil
}

func (k *Kafka) createWith(ctx context.Context, partitions int32, factor int16, configs [][2]string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(topicTimeout.Milliseconds())
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = k.cfg.Topic, partitions, factor
	for _, c := range configs {
		rc := kmsg.NewCreateTopicsRequestTopicConfig()
		rc.Name, rc.Value = c[0], kmsg.StringPtr(c[1])
		rt.Configs = append(rt.Configs, rc)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, k.client)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 {
		return fmt.Errorf("the answer to CreateTopics has %d topics", len(resp.Topics))
	}
	err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	if m := resp.Topics[0].ErrorMessage; err != nil && m != nil {
		return fmt.Errorf("%w (%s)", err, *m)
	}
	return err
}

// brokers are the node ids of the cluster's brokers.
func (k *Kafka) brokers(ctx context.Context) ([]int32, error) {
	resp, err := anyBroker(ctx, k.client, &k.roster, true, func(ctx context.Context, to kmsg.Requestor) (*kmsg.MetadataResponse, error) {
		req := kmsg.NewPtrMetadataRequest()
		req.Topics = []kmsg.MetadataRequestTopic{}
		return req.RequestWith(ctx, to)
	})
	if err != nil {
		return nil, fmt.Errorf("metadata of the log's cluster: %w", err)
	}
	var ids []int32
	for _, b := range resp.Brokers {
		ids = append(ids, b.NodeID)
	}
	return ids, nil
}

// readSettings reads and checks the topic's settings, and reads the brokers'. What can't be read for want of a
// permission is warned about; what is known to be wrong is an error.
func (k *Kafka) readSettings(ctx context.Context) error {
	k.settings = Settings{BatchBytesMax: batchBytesDefault, MinInsyncReplicas: -1}
	topic, err := k.topicConfigs(ctx)
	switch {
	case err == nil:
		if err := k.checkTopic(topic); err != nil {
			return err
		}
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed), errors.Is(err, kerr.UnsupportedVersion):
		k.log.Warn("the settings of the "+k.cfg.what+" can't be read, so they are not checked: see that cleanup.policy is compact and message.timestamp.type is CreateTime", "topic", k.id.Topic, "err", err)
	default:
		return fmt.Errorf("%s %s: reading its settings: %w", k.cfg.what, k.id.Topic, err)
	}
	brokers, err := k.brokers(ctx)
	if err != nil {
		return err
	}
	if told, err := k.readBrokers(ctx, brokers); err != nil && !told { // a broker that is away is set as the others are
		k.log.Warn("the brokers' settings can't be read: if they forget transactional ids or producer ids sooner than after a day, claims are renewed too seldom",
			"topic", k.id.Topic, "renewal", k.cfg.RenewInterval, "err", err)
	}
	k.settings.TransactionalIDExpiration, k.settings.ProducerIDExpiration = k.expiry.transactionalID, k.expiry.producerID
	return nil
}

// brokerConfigsTimeout is how long a broker may take to tell its settings. Only it can tell them, and it may hang: a start must not wait for that one, and what it has not told
// is asked again.
const brokerConfigsTimeout = 2 * time.Second

// expiry is when the brokers forget, as far as they have told.
type expiry struct {
	mu                          sync.Mutex
	transactionalID, producerID time.Duration // the least; 0: none has told
	unread                      []int32       // the brokers that are still to tell
}

// renewal is how long a claim may go without a renewal, for what the brokers forget; 0 where that is not known.
func (e *expiry) renewal() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	var soonest time.Duration
	least(&soonest, e.transactionalID/4)
	least(&soonest, e.producerID/4)
	return soonest
}

// readBrokers reads the settings of brokers, of all at the same time. told says that one of them answered with its own; err is why another did not. Those without an answer are in
// k.expiry.unread.
func (k *Kafka) readBrokers(ctx context.Context, brokers []int32) (told bool, err error) {
	type answer struct {
		broker int32
		configs
		err error
	}
	answers := make(chan answer, len(brokers))
	for _, id := range brokers {
		go func() {
			c, err := k.brokerConfigs(ctx, id)
			answers <- answer{id, c, err}
		}()
	}
	e := &k.expiry
	var unread []int32
	for range brokers {
		a := <-answers
		if a.err != nil {
			err = a.err
			if answered := (*kerr.Error)(nil); !errors.As(err, &answered) || answered.Retriable {
				unread = append(unread, a.broker)
			}
			k.log.Debug("the settings of a broker can't be read", "broker", a.broker, "err", err)
			continue
		}
		told = true
		e.mu.Lock()
		least(&e.transactionalID, a.duration("transactional.id.expiration.ms"))
		least(&e.producerID, a.duration("producer.id.expiration.ms"))
		e.mu.Unlock()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unread = unread
	return told, err
}

// readBrokersAgain asks the brokers that had no answer when the log was opened, those that the cluster still lists, and has claims renewed as often as it takes.
func (k *Kafka) readBrokersAgain(ctx context.Context) {
	k.expiry.mu.Lock()
	missing := slices.Clone(k.expiry.unread)
	k.expiry.mu.Unlock()
	missing = slices.DeleteFunc(missing, func(id int32) bool { return k.roster.gone(id, time.Time{}) })
	if len(missing) == 0 {
		return
	}
	was := k.RenewInterval()
	_, _ = k.readBrokers(ctx, missing) // which says why
	now := k.RenewInterval()
	if now >= was {
		return
	}
	k.log.Info("a broker that did not answer before forgets transactional ids or producer ids sooner than was known: claims are renewed more often", "topic", k.id.Topic, "from", was, "to", now)
	for _, a := range k.live() {
		a.renewWithin(now)
	}
}

// settingsPatience is how long a broker may take to hear of the topic that another one has told us of: a moment, unless the cluster is ill.
const settingsPatience = 15 * time.Second

// topicConfigs are the topic's settings. Any broker may be asked, also one that has not heard of a topic just created.
func (k *Kafka) topicConfigs(ctx context.Context) (configs, error) {
	patience, cancel := context.WithTimeout(ctx, settingsPatience)
	defer cancel()
	for attempt := 0; ; attempt++ {
		c, err := k.configs(ctx, kmsg.ConfigResourceTypeTopic, k.id.Topic)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return c, err
		}
		select {
		case <-patience.Done():
			return nil, err
		case <-time.After(retryPause(attempt)):
		}
	}
}

// insyncInterval is how soon a min.insync.replicas that was changed is noticed: with one that is too high too few replicas would be asked where a partition ends.
const insyncInterval = 10 * time.Second

// watchSettings reads again and again what operators change on purpose: min.insync.replicas, who are short of brokers, and max.message.bytes, who have a group that is larger than
// that. And what brokers did not tell when the log was opened.
func (k *Kafka) watchSettings() {
	t := time.NewTicker(k.cfg.reread)
	defer t.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-t.C:
		}
		ctx, cancel := context.WithTimeout(k.ctx, 2*requestOverhead)
		c, err := k.configs(ctx, kmsg.ConfigResourceTypeTopic, k.id.Topic)
		cancel()
		if err != nil {
			k.log.Debug("the settings of the topic can't be read again", "topic", k.id.Topic, "err", err)
		}
		if n, ok := c.number("min.insync.replicas"); ok {
			if was := k.insync.Swap(int32(n)); was != int32(n) {
				k.log.Info("min.insync.replicas of the "+k.cfg.what+" was changed", "topic", k.id.Topic, "from", was, "to", n)
			}
		}
		if n, ok := c.number("max.message.bytes"); ok {
			k.takeBatchBytes(n)
		}
		k.readBrokersAgain(k.ctx)
	}
}

// takeBatchBytes takes over a max.message.bytes that was read again. One that is too small to be opened with is none to go on with: the cluster refuses what does not fit.
func (k *Kafka) takeBatchBytes(n int64) {
	taken := max(n, batchBytesLeast)
	was := k.batchBytes.Swap(taken)
	switch {
	case was == taken:
	case n < batchBytesLeast:
		k.log.Warn("max.message.bytes of the "+k.cfg.what+" was changed to less than a member of a large group may take: what does not fit fails, and no replica starts again with it",
			"topic", k.id.Topic, "from", was, "to", n, "least", batchBytesLeast)
	default:
		k.log.Info("max.message.bytes of the "+k.cfg.what+" was changed", "topic", k.id.Topic, "from", was, "to", n)
	}
}

// least sets *d to v where v is known and less.
func least(d *time.Duration, v time.Duration) {
	if v > 0 && (*d == 0 || v < *d) {
		*d = v
	}
}

func (k *Kafka) checkTopic(c configs) error {
	advice := func(setting, value string) string {
		return fmt.Sprintf("change it with kafka-configs --alter --entity-type topics --entity-name %s --add-config %s=%s, or name another topic", k.id.Topic, setting, value)
	}
	if c["cleanup.policy"] == restoringPolicy && c["retention.ms"] == restoringRetention {
		return fmt.Errorf("%s %s: %w (cleanup.policy is %s, retention.ms is %s): it has a part of what was there. Wait for the restore that is under way, or, if it was interrupted, delete the topic and run streamkeeper restore again",
			k.cfg.what, k.id.Topic, ErrRestoring, restoringPolicy, restoringRetention)
	}
	// A policy of "compact,delete" would forget groups that are alive.
	if got, ok := c["cleanup.policy"]; ok && strings.TrimSpace(got) != "compact" {
		return k.wrong("cleanup.policy", strconv.Quote(got), `"compact"`, advice("cleanup.policy", "compact"))
	}
	// Expiry and retention are counted from the time that the writer set.
	if got, ok := c["message.timestamp.type"]; ok && got != "CreateTime" {
		return k.wrong("message.timestamp.type", strconv.Quote(got), `"CreateTime"`, advice("message.timestamp.type", "CreateTime"))
	}
	if got, ok := c.number("max.message.bytes"); ok {
		if got < batchBytesLeast {
			return k.wrong("max.message.bytes", strconv.FormatInt(got, 10), fmt.Sprintf("at least %d", batchBytesLeast), advice("max.message.bytes", strconv.Itoa(batchBytesDefault)))
		}
		k.settings.BatchBytesMax = int(got)
	}
	k.settings.DeleteRetention = c.duration("delete.retention.ms")
	if got, ok := c.number("min.insync.replicas"); ok {
		k.settings.MinInsyncReplicas = int(got)
	}
	if _, ok := c["min.compaction.lag.ms"]; ok {
		k.settings.MinCompactionLag = c.duration("min.compaction.lag.ms")
		if k.settings.MinCompactionLag < compactionLagMin {
			k.log.Warn("the "+k.cfg.what+" may be compacted before a void record is repaired: set min.compaction.lag.ms to an hour or more", "topic", k.id.Topic, "min.compaction.lag.ms", k.settings.MinCompactionLag.Milliseconds())
		}
	}
	if c["unclean.leader.election.enable"] == "true" {
		k.log.Warn("an unclean leader election can lose acknowledged records of the "+k.cfg.what+": set unclean.leader.election.enable=false", "topic", k.id.Topic)
	}
	return nil
}

// configs are settings by name; a sensitive or unset one is missing.
type configs map[string]string

func (c configs) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(c[name], 10, 64)
	return n, err == nil
}

func (c configs) duration(name string) time.Duration {
	n, ok := c.number(name)
	if !ok || n < 0 {
		return 0
	}
	return time.Duration(min(n, int64(100*365*24*time.Hour/time.Millisecond))) * time.Millisecond
}

// brokerConfigs are the settings of a broker.
func (k *Kafka) brokerConfigs(ctx context.Context, id int32) (configs, error) {
	ctx, cancel := context.WithTimeout(ctx, brokerConfigsTimeout)
	defer cancel()
	return k.configs(ctx, kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(id)))
}

func (k *Kafka) configs(ctx context.Context, kind kmsg.ConfigResourceType, name string) (configs, error) {
	ask := func(ctx context.Context, to kmsg.Requestor) (*kmsg.DescribeConfigsResponse, error) {
		req := kmsg.NewPtrDescribeConfigsRequest()
		rr := kmsg.NewDescribeConfigsRequestResource()
		rr.ResourceType, rr.ResourceName = kind, name
		req.Resources = append(req.Resources, rr)
		return req.RequestWith(ctx, to)
	}
	var resp *kmsg.DescribeConfigsResponse
	var err error
	if kind == kmsg.ConfigResourceTypeBroker { // which that broker alone can tell
		resp, err = ask(ctx, k.client)
	} else {
		resp, err = anyBroker(ctx, k.client, &k.roster, true, ask)
	}
	if err != nil {
		return nil, err
	}
	if len(resp.Resources) != 1 {
		return nil, fmt.Errorf("the answer to DescribeConfigs has %d resources", len(resp.Resources))
	}
	if err := kerr.ErrorForCode(resp.Resources[0].ErrorCode); err != nil {
		return nil, err
	}
	c := configs{}
	for _, e := range resp.Resources[0].Configs {
		if e.Value != nil {
			c[e.Name] = *e.Value
		}
	}
	return c, nil
}
