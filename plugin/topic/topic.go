package topic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"streamkeeper/plugin"
)

// Name is the plugin's name.
const Name = "topic"

// TopicSuffix makes the default name of the topic from that of the record log.
const TopicSuffix = "-topologies"

// EpochsMaxDefault is how many topology epochs of a group are kept. Kafka Streams has one per deployed topology, so this is some months
// of a team that deploys often, at some kilobytes each.
const EpochsMaxDefault = 10

// epochsListed bounds what is read of one group's keys: far more than are kept, even where a setting was lowered.
const epochsListed = 10_000

// Config is what the plugin's settings say. A zero value means the default.
type Config struct {
	// Topic is the topic's name; "": that of the record log and TopicSuffix.
	Topic string
	// EpochsMax is how many topology epochs of a group are kept, the highest ones; EpochsMaxDefault.
	EpochsMax int
	// DescriptionBytesMax bounds a description as it is stored, compressed; 0: what the topic takes (max.message.bytes).
	DescriptionBytesMax int
}

// Plugin keeps descriptions in a topic. It is of no use before Attach.
type Plugin struct {
	cfg    Config
	log    *slog.Logger
	locks  locks
	closed context.Context // ends with Close
	end    context.CancelCauseFunc

	mu    sync.Mutex
	place Place
	calls sync.WaitGroup
}

var (
	_ plugin.Plugin = (*Plugin)(nil)
	_ plugin.Epochs = (*Plugin)(nil)
)

// New returns a plugin that waits for its place.
func New(cfg Config) *Plugin {
	if cfg.EpochsMax <= 0 {
		cfg.EpochsMax = EpochsMaxDefault
	}
	p := &Plugin{cfg: cfg, log: slog.New(slog.DiscardHandler)}
	p.closed, p.end = context.WithCancelCause(context.Background())
	return p
}

// TopicOf is the name of the topic beside a record log.
func (p *Plugin) TopicOf(logTopic string) string {
	if p.cfg.Topic != "" {
		return p.cfg.Topic
	}
	return logTopic + TopicSuffix
}

// Attach gives the plugin its place and its log. Calls made before fail, transiently.
func (p *Plugin) Attach(place Place, log *slog.Logger) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.place = place
	if log != nil {
		p.log = log
	}
}

// Name is "topic".
func (p *Plugin) Name() string { return Name }

// errNotAttached is what calls get that come too early.
var errNotAttached = errors.New("the topic of topology descriptions is not open yet")

// run runs f on a goroutine of its own, with a context that ends with Close as well.
func run[T any](ctx context.Context, p *Plugin, f func(ctx context.Context, place Place) (T, error)) *plugin.Future[T] {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed.Err() != nil:
		return plugin.Failed[T](plugin.ErrClosed)
	case p.place == nil:
		return plugin.Failed[T](errNotAttached)
	}
	place := p.place
	p.calls.Add(1)
	return plugin.Go(func() (T, error) {
		defer p.calls.Done()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(p.closed, func() { cancel(plugin.ErrClosed) })()
		return f(ctx, place)
	})
}

// Set appends the description under its group and epoch. One that is too large is refused for good; everything else is transient.
func (p *Plugin) Set(ctx context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
	return run(ctx, p, func(ctx context.Context, place Place) (plugin.Void, error) {
		key := encodeKey(group, epoch)
		value, err := p.encode(place, key, d)
		if err != nil {
			return plugin.Void{}, err
		}
		outcome := make(chan error, 1)
		if err := p.queueSet(ctx, place, group, epoch, Record{key, value}, outcome); err != nil {
			return plugin.Void{}, err
		}
		select {
		case err = <-outcome:
		case <-ctx.Done():
			err = context.Cause(ctx) // it may be stored all the same
		}
		if errors.Is(err, ErrTooLarge) {
			err = p.tooLarge(place, len(value), place.ValueBytesMax(len(key)))
		}
		return plugin.Void{}, err
	})
}

// encode returns the stored form.
func (p *Plugin) encode(place Place, key []byte, d *plugin.Description) ([]byte, error) {
	bytesMax := place.ValueBytesMax(len(key))
	if p.cfg.DescriptionBytesMax > 0 {
		bytesMax = min(bytesMax, p.cfg.DescriptionBytesMax)
	}
	value, err := plugin.EncodeBinary(d, bytesMax)
	if large := (*plugin.TooLargeError)(nil); errors.As(err, &large) {
		return nil, p.tooLarge(place, large.Bytes, bytesMax)
	}
	return value, err
}

// tooLarge is the refusal of a description that is too large; it says what an operator can do.
func (p *Plugin) tooLarge(place Place, bytes, bytesMax int) error {
	cure := "raise max.message.bytes of that topic and start streamkeeper again"
	if bytesMax == p.cfg.DescriptionBytesMax {
		cure = "raise the plugin's setting description.bytes.max"
	}
	return plugin.Permanentf("the topology description has %d bytes compressed, more than the %d that fit a record of topic %s: %s",
		bytes, bytesMax, place.Topic(), cure)
}

