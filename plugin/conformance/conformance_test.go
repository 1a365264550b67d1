package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"streamkeeper/plugin"
	"streamkeeper/plugin/conformance"
	"streamkeeper/plugin/memory"
)

// faulty is a good plugin with one fault. A fault gets the call and the good plugin.
type faulty struct {
	*memory.Plugin
	mu sync.Mutex
	// Each nil function is the good plugin's.
	set    func(f *faulty, ctx context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void]
	get    func(f *faulty, ctx context.Context, group string, epoch int32) *plugin.Future[*plugin.Description]
	delete func(f *faulty, ctx context.Context, group string) *plugin.Future[plugin.Void]
	epochs func(f *faulty, ctx context.Context, group string) *plugin.Future[[]int32]
	name   func() string
	close  func(f *faulty, ctx context.Context) error
	last   map[string]int32
	kept   map[string]*plugin.Description
}

func (f *faulty) Name() string {
	if f.name != nil {
		return f.name()
	}
	return f.Plugin.Name()
}

func (f *faulty) Set(ctx context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
	if f.set != nil {
		return f.set(f, ctx, group, epoch, d)
	}
	return f.Plugin.Set(ctx, group, epoch, d)
}

func (f *faulty) Get(ctx context.Context, group string, epoch int32) *plugin.Future[*plugin.Description] {
	if f.get != nil {
		return f.get(f, ctx, group, epoch)
	}
	return f.Plugin.Get(ctx, group, epoch)
}

func (f *faulty) Delete(ctx context.Context, group string) *plugin.Future[plugin.Void] {
	if f.delete != nil {
		return f.delete(f, ctx, group)
	}
	return f.Plugin.Delete(ctx, group)
}

func (f *faulty) Epochs(ctx context.Context, group string) *plugin.Future[[]int32] {
	if f.epochs != nil {
		return f.epochs(f, ctx, group)
	}
	return f.Plugin.Epochs(ctx, group)
}

func (f *faulty) Close(ctx context.Context) error {
	if f.close != nil {
		return f.close(f, ctx)
	}
	return f.Plugin.Close(ctx)
}

// renamed stores groups under another id.
func renamed(rename func(string) string) *faulty {
	return &faulty{
		set: func(f *faulty, ctx context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
			return f.Plugin.Set(ctx, rename(group), epoch, d)
		},
		get: func(f *faulty, ctx context.Context, group string, epoch int32) *plugin.Future[*plugin.Description] {
			return f.Plugin.Get(ctx, rename(group), epoch)
		},
		delete: func(f *faulty, ctx context.Context, group string) *plugin.Future[plugin.Void] {
			return f.Plugin.Delete(ctx, rename(group))
		},
	}
}

// changed stores other descriptions than it is given.
func changed(change func(*plugin.Description)) *faulty {
	return &faulty{set: func(f *faulty, ctx context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
		d = d.Clone()
		change(d)
		return f.Plugin.Set(ctx, group, epoch, d)
	}}
}

