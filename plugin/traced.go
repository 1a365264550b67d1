package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

const (
	// TimeoutDefault is shorter than Kafka's shortest heartbeat interval (5 s): a push shares its member's connection with
	// the heartbeats, and the answer to a push holds those behind it up.
	TimeoutDefault = 4 * time.Second

	// GraceDefault is how long a call that nobody waits for any more keeps its span open and its slot taken. Long enough to see in a
	// trace by how much a backend is too slow, short enough that lost futures don't exhaust the slots for long.
	GraceDefault = 30 * time.Second

	// CallsDefault is how many calls of each operation may be under way: what a backend that hangs then holds is so many
	// goroutines, connections and descriptions, and one that answers in 10 ms still does 6,400 a second.
	CallsDefault = 64

	// BatchTimeoutDefault bounds GetAll and DeleteAll: below 30 s, after which Kafka's clients give a request up.
	BatchTimeoutDefault = 20 * time.Second

	// CloseTimeoutDefault is how long Close waits for calls under way: a process that is stopped gets about 10 s or more
	// before it is killed, and has other things to close.
	CloseTimeoutDefault = 5 * time.Second
)

// Config is what a Traced needs. Each zero value means the default.
type Config struct {
	Timeout      time.Duration // of one call: TimeoutDefault; keep it below the heartbeat interval
	Grace        time.Duration // after a time-out or a cancellation: GraceDefault
	Calls        int           // under way at once, per operation: CallsDefault
	BatchTimeout time.Duration // of GetAll and DeleteAll: BatchTimeoutDefault
	CloseTimeout time.Duration // CloseTimeoutDefault
	Tracer       trace.Tracer  // no spans
	Logger       *slog.Logger  // slog.Default()
	Counters     *Counters     // counters of its own
}

// Traced calls a plugin for the coordinator. Whatever the plugin does, each call's outcome is delivered exactly once, at
// the latest when its time-out has passed or its context has ended, and never on the caller's goroutine; there is one span per
// call, from its start to the completion of its future.
//
// The span is a child of the span in the caller's context and has the attributes plugin, operation, group, topology.epoch
// (Set and Get), outcome (a Kind), and for a failure error.message and permanent; a call that completed too late has
// outcome "late", late.after ("timed_out" or "cancelled") and late.outcome; one that never completed has abandoned=true.
type Traced struct {
	plugin   Plugin
	name     string
	cfg      Config
	log      *slog.Logger
	counters *Counters
	slots    slots

	mu     sync.Mutex
	closed bool
	calls  map[*call]struct{} // not ended yet; bounded by the slots
	idle   chan struct{}      // made by Close, closed when calls is empty
	ended  chan struct{}      // closed when the first Close is through
	result error              // of the first Close; read after ended
}

