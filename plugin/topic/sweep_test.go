package topic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"streamkeeper/plugin"
)

func sprint(v any) string { return fmt.Sprint(v) }

// memoryPlace is a Place without a cluster: everything is written at once, unless it is held.
type memoryPlace struct {
	mu      sync.Mutex
	values  map[string][]byte
	written []string // keys, in order
	fail    error
	voids   [][]byte
	foreign string // a group of partition 1, which is not ours
}

func newPlace() *memoryPlace { return &memoryPlace{values: map[string][]byte{}} }

func (m *memoryPlace) Partition(group string) int32 {
	if group == m.foreign {
		return 1
	}
	return 0
}

func (m *memoryPlace) Topic() string                                { return "descriptions" }
func (m *memoryPlace) ValueBytesMax(int) int                        { return 1 << 20 }
func (m *memoryPlace) Visible(context.Context, string) error        { return m.fail }
func (m *memoryPlace) Settle(_ context.Context, group string) error { return m.write(group) }
func (m *memoryPlace) VoidsOf(_ int32, f func([]byte) bool) error   { return m.each(m.voids, f) }
func (m *memoryPlace) write(group string) error {
	if m.Partition(group) != 0 {
		return errors.New("the partition is not served here")
	}
	return m.fail
}

func (m *memoryPlace) each(keys [][]byte, f func([]byte) bool) error {
	for _, k := range keys {
		if !f(k) {
			break
		}
	}
	return m.fail
}

func (m *memoryPlace) Append(ctx context.Context, group string, records []Record, done func(error)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(m.write(group), ctx.Err()); err != nil {
		return err
	}
	for _, r := range records {
		m.written = append(m.written, fmt.Sprintf("%s %v", r.Key, r.Value != nil))
		if m.values[string(r.Key)] = r.Value; r.Value == nil {
			delete(m.values, string(r.Key))
		}
	}
	go done(nil)
	return nil
}

func (m *memoryPlace) Value(_ string, key []byte) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[string(key)]
	return v, ok, m.fail
}

func (m *memoryPlace) Keys(_ string, prefix []byte, f func([]byte) bool) error {
	return m.keys(prefix, nil, f)
}
func (m *memoryPlace) KeysOf(_ int32, after []byte, f func([]byte) bool) error {
	return m.keys(nil, after, f)
}

func (m *memoryPlace) keys(prefix, after []byte, f func([]byte) bool) error {
	m.mu.Lock()
	var list [][]byte
	for k := range m.values {
		if strings.HasPrefix(k, string(prefix)) && (after == nil || k > string(after)) {
			list = append(list, []byte(k))
		}
	}
	m.mu.Unlock()
	slices.SortFunc(list, func(a, b []byte) int { return strings.Compare(string(a), string(b)) })
	return m.each(list, f)
}

func attached(place Place, cfg Config) *Plugin {
	p := New(cfg)
	p.Attach(place, nil)
	return p
}

// groups are the groups of the log; those in lag are not yet known to those who look in passing.
type groups struct {
	mu  sync.Mutex
	has map[string]bool
	lag map[string]bool
	// before and after MayBeDescribed looks
	before, after func()
}

func (g *groups) SeemsDescribed(group string) (bool, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.has[group] && !g.lag[group], nil
}

func (g *groups) MayBeDescribed(_ context.Context, group string) (bool, error) {
	call(g.before)
	defer call(g.after)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.has[group], nil
}

func call(f func()) {
	if f != nil {
		f()
	}
}

func set(t *testing.T, p *Plugin, group string, epochs ...int32) {
	t.Helper()
	for _, e := range epochs {
		if _, err := p.Set(t.Context(), group, e, &plugin.Description{}).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *memoryPlace) held() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []string
	for k := range m.values {
		if group, epoch, err := decodeKey([]byte(k)); err != nil {
			list = append(list, k)
		} else {
			list = append(list, fmt.Sprintf("%s@%d", group, epoch))
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestSweepRemovesOrphansAlone(t *testing.T) {
	place := newPlace()
	p := attached(place, Config{EpochsMax: 50})
	for _, g := range []string{"kept", "new", "gone", "gone too", "g"} {
		set(t, p, g, 0, 1)
	}
	for e := range int32(40) { // more than one batch of tombstones
		set(t, p, "many", e)
	}
	place.values[`{"v":2,"group":"gone","epoch":1}`] = []byte("of a newer program")
	known := &groups{has: map[string]bool{"kept": true, "new": true}, lag: map[string]bool{"new": true}}
	swept, err := p.Sweep(t.Context(), 0, known)
	if err != nil || swept.Groups != 6 || swept.Orphans != 4 {
		t.Errorf("%+v, %v", swept, err)
	}
	if got, want := place.held(), `kept@0 kept@1 new@0 new@1 {"v":2,"group":"gone","epoch":1}`; got != want {
		t.Errorf("held: %s, want %s", got, want)
	}
	if swept, err = p.Sweep(t.Context(), 0, known); err != nil || swept.Orphans != 0 {
		t.Errorf("a second time: %+v, %v", swept, err)
	}
	place.fail = errors.New("unread")
	if _, err = p.Sweep(t.Context(), 0, known); !errors.Is(err, place.fail) {
		t.Errorf("a topic that can't be read: %v", err)
	}
}

// TestSweepLeavesWhatIsBeingPushed: a push marks its group and then sets; whenever that happens beside a sweep, its description stays.
func TestSweepLeavesWhatIsBeingPushed(t *testing.T) {
	for _, at := range []string{"before it is asked", "marked before, set afterwards", "while the answer is under way"} {
		t.Run(at, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				place := newPlace()
				p := attached(place, Config{})
				set(t, p, "g", 0)
				known := &groups{has: map[string]bool{}}
				var pushed *plugin.Future[plugin.Void]
				mark := func() { known.has["g"] = true }
				push := func() {
					pushed = p.Set(t.Context(), "g", 1, &plugin.Description{})
					synctest.Wait() // it has come as far as it can
				}
				switch at {
				case "before it is asked":
					known.before = func() { mark(); push() }
				case "marked before, set afterwards":
					known.before, known.after = mark, push
				default:
					known.after = func() { mark(); push() }
				}
				if _, err := p.Sweep(t.Context(), 0, known); err != nil {
					t.Fatal(err)
				}
				if _, err := pushed.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := place.held(); !strings.Contains(got, "g@1") {
					t.Errorf("what was pushed is gone: %q after %q", got, place.written)
				}
			})
		})
	}
}

