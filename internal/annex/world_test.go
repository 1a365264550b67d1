package annex

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/plugin/topic"
	"streamkeeper/shard"
)

const partitions = 4

// world is a cluster with a record log and the topic beside it, in memory.
type world struct {
	t     *testing.T
	log   *eventlog.Fake
	annex *eventlog.Fake
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t,
		log:   eventlog.NewFake(eventlog.FakeOptions{Partitions: partitions}),
		annex: eventlog.NewFake(eventlog.FakeOptions{Topic: "__streams_groups-topologies", Partitions: partitions, IdleInterval: -1}),
	}
	t.Cleanup(func() {
		w.log.Close()
		w.annex.Close()
	})
	return w
}

// shared is an annex of which one replica's end is not everybody's.
type shared struct{ eventlog.Annex }

func (shared) Close() {}

// replica is one replica: what it holds of the log, its space, and the plugin over it.
type replica struct {
	*topic.Plugin
	t       *testing.T
	name    string
	log     eventlog.Log
	space   *Space
	stop    func()
	mu      sync.Mutex
	holding map[int32]*tenure
}

type tenure struct {
	writer eventlog.Writer
	ctx    context.Context
	end    context.CancelCauseFunc
}

func (w *world) replica(name string, change ...func(*topic.Config)) *replica {
	return newReplica(w.t, name, w.log, func(context.Context) (Topic, error) {
		return Topic{Annex: shared{w.annex}, DeleteRetention: 24 * time.Hour}, nil
	}, w.t.TempDir(), change...)
}

func newReplica(t *testing.T, name string, log eventlog.Log, open func(context.Context) (Topic, error), dir string, change ...func(*topic.Config)) *replica {
	t.Helper()
	r := &replica{t: t, name: name, log: log, holding: map[int32]*tenure{}}
	logger := slog.New(slog.NewTextHandler(t.Output(), nil)).With("replica", name)
	var err error
	r.space, err = Open(t.Context(), Config{Open: open, Dir: filepath.Join(dir, "descriptions"), Partitions: partitions, Holding: r.held, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	cfg := topic.Config{}
	for _, c := range change {
		c(&cfg)
	}
	r.Plugin = topic.New(cfg)
	r.Plugin.Attach(r.space, logger)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.space.Run(ctx) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		for p := range int32(partitions) {
			r.lose(p)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) && !errors.Is(err, eventlog.ErrClosed) {
			t.Errorf("%s: Run: %v", name, err)
		}
		r.space.Close()
	}
	t.Cleanup(r.stop)
	return r
}

// held is what shard.Host.Holding is.
func (r *replica) held(p int32) (shard.Holding, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.holding[p]
	if h == nil {
		return shard.Holding{}, false
	}
	return shard.Holding{Claim: h.writer.Claim(), Owner: eventlog.Ownership{NodeID: 1, Instance: r.name}, Tenure: h.ctx, Renew: h.writer.Renew}, true
}

// own claims the partition of a group in the log, and begins a tenure.
func (r *replica) own(groups ...string) {
	r.t.Helper()
	for _, g := range groups {
		p := eventlog.Partition(g, partitions)
		w, err := r.log.Claim(r.t.Context(), p, eventlog.Ownership{NodeID: 1, Instance: r.name})
		if err != nil {
			r.t.Fatal(err)
		}
		r.lose(p)
		ctx, end := context.WithCancelCause(context.Background())
		r.mu.Lock()
		r.holding[p] = &tenure{w, ctx, end}
		r.mu.Unlock()
	}
}

func (r *replica) ownAll() {
	r.t.Helper()
	seen := map[int32]bool{}
	for i := 0; len(seen) < partitions; i++ {
		g := fmt.Sprint("g", i)
		if p := eventlog.Partition(g, partitions); !seen[p] {
			seen[p] = true
			r.own(g)
		}
	}
}

// lose ends the tenure of a partition.
func (r *replica) lose(p int32) {
	r.mu.Lock()
	h := r.holding[p]
	delete(r.holding, p)
	r.mu.Unlock()
	if h != nil {
		h.writer.Close()
		h.end(shard.ErrNotOwner)
	}
}

// ctx is under the tenure of the group's partition; it has ended where there is none.
func (r *replica) ctx(group string) context.Context {
	if h, ok := r.held(eventlog.Partition(group, partitions)); ok {
		return h.Tenure
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(shard.ErrNotOwner)
	return ctx
}

const patience = 20 * time.Second

func wait[T any](t *testing.T, f *plugin.Future[T]) (T, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return f.Wait(ctx)
}

func (r *replica) set(group string, epoch int32, name string) error {
	r.t.Helper()
	_, err := wait(r.t, r.Set(r.ctx(group), group, epoch, described(name)))
	return err
}

func (r *replica) mustSet(group string, epoch int32, name string) {
	r.t.Helper()
	if err := r.set(group, epoch, name); err != nil {
		r.t.Fatalf("%s: set of %s: %v", r.name, group, err)
	}
}

func (r *replica) mustDelete(group string) {
	r.t.Helper()
	if _, err := wait(r.t, r.Delete(r.ctx(group), group)); err != nil {
		r.t.Fatalf("%s: delete of %s: %v", r.name, group, err)
	}
}

// want compares what Get returns; "" is nothing.
func (r *replica) want(group string, epoch int32, name string) {
	r.t.Helper()
	d, err := wait(r.t, r.Get(context.Background(), group, epoch))
	if err != nil {
		r.t.Fatalf("%s: get of %s: %v", r.name, group, err)
	}
	if got := nameOf(d); got != name {
		r.t.Errorf("%s: epoch %d of %s is %q, want %q", r.name, epoch, group, got, name)
	}
}

func (r *replica) wantEpochs(group string, want ...int32) {
	r.t.Helper()
	got, err := wait(r.t, r.Epochs(context.Background(), group))
	if err != nil || fmt.Sprint(got) != fmt.Sprint(want) && len(got)+len(want) > 0 {
		r.t.Errorf("%s: epochs of %s are %v (%v), want %v", r.name, group, got, err, want)
	}
}

func described(name string) *plugin.Description {
	return &plugin.Description{Subtopologies: []plugin.Subtopology{{ID: "0", Nodes: []plugin.Node{{Name: name, Type: plugin.NodeProcessor}}}}}
}

func nameOf(d *plugin.Description) string {
	if d == nil {
		return ""
	}
	return d.Subtopologies[0].Nodes[0].Name
}