// queueSet queues the record, and tombstones for the epochs that are too many, as one step.
func (p *Plugin) queueSet(ctx context.Context, place Place, group string, epoch int32, r Record, outcome chan<- error) error {
	unlock, err := p.locks.lock(ctx, group)
	if err != nil {
		return err
	}
	defer unlock()
	held, err := p.epochs(place, group)
	if err != nil {
		return err
	}
	if err := place.Append(ctx, group, []Record{r}, func(err error) { outcome <- err }); err != nil {
		return err
	}
	gone := surplus(held, epoch, p.cfg.EpochsMax)
	if len(gone) == 0 {
		return nil
	}
	if err := place.Append(ctx, group, tombstones(group, gone), p.trimmed(group)); err != nil {
		p.trimmed(group)(err)
	}
	return nil
}

// surplus are the epochs of held that are too many once epoch is stored: the lowest ones. epoch itself stays, for once, also where it is
// lower than all others. What held lacks, or has too much because it was read a moment ago, the next Set makes good.
func surplus(held []int32, epoch int32, epochsMax int) []int32 {
	others := slices.DeleteFunc(slices.Clone(held), func(e int32) bool { return e == epoch })
	higher := 0 // of the others
	for _, e := range others {
		if e > epoch {
			higher++
		}
	}
	keep := epochsMax - 1
	if higher >= epochsMax {
		keep = epochsMax
	}
	return others[:max(0, len(others)-keep)]
}

func (p *Plugin) trimmed(group string) func(error) {
	return func(err error) {
		if err != nil { // the next Set tries it again
			p.log.Debug("earlier topology descriptions are not removed yet", "group", group, "err", err)
		}
	}
}

func tombstones(group string, epochs []int32) []Record {
	records := make([]Record, len(epochs))
	for i, e := range epochs {
		records[i] = Record{Key: encodeKey(group, e)}
	}
	return records
}

// epochs are those that are visible now, ascending.
func (p *Plugin) epochs(place Place, group string) ([]int32, error) {
	list := []int32{}
	err := place.Keys(group, groupPrefix(group), func(key []byte) bool {
		if _, epoch, err := decodeKey(key); err == nil {
			list = append(list, epoch)
		}
		return len(list) < epochsListed
	})
	slices.Sort(list)
	return list, err
}

// Get reads the description of a group and epoch, as of now at the cluster.
func (p *Plugin) Get(ctx context.Context, group string, epoch int32) *plugin.Future[*plugin.Description] {
	return run(ctx, p, func(ctx context.Context, place Place) (*plugin.Description, error) {
		if err := place.Visible(ctx, group); err != nil {
			return nil, err
		}
		value, ok, err := place.Value(group, encodeKey(group, epoch))
		if err != nil || !ok {
			return nil, err
		}
		d, err := plugin.DecodeBinary(value)
		if err != nil {
			return nil, fmt.Errorf("topic %s, group %q, epoch %d: %w", place.Topic(), group, epoch, err)
		}
		return d, nil
	})
}

// Epochs are the topology epochs that are stored of a group.
func (p *Plugin) Epochs(ctx context.Context, group string) *plugin.Future[[]int32] {
	return run(ctx, p, func(ctx context.Context, place Place) ([]int32, error) {
		if err := place.Visible(ctx, group); err != nil {
			return nil, err
		}
		return p.epochs(place, group)
	})
}

// Delete removes all epochs of a group. When it is done no earlier write, of this or a former owner of the partition, can bring one back.
func (p *Plugin) Delete(ctx context.Context, group string) *plugin.Future[plugin.Void] {
	return run(ctx, p, func(ctx context.Context, place Place) (plugin.Void, error) {
		// With the lock, no Set is between its decision and its place in the queue: it is settled here, or comes later.
		unlock, err := p.locks.lock(ctx, group)
		if err != nil {
			return plugin.Void{}, err
		}
		defer unlock()
		_, err = p.remove(ctx, place, group)
		return plugin.Void{}, err
	})
}

// remove writes tombstones for all epochs of a group and returns how many there were. The group's lock is held.
func (p *Plugin) remove(ctx context.Context, place Place, group string) (int, error) {
	removed := 0
	for {
		if err := place.Settle(ctx, group); err != nil {
			return removed, err
		}
		list, err := p.epochs(place, group)
		if err != nil || len(list) == 0 {
			return removed, err
		}
		list = list[:min(len(list), tombstonesAtOnce)]
		if err := await(ctx, place, group, tombstones(group, list)); err != nil {
			return removed, err
		}
		if removed += len(list); len(list) < tombstonesAtOnce {
			return removed, nil
		}
	}
}

// tombstonesAtOnce keeps the tombstones of one batch, with group ids of up to 32 KiB, below the smallest batch that a topic may have.
const tombstonesAtOnce = 16

// await appends records and waits until they are durable.
func await(ctx context.Context, place Place, group string, records []Record) error {
	outcome := make(chan error, 1)
	if err := place.Append(ctx, group, records, func(err error) { outcome <- err }); err != nil {
		return err
	}
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends the calls under way and refuses further ones.
func (p *Plugin) Close(ctx context.Context) error {
	p.mu.Lock()
	p.end(plugin.ErrClosed)
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		p.calls.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("calls of the topic plugin are still under way: %w", context.Cause(ctx))
	}
}