func TestRepairWritesTheRightValue(t *testing.T) {
	place := newPlace()
	p := attached(place, Config{})
	set(t, p, "g", 0)
	place.voids = [][]byte{encodeKey("g", 0), encodeKey("g", 1), []byte("somebody else's")}
	place.written = nil
	if n, err := p.Repair(t.Context(), 0); err != nil || n != 2 {
		t.Errorf("%d, %v", n, err)
	}
	want := []string{`{"v":1,"group":"g","epoch":0} true`, `{"v":1,"group":"g","epoch":1} false`}
	if !slices.Equal(place.written, want) {
		t.Errorf("written %q, want %q", place.written, want)
	}
}

// Somebody writes keys of ours into a partition that is not their group's. They stop neither the sweep nor the repair of the others.
func TestKeysInTheWrongPartition(t *testing.T) {
	place := newPlace()
	place.foreign = "elsewhere"
	p := attached(place, Config{})
	set(t, p, "gone", 0)
	set(t, p, "kept", 0)
	place.values[string(encodeKey("elsewhere", 0))] = []byte("whatever")
	swept, err := p.Sweep(t.Context(), 0, &groups{has: map[string]bool{"kept": true}})
	if err != nil || swept.Orphans != 1 || place.held() != "elsewhere@0 kept@0" {
		t.Errorf("%+v, %v, held: %s", swept, err, place.held())
	}
	place.voids = [][]byte{encodeKey("elsewhere", 0), encodeKey("kept", 0)}
	if n, err := p.Repair(t.Context(), 0); err != nil || n != 1 {
		t.Errorf("repaired %d, %v", n, err)
	}
}

func TestTooEarlyAndTooLate(t *testing.T) {
	p := New(Config{})
	if _, err := p.Get(t.Context(), "g", 0).Result(); !errors.Is(err, errNotAttached) || plugin.IsPermanent(err) {
		t.Errorf("before Attach: %v", err)
	}
	if _, err := p.Sweep(t.Context(), 0, &groups{}); !errors.Is(err, errNotAttached) {
		t.Errorf("a sweep before Attach: %v", err)
	}
	p.Attach(newPlace(), nil)
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Delete(t.Context(), "g").Result(); !errors.Is(err, plugin.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := p.Repair(t.Context(), 0); !errors.Is(err, plugin.ErrClosed) {
		t.Errorf("a repair after Close: %v", err)
	}
}

func TestDamagedValueIsAnError(t *testing.T) {
	place := newPlace()
	p := attached(place, Config{})
	set(t, p, "g", 0)
	place.values[string(encodeKey("g", 0))][0] = 9
	_, err := p.Get(t.Context(), "g", 0).Wait(t.Context())
	if err == nil || !strings.Contains(err.Error(), `topic descriptions, group "g", epoch 0`) || !strings.Contains(err.Error(), "format version 9") {
		t.Errorf("%v", err)
	}
}

func TestFactory(t *testing.T) {
	r, err := plugin.NewRegistry(Factory())
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Open("topic", map[string]string{"topic": "my.topic", "epochs.max": "2", "description.bytes.max": "1000"})
	if err != nil {
		t.Fatal(err)
	}
	if got := p.(*Plugin); got.cfg != (Config{Topic: "my.topic", EpochsMax: 2, DescriptionBytesMax: 1000}) || got.TopicOf("log") != "my.topic" {
		t.Errorf("config %+v", got.cfg)
	}
	if p, err = r.Open("topic", nil); err != nil || p.(*Plugin).TopicOf("log") != "log-topologies" || p.(*Plugin).cfg.EpochsMax != EpochsMaxDefault {
		t.Errorf("without settings: %+v, %v", p, err)
	}
	for settings, want := range map[[2]string]string{
		{"topic", "a b"}:                    `topic="a b": want a topic's name, which can't hold ' '`,
		{"topic", ".."}:                     `topic="..": want a topic's name`,
		{"topic", strings.Repeat("x", 250)}: "at most 249 characters",
		{"epochs.max", "0"}:                 `epochs.max="0": want a number between 1 and 1000`,
		{"description.bytes.max", "-1"}:     `description.bytes.max="-1": want a number between 0 and 2147483647`,
	} {
		if _, err := r.Open("topic", map[string]string{settings[0]: settings[1]}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s=%s: %v, want %s", settings[0], settings[1], err, want)
		}
	}
}
