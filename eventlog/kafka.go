package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// KafkaConfig says where the log is and how it is used. Only SeedBrokers (or ClientOptions with seeds) is needed.
type KafkaConfig struct {
	SeedBrokers   []string  // host:port of some brokers
	ClientOptions []kgo.Opt // more options of the client: client id, TLS, SASL, hooks

	Topic string // default "__streams_groups"
	// Partitions is the partition count: 0 creates the topic with 50 and takes an existing one as it is; any other number
	// must be what an existing topic has.
	Partitions int32
	// ReplicationFactor is that of a topic that has to be created; 0 is 3, at most the number of brokers, for whom is waited where their own settings say
	// that there are more (ErrFewBrokers).
	ReplicationFactor int16

	// MayCreate is asked before a topic that is missing is created, and again for missingFor, because a broker that has just started does not
	// know every topic; its last error refuses the log. nil: it may.
	MayCreate func() error

	Logger *slog.Logger
	Tracer trace.Tracer // a span "append" per Produce request

	// AppendDeadline is how long a batch is repeated until its outcome counts as unknown; default 30 s.
	AppendDeadline time.Duration
	// RenewInterval is how often a writer takes the next producer epoch; default, and at most, 6 hours or a quarter of
	// the brokers' transactional.id.expiration.ms and producer.id.expiration.ms, whichever is least.
	RenewInterval time.Duration
	// ReadWait is how long a fetch waits for something to read (long poll), and how often one that stands at the end is
	// told so again; default 500 ms.
	ReadWait time.Duration

	annex  Annexing      // of OpenAnnex
	reread time.Duration // insyncInterval, but in tests
	what   string        // what the topic is, in errors and log lines
}

const (
	defaultTopic          = "__streams_groups"
	defaultPartitions     = 50
	defaultAppendDeadline = 30 * time.Second
	defaultRenewInterval  = 6 * time.Hour
	defaultReadWait       = 500 * time.Millisecond

	// missingFor is how long a topic that may not be created is looked for, and brokers that one is to have replicas on.
	missingFor = 5 * time.Second

	// requestOverhead bounds how long an answer may take beyond the time that a request itself allows the broker.
	requestOverhead = 5 * time.Second
	// connectionIdle keeps idle connections just under the ten minutes after which a broker closes them: the first
	// append after a pause shouldn't pay for a handshake.
	connectionIdle = 9 * time.Minute
	// housekeepingInterval is how exactly deadlines and renewals are kept.
	housekeepingInterval = 50 * time.Millisecond
)

// Kafka is a Log on a Kafka-compatible cluster. Its methods may be called from any goroutine.
type Kafka struct {
	cfg      KafkaConfig
	log      *slog.Logger
	tracer   trace.Tracer
	client   *kgo.Client
	id       Identity
	settings Settings
	leaders  *leaders
	roster   roster
	calls    *calls
	fence    fenceProof
	timings  Timings
	awaited  awaited
	sent     func(batches int) // told of every Produce request, if set: for measurements

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	senders   map[int32]*sender
	appenders map[*appender]struct{}
	adopted   map[int32]Claim // of an annex: the last claim adopted, by partition
	// coordinators are the brokers that coordinate the transactional ids, as they were found last.
	coordinators map[string]int32
	refused      map[int32]Claim // the last claim that the leader refused and the log does not say why, by partition
	asking       map[int32]int   // questions to followers under way, by broker

	insync     atomic.Int32 // min.insync.replicas as it was read last, -1: never
	batchBytes atomic.Int64 // max.message.bytes, as it was read last
	expiry     expiry
	refusals   refusals
	denials    denials

	unreached   unreached
	unclaimable unclaimable
	trouble     trouble
}

var _ Log = (*Kafka)(nil)

// OpenKafka connects to the cluster, creates the log's topic where it is missing, and checks it. ctx bounds the opening
// only. The error names topic, setting, what was found, what is wanted, and what to do.
func OpenKafka(ctx context.Context, cfg KafkaConfig) (*Kafka, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	options := []kgo.Opt{kgo.RequestTimeoutOverhead(requestOverhead), kgo.DialTimeout(requestOverhead), kgo.ConnIdleTimeout(connectionIdle)}
	if len(cfg.SeedBrokers) > 0 {
		options = append(options, kgo.SeedBrokers(cfg.SeedBrokers...))
	}
	options = append(options, cfg.ClientOptions...)
	// A last push of the client's own metrics, which nobody asked for, would hold the close of a client for a second where the cluster is away.
	options = append(options, kgo.DisableClientMetrics())
	options = append(options, kgo.RequiredAcks(kgo.AllISRAcks())) // kgo puts its own setting into our requests
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, fmt.Errorf("client of the log's cluster: %w", err)
	}
	k := &Kafka{
		cfg: cfg, log: cfg.Logger, tracer: cfg.Tracer, client: client,
		senders: map[int32]*sender{}, appenders: map[*appender]struct{}{}, adopted: map[int32]Claim{}, coordinators: map[string]int32{}, refused: map[int32]Claim{}, asking: map[int32]int{},
	}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	if err := k.bootstrap(ctx); err != nil {
		client.Close()
		if len(cfg.SeedBrokers) > 0 && ctx.Err() != nil {
			err = fmt.Errorf("%s %s on %s: %w (%w)", cfg.what, cfg.Topic, strings.Join(cfg.SeedBrokers, ","), err, ctx.Err())
		}
		return nil, err
	}
	k.calls = newCalls()
	k.wg.Go(func() { k.leaders.run(k.ctx) })
	k.wg.Go(k.housekeeping)
	k.wg.Go(k.watchSettings)
	k.wg.Go(k.watchCoordinators)
	return k, nil
}

