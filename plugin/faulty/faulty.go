package faulty

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"streamkeeper/plugin"
)

const (
	// LateAfter is how long a late future takes: long enough that another request comes in between.
	LateAfter = 300 * time.Millisecond
	// SlowAfter is how long a slow future takes: longer than a call may take here (plugin.TimeoutDefault), also where a busy machine notices that late.
	SlowAfter = 9 * time.Second
	// LargeBytes is the length of a large text, above the 32,767 bytes that Kafka can encode.
	LargeBytes = 40_000
)

// Config configures a Plugin.
type Config struct {
	// Called gets a line for each call; nil: nobody. It is called from many goroutines.
	Called func(line string)
}

// Plugin is the plugin; use New.
type Plugin struct {
	called func(string)

	mu    sync.Mutex
	kept  map[string]kept
	calls map[string]int      // by operation and group
	held  map[string][]func() // by NAME/OPERATION
}

type kept struct {
	epoch       int32
	description *plugin.Description
}

// New returns a plugin that has stored nothing.
func New(cfg Config) *Plugin {
	if cfg.Called == nil {
		cfg.Called = func(string) {}
	}
	return &Plugin{called: cfg.Called, kept: map[string]kept{}, calls: map[string]int{}, held: map[string][]func(){}}
}

// Factory makes the plugin "faulty", whose calls are printed on standard output.
func Factory() plugin.Factory {
	return plugin.Factory{Name: "faulty", Summary: "fails as the group id says; for tests", Open: func(v *plugin.Values) (plugin.Plugin, error) {
		var mu sync.Mutex // lines stay whole
		return New(Config{Called: func(line string) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(os.Stdout, line)
		}}), v.Err()
	}}
}

// Name is "faulty".
func (p *Plugin) Name() string { return "faulty" }

// Set does what the group id says.
func (p *Plugin) Set(_ context.Context, group string, topologyEpoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
	f := act(p, "set", group, topologyEpoch, func() plugin.Void {
		p.kept[group] = kept{topologyEpoch, d}
		return plugin.Void{}
	})
	for _, key := range frees(group) {
		p.mu.Lock()
		waiting := p.held[key]
		delete(p.held, key)
		p.mu.Unlock()
		for _, complete := range waiting {
			complete()
		}
	}
	return f
}

// Get does what the group id says.
func (p *Plugin) Get(_ context.Context, group string, topologyEpoch int32) *plugin.Future[*plugin.Description] {
	return act(p, "get", group, topologyEpoch, func() *plugin.Description {
		if k, ok := p.kept[group]; ok && k.epoch == topologyEpoch {
			return k.description.Clone()
		}
		return nil
	})
}

// Delete does what the group id says.
func (p *Plugin) Delete(_ context.Context, group string) *plugin.Future[plugin.Void] {
	return act(p, "delete", group, -1, func() plugin.Void {
		delete(p.kept, group)
		return plugin.Void{}
	})
}

// Close does nothing.
func (p *Plugin) Close(context.Context) error { return nil }

func act[T any](p *Plugin, operation, group string, epoch int32, work func() T) *plugin.Future[T] {
	p.mu.Lock()
	p.calls[operation+" "+group]++
	n := p.calls[operation+" "+group]
	p.mu.Unlock()
	how := behaviour(operation, group, n)
	p.called(fmt.Sprintf("plugin-call %s %d %s %s", operation, epoch, how, group))
	failed := errors.New(operation + " fails, call " + fmt.Sprint(n))
	locked := func() T {
		p.mu.Lock()
		defer p.mu.Unlock()
		return work()
	}
	f := plugin.NewFuture[T]()
	switch how {
	case "ok":
		f.Complete(locked())
	case "null":
		var none T
		f.Complete(none)
	case "twice":
		f.Complete(locked())
		f.Fail(failed)
	case "late":
		time.AfterFunc(LateAfter, func() { f.Complete(locked()) })
	case "held":
		p.mu.Lock()
		key := nameOf(group) + "/" + operation
		p.held[key] = append(p.held[key], func() { f.Complete(locked()) })
		p.mu.Unlock()
	case "slow":
		time.AfterFunc(SlowAfter, func() { f.Complete(locked()) })
	case "latefail":
		time.AfterFunc(LateAfter, func() { f.Fail(failed) })
	case "transient":
		f.Fail(plugin.Transient(failed.Error(), nil))
	case "permanent", "wrapped":
		f.Fail(plugin.Permanent(failed.Error()))
	case "error":
		f.Fail(failed)
	case "bare":
		f.Fail(nil)
	case "mute":
		f.Fail(errors.New(""))
	case "large":
		f.Fail(errors.New(strings.Repeat("x", LargeBytes)))
	case "throw":
		panic(failed)
	case "nil":
		return nil
	case "hang":
	default:
		panic("faulty: no such behaviour: " + how)
	}
	return f
}