// faults are the faulty plugins, and which subtests must find each of them.
var faults = map[string]struct {
	make  func() *faulty
	found []string
}{
	"forgets":     {func() *faulty { return changed(func(*plugin.Description) {}) }, nil}, // none: the suite passes a good plugin
	"has no name": {func() *faulty { return &faulty{name: func() string { return "" }} }, []string{"NameIsFixed", "Close"}},
	"loses everything": {func() *faulty {
		return &faulty{set: func(*faulty, context.Context, string, int32, *plugin.Description) *plugin.Future[plugin.Void] {
			return plugin.Completed(plugin.Void{})
		}}
	}, []string{"SetThenGet", "SetAgain", "DeleteThenGet", "DeleteIsOfOneGroup", "Epochs", "EpochsBeginAgainAfterDelete", "Copies", "GroupNames", "TextsInDescriptions", "OddShapes", "LargeDescriptions", "Concurrency", "CancelledContext", "Close"}},
	"returns nil": {func() *faulty {
		return &faulty{delete: func(*faulty, context.Context, string) *plugin.Future[plugin.Void] { return nil }}
	}, []string{"UnknownGroup", "DeleteThenGet", "CancelledContext"}},
	"deletes nothing": {func() *faulty {
		return &faulty{delete: func(*faulty, context.Context, string) *plugin.Future[plugin.Void] {
			return plugin.Completed(plugin.Void{})
		}}
	}, []string{"DeleteThenGet", "Epochs", "EpochsBeginAgainAfterDelete", "GroupNames", "Concurrency"}},
	"deletes only what is there": {func() *faulty {
		return &faulty{delete: func(f *faulty, ctx context.Context, group string) *plugin.Future[plugin.Void] {
			f.mu.Lock()
			defer f.mu.Unlock()
			if _, there := f.last[group]; !there {
				return plugin.Failed[plugin.Void](plugin.Permanent("no such group"))
			}
			delete(f.last, group)
			return f.Plugin.Delete(ctx, group)
		}, set: func(f *faulty, ctx context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.last[group] = epoch
			return f.Plugin.Set(ctx, group, epoch, d)
		}}
	}, []string{"UnknownGroup", "DeleteThenGet"}},
	"keeps the last epoch, not the highest": {func() *faulty { // as Kafka's in-memory plugin does
		return &faulty{set: func(f *faulty, ctx context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
			f.Plugin.Delete(ctx, group)
			return f.Plugin.Set(ctx, group, epoch, d)
		}}
	}, []string{"Epochs"}},
	"ignores the epoch": {func() *faulty {
		return &faulty{set: func(f *faulty, ctx context.Context, group string, _ int32, d *plugin.Description) *plugin.Future[plugin.Void] {
			return f.Plugin.Set(ctx, group, 0, d)
		}, get: func(f *faulty, ctx context.Context, group string, _ int32) *plugin.Future[*plugin.Description] {
			return f.Plugin.Get(ctx, group, 0)
		}}
	}, []string{"Epochs", "EpochsBeginAgainAfterDelete"}},
	"never lets an epoch go back": {func() *faulty {
		return &faulty{set: func(f *faulty, ctx context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
			f.mu.Lock()
			defer f.mu.Unlock()
			if last, ok := f.last[group]; ok && epoch < last {
				return plugin.Completed(plugin.Void{})
			}
			f.last[group] = epoch
			return f.Plugin.Set(ctx, group, epoch, d)
		}}
	}, []string{"EpochsBeginAgainAfterDelete"}},
	"lists every epoch": {func() *faulty {
		return &faulty{epochs: func(*faulty, context.Context, string) *plugin.Future[[]int32] {
			return plugin.Completed([]int32{0, 1, 2, 3, 2147483647})
		}}
	}, []string{"EpochsAreListed"}},
	"lists no epoch": {func() *faulty {
		return &faulty{epochs: func(*faulty, context.Context, string) *plugin.Future[[]int32] { return plugin.Completed[[]int32](nil) }}
	}, []string{"EpochsAreListed"}},
	"keeps the caller's value": {func() *faulty {
		return &faulty{set: func(f *faulty, _ context.Context, group string, _ int32, d *plugin.Description) *plugin.Future[plugin.Void] {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.kept[group] = d
			return plugin.Completed(plugin.Void{})
		}, get: func(f *faulty, _ context.Context, group string, _ int32) *plugin.Future[*plugin.Description] {
			f.mu.Lock()
			defer f.mu.Unlock()
			return plugin.Completed(f.kept[group].Clone())
		}}
	}, []string{"Copies"}},
	"returns its own value": {func() *faulty {
		return &faulty{set: func(f *faulty, _ context.Context, group string, _ int32, d *plugin.Description) *plugin.Future[plugin.Void] {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.kept[group] = d.Clone()
			return plugin.Completed(plugin.Void{})
		}, get: func(f *faulty, _ context.Context, group string, _ int32) *plugin.Future[*plugin.Description] {
			f.mu.Lock()
			defer f.mu.Unlock()
			return plugin.Completed(f.kept[group])
		}}
	}, []string{"Copies"}},
	"folds case":   {func() *faulty { return renamed(strings.ToLower) }, []string{"DeleteIsOfOneGroup", "GroupNames"}},
	"trims ids":    {func() *faulty { return renamed(strings.TrimSpace) }, []string{"DeleteIsOfOneGroup", "GroupNames"}},
	"cuts ids":     {func() *faulty { return renamed(func(g string) string { return g[:min(len(g), 248)] }) }, []string{"GroupNames"}},
	"cleans paths": {func() *faulty { return renamed(func(g string) string { return strings.TrimSuffix(g, "/") }) }, []string{"DeleteIsOfOneGroup", "GroupNames"}},
	"ends at NUL": {func() *faulty {
		return renamed(func(g string) string { before, _, _ := strings.Cut(g, "\x00"); return before })
	}, []string{"GroupNames"}},
	"sorts topics": {func() *faulty { return changed(func(d *plugin.Description) { eachList(d, slices.Sort[[]string]) }) }, []string{"TextsInDescriptions"}},
	"sorts subtopologies": {func() *faulty {
		return changed(func(d *plugin.Description) {
			slices.SortFunc(d.Subtopologies, func(a, b plugin.Subtopology) int { return strings.Compare(a.ID, b.ID) })
		})
	}, []string{"OddShapes"}},
	"no computed sinks": {func() *faulty {
		return changed(func(d *plugin.Description) {
			eachNode(d, func(n *plugin.Node) {
				if n.Type == plugin.NodeSink && n.SinkTopic == nil {
					n.SinkTopic = new(string)
				}
			})
		})
	}, []string{"SetThenGet", "OddShapes"}},
	"refuses for now": {func() *faulty {
		return &faulty{set: func(f *faulty, ctx context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
			if d.Bytes() > 500_000 {
				return plugin.Failed[plugin.Void](plugin.Transient("too large", nil))
			}
			return f.Plugin.Set(ctx, group, epoch, d)
		}}
	}, []string{"LargeDescriptions"}},
	"refuses, but stores": {func() *faulty {
		return &faulty{set: func(f *faulty, ctx context.Context, group string, epoch int32, d *plugin.Description) *plugin.Future[plugin.Void] {
			f.Plugin.Set(ctx, group, epoch, d)
			if d.Bytes() > 500_000 {
				return plugin.Failed[plugin.Void](plugin.Permanent("too large"))
			}
			return plugin.Completed(plugin.Void{})
		}}
	}, []string{"LargeDescriptions"}},
	"does not close": {func() *faulty { return &faulty{close: func(*faulty, context.Context) error { return nil }} }, []string{"Close"}},
	"closes once": {func() *faulty {
		return &faulty{close: func(f *faulty, ctx context.Context) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.last["closed"] == 1 {
				return plugin.ErrClosed
			}
			f.last["closed"] = 1
			return f.Plugin.Close(ctx)
		}}
	}, []string{"Close"}},
}