func (cfg *KafkaConfig) complete() error {
	if cfg.Topic == "" {
		cfg.Topic = defaultTopic
	}
	if cfg.what = cfg.annex.What; cfg.what == "" {
		cfg.what = "log topic"
	}
	if cfg.AppendDeadline == 0 {
		cfg.AppendDeadline = defaultAppendDeadline
	}
	if cfg.RenewInterval == 0 {
		cfg.RenewInterval = defaultRenewInterval
	}
	if cfg.ReadWait == 0 {
		cfg.ReadWait = defaultReadWait
	}
	if cfg.reread == 0 {
		cfg.reread = insyncInterval
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	switch {
	case cfg.Partitions < 0:
		return fmt.Errorf("%s %s: partition count %d, want at least 1 (or 0 for the default)", cfg.what, cfg.Topic, cfg.Partitions)
	case cfg.ReplicationFactor < 0:
		return fmt.Errorf("%s %s: replication factor %d, want at least 1 (or 0 for the default)", cfg.what, cfg.Topic, cfg.ReplicationFactor)
	case cfg.AppendDeadline < 0 || cfg.RenewInterval < 0 || cfg.ReadWait < 0:
		return fmt.Errorf("%s %s: times must be positive: append deadline %v, renewal %v, read wait %v", cfg.what, cfg.Topic, cfg.AppendDeadline, cfg.RenewInterval, cfg.ReadWait)
	}
	return nil
}

// Identity implements Log.
func (k *Kafka) Identity() Identity { return k.id }

// BatchBytesMax implements Log.
func (k *Kafka) BatchBytesMax() int { return int(k.batchBytes.Load()) }

// Settings are what was read of the topic and the brokers when the log was opened.
func (k *Kafka) Settings() Settings { return k.settings }

// RenewInterval is how often writers renew themselves.
func (k *Kafka) RenewInterval() time.Duration {
	interval := min(k.cfg.RenewInterval, defaultRenewInterval)
	if expiration := k.expiry.renewal(); expiration > 0 {
		interval = min(interval, expiration)
	}
	return interval
}

// Close ends the log: writers fail with ErrClosed, Follow returns it. It returns when all Done functions were called.
func (k *Kafka) Close() {
	k.cancel(ErrClosed)
	for _, a := range k.live() {
		a.Close()
	}
	k.wg.Wait()
	k.calls.close()
	k.client.Close()
}

// live are the appenders that are not dead.
func (k *Kafka) live() []*appender {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]*appender, 0, len(k.appenders))
	for a := range k.appenders {
		all = append(all, a)
	}
	return all
}

// housekeeping ends appends at their deadline and starts renewals.
func (k *Kafka) housekeeping() {
	t := time.NewTicker(housekeepingInterval)
	defer t.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case now := <-t.C:
			for _, a := range k.live() {
				a.check(now)
			}
		}
	}
}

// atLeader runs do with the leader of p, again as long as it fails with an error that another leader, or the same a
// little later, may not have, until ctx ends.
func (k *Kafka) atLeader(ctx context.Context, p int32, do func(ctx context.Context, l leadership) error) error {
	ctx, cancel := mergeContext(ctx, k.ctx)
	defer cancel()
	if p < 0 || p >= k.id.Partitions {
		return fmt.Errorf("%s %s has no partition %d (it has %d)", k.cfg.what, k.id.Topic, p, k.id.Partitions)
	}
	var last error
	for attempt := 0; ; attempt++ {
		l := k.leaders.get(p)
		if err := k.leaders.failed(); err != nil {
			return err
		}
		if l.node >= 0 {
			last = do(ctx, l)
			if last == nil || !retriable(last) {
				return last
			}
		} else {
			last = errNoLeader
		}
		k.leaders.refresh()
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), last)
		case <-time.After(retryPause(attempt)):
		}
	}
}

var errNoLeader = errors.New("the partition has no leader")

// request sends req to a broker. It is given up when the cluster has given the broker up.
func request[T kmsg.Response](ctx context.Context, k *Kafka, node int32, req kmsg.Request) (T, error) {
	watched, stop := k.leaders.watch(ctx, node)
	defer stop()
	resp, err := k.client.Broker(int(node)).Request(watched, req)
	if err != nil {
		var none T
		if gone := context.Cause(watched); ctx.Err() == nil && errors.Is(gone, errBrokerGone) {
			err = gone
		}
		return none, &connectionError{node, err}
	}
	k.roster.heard(node, true)
	k.unclaimable.heard(node)
	return resp.(T), nil
}

// connectionError is a request that got no answer.
type connectionError struct {
	node int32 // -1: whichever it was
	err  error
}

func (e *connectionError) Error() string {
	if e.node < 0 {
		return e.err.Error()
	}
	return fmt.Sprintf("broker %d: %v", e.node, e.err)
}

func (e *connectionError) Unwrap() error { return e.err }

// retriable says that a repeat may go better: the broker did not answer, or answered with an error that passes.
func retriable(err error) bool {
	var connection *connectionError
	if errors.As(err, &connection) || errors.Is(err, errNoLeader) {
		return true
	}
	return kerr.IsRetriable(err) || errors.Is(err, kerr.UnknownServerError)
}

const (
	retryPauseMin = 10 * time.Millisecond  // a moved leader is usually known at once
	retryPauseMax = 500 * time.Millisecond // a broker that restarts takes seconds; more would only add to a take-over
)

func retryPause(attempt int) time.Duration {
	return min(retryPauseMin<<min(attempt, 10), retryPauseMax)
}

// mergeContext is ctx, ended also by the end of other, with its cause.
func mergeContext(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