// NewTraced returns a wrapper around p.
func NewTraced(p Plugin, cfg Config) (*Traced, error) {
	if p == nil {
		return nil, errors.New("no topology description plugin to call")
	}
	fill(&cfg.Timeout, TimeoutDefault)
	fill(&cfg.Grace, GraceDefault)
	fill(&cfg.Calls, CallsDefault)
	fill(&cfg.BatchTimeout, BatchTimeoutDefault)
	fill(&cfg.CloseTimeout, CloseTimeoutDefault)
	if cfg.Timeout < 0 || cfg.Grace < 0 || cfg.Calls < 0 || cfg.BatchTimeout < 0 || cfg.CloseTimeout < 0 {
		return nil, fmt.Errorf("topology description plugin: a limit is negative: timeout=%s grace=%s calls=%d batch timeout=%s close timeout=%s",
			cfg.Timeout, cfg.Grace, cfg.Calls, cfg.BatchTimeout, cfg.CloseTimeout)
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Counters == nil {
		cfg.Counters = new(Counters)
	}
	name := p.Name()
	return &Traced{
		plugin: p, name: name, cfg: cfg, log: cfg.Logger.With("plugin", name), counters: cfg.Counters,
		slots: newSlots(cfg.Calls), calls: map[*call]struct{}{}, ended: make(chan struct{}),
	}, nil
}

func fill[T comparable](v *T, fallback T) {
	var none T
	if *v == none {
		*v = fallback
	}
}

// Name is the plugin's.
func (t *Traced) Name() string { return t.name }

// Stats returns the counters.
func (t *Traced) Stats() Stats { return t.counters.Stats() }

// SetCall is what Set needs.
type SetCall struct {
	Group         string
	TopologyEpoch int32
	Description   *Description // valid; the plugin gets a copy
	// Link is the span of the heartbeat whose answer asked for the description; a zero one is no link.
	Link trace.SpanContext
}

// Set has the plugin store a description. done gets the outcome, once; it must not block. ctx should live as long as the shard is ours:
// when it ends the outcome is Cancelled at once.
func (t *Traced) Set(ctx context.Context, s SetCall, done func(Outcome)) {
	d := s.Description.Clone()
	c := &call{t: t, op: opSet, group: s.Group, epoch: s.TopologyEpoch, link: s.Link}
	begin(ctx, c, false, func(ctx context.Context) *Future[Void] {
		return t.plugin.Set(ctx, s.Group, s.TopologyEpoch, d)
	}, func(Void) Outcome { return Outcome{Kind: Stored} }, done)
}

// Get reads a description, as Set stores one. done gets nil unless the outcome is Found.
func (t *Traced) Get(ctx context.Context, group string, topologyEpoch int32, done func(*Description, Outcome)) {
	t.get(ctx, GetCall{group, topologyEpoch}, false, done)
}

func (t *Traced) get(ctx context.Context, g GetCall, haveSlot bool, done func(*Description, Outcome)) {
	c := &call{t: t, op: opGet, group: g.Group, epoch: g.TopologyEpoch}
	var found *Description // written before the outcome Found is delivered
	begin(ctx, c, haveSlot, func(ctx context.Context) *Future[*Description] {
		return t.plugin.Get(ctx, g.Group, g.TopologyEpoch)
	}, func(d *Description) Outcome {
		if d == nil {
			return Outcome{Kind: NotFound}
		}
		copied := d.Clone()
		if err := copied.Validate(); err != nil {
			return failure(fmt.Errorf("the plugin returned a description that can't be shown: %w", err))
		}
		found = copied
		return Outcome{Kind: Found}
	}, func(o Outcome) {
		if o.Kind != Found {
			done(nil, o)
			return
		}
		done(found, o)
	})
}

// Delete removes all descriptions of a group, as Set stores one.
func (t *Traced) Delete(ctx context.Context, group string, done func(Outcome)) {
	t.delete(ctx, group, false, done)
}

func (t *Traced) delete(ctx context.Context, group string, haveSlot bool, done func(Outcome)) {
	c := &call{t: t, op: opDelete, group: group}
	begin(ctx, c, haveSlot, func(ctx context.Context) *Future[Void] {
		return t.plugin.Delete(ctx, group)
	}, func(Void) Outcome { return Outcome{Kind: Deleted} }, done)
}

// Close refuses further calls, delivers Cancelled for those under way and gives them Config.CloseTimeout, or until ctx
// ends, to complete; then it ends their spans and closes the plugin within what is left of that time, at least a
// moment. A second Close waits for the first, or until its ctx ends, and returns the first one's error.
func (t *Traced) Close(ctx context.Context) error {
	drained := t.drain()
	if drained == nil {
		select {
		case <-t.ended:
			return t.result
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer close(t.ended)
	ctx, cancel := context.WithTimeout(ctx, t.cfg.CloseTimeout)
	defer cancel()
	select {
	case <-drained:
	case <-ctx.Done():
	}
	t.abandonAll()
	t.result = t.closePlugin(ctx)
	return t.result
}

// drain refuses further calls, cancels all calls and returns a channel that is closed when none is left; nil if that
// was done before.
func (t *Traced) drain() <-chan struct{} {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil
	}
	t.closed = true
	t.idle = make(chan struct{})
	idle := t.idle
	if len(t.calls) == 0 {
		close(idle)
	}
	calls := t.listed()
	t.mu.Unlock()
	for _, c := range calls {
		c.cancel(ErrClosed)
	}
	return idle
}

func (t *Traced) abandonAll() {
	t.mu.Lock()
	calls := t.listed()
	t.mu.Unlock()
	for _, c := range calls {
		c.abandon()
	}
}

func (t *Traced) listed() []*call {
	calls := make([]*call, 0, len(t.calls))
	for c := range t.calls {
		calls = append(calls, c)
	}
	return calls
}

// closeMoment is what a plugin gets to close even if its calls have used up all the time: most only free memory.
const closeMoment = 100 * time.Millisecond

// closePlugin closes the plugin, and does not wait for one that won't.
func (t *Traced) closePlugin(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), closeMoment)
		defer cancel()
	}
	_, err := Go(func() (Void, error) { return Void{}, t.plugin.Close(ctx) }).Wait(ctx)
	if err != nil {
		return fmt.Errorf("close the topology description plugin %s: %w", t.name, err)
	}
	return nil
}

// register counts a call in, or says that t is closed.
func (t *Traced) register(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.calls[c] = struct{}{}
	return true
}

// forget counts a call out that has ended or was abandoned.
func (t *Traced) forget(c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.calls[c]; !ok {
		return
	}
	delete(t.calls, c)
	if t.idle != nil && len(t.calls) == 0 {
		close(t.idle)
	}
}