func eachNode(d *plugin.Description, change func(*plugin.Node)) {
	for n := range d.Nodes {
		change(n)
	}
}

func eachList(d *plugin.Description, change func([]string)) {
	eachNode(d, func(n *plugin.Node) { change(n.SourceTopics) })
}

const faultVariable = "STREAMKEEPER_CONFORMANCE_FAULT"

// TestFaultyPlugin runs the suite over the plugin that the environment names; TestSuiteFindsFaults starts it.
func TestFaultyPlugin(t *testing.T) {
	name := os.Getenv(faultVariable)
	if name == "" {
		return // nothing to do in the process that starts the others
	}
	conformance.Run(t, func(*testing.T) plugin.Plugin {
		f := faults[name].make()
		f.Plugin, f.last, f.kept = memory.New(memory.Config{EpochsMax: 50}), map[string]int32{}, map[string]*plugin.Description{}
		return f
	})
}

var failed = regexp.MustCompile(`(?m)^ +--- FAIL: TestFaultyPlugin/(\w+)`)

// TestSuiteFindsFaults: a suite that every plugin passes says nothing. It runs in processes of their own, since a test can't
// expect another one to fail.
func TestSuiteFindsFaults(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestFaultyPlugin$", "-test.timeout", "60s")
			cmd.Env = append(os.Environ(), faultVariable+"="+name)
			out, err := cmd.CombinedOutput()
			var found []string
			for _, m := range failed.FindAllSubmatch(out, -1) {
				found = append(found, string(m[1]))
			}
			for _, want := range f.found {
				if !slices.Contains(found, want) {
					t.Errorf("%s does not find it; found by %q", want, found)
				}
			}
			if (err != nil) != (len(f.found) > 0) {
				t.Errorf("%v\n%s", err, out)
			}
			if strings.Contains(string(out), "panic:") {
				t.Errorf("the suite panics:\n%s", out)
			}
		})
	}
}
