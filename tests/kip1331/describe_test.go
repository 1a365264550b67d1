package kip1331

import (
	"fmt"
	"testing"
)

// describeStories: the status and the description in a describe answer.
func describeStories(t *testing.T, w *world) {
	t.Run("Statuses", func(t *testing.T) { statuses(t, w) })
	t.Run("Outcomes", func(t *testing.T) { getOutcomes(t, w) })
	t.Run("Versions", func(t *testing.T) { describeVersions(t, w) })
}

// getOutcomes: whatever the plugin does to a get, no group's error code changes.
func getOutcomes(t *testing.T, w *world) {
	p := w.pair(t)
	var groups []string
	for _, c := range []struct {
		behaviour string
		status    int8
	}{
		{"ok", 3}, {"twice", 3}, {"late", 3}, {"null", 1}, {"transient", 2}, {"permanent", 2}, {"wrapped", 2}, {"error", 2},
		{"latefail", 2}, {"bare", 2}, {"mute", 2}, {"large", 2}, {"throw", 2}, {"nil", 2},
	} {
		g := w.group("get", "get:"+c.behaviour+"*2")
		groups = append(groups, g)
		p.joined(1, g, "m")
		p.push(pushing(g, "m", 0))
		if s := p.describe(g)[g]; s != c.status {
			t.Errorf("%s: status %d, want %d", g, s, c.status)
		}
	}
	p.describe(append(groups, "nobody", "")...) // all side by side
	for g, s := range p.describe(groups...) {   // and the plugin has recovered
		if s != 3 {
			t.Errorf("%s: status %d", g, s)
		}
		if calls := p.pluginCalls(g); len(calls) != 4 {
			t.Errorf("%s: %q", g, calls)
		}
	}
	logs := w.readLogs(t)
	for _, g := range groups {
		if got := fmt.Sprint(epochs(logs.same(p, g))); got != "[-1/-1 -2/-1 0/-1]" {
			t.Errorf("%s: a describe has changed something: %s", g, got)
		}
	}
}

// statuses: what is asked of the plugin at all.
func statuses(t *testing.T, w *world) {
	p := w.pair(t)
	for _, c := range []struct {
		name   string
		group  string
		setUp  func(g string)
		status int8
		calls  int // gets
	}{
		{"never pushed", w.group("none"), func(g string) { p.joined(1, g, "m") }, 1, 0},
		{"stored", w.group("stored"), func(g string) { p.joined(1, g, "m"); p.push(pushing(g, "m", 0)) }, 3, 1},
		{"uncertain", w.group("uncertain", "set:transient"), func(g string) { p.joined(1, g, "m"); p.push(pushing(g, "m", 0)) }, 1, 0},
		{"refused", w.group("refused", "set:permanent"), func(g string) { p.joined(1, g, "m"); p.push(pushing(g, "m", 0)) }, 1, 0},
		{"empty", w.group("empty"), func(g string) { p.joined(1, g, "m"); p.push(pushing(g, "m", 0)); p.leave(g, "m") }, 3, 1},
		{"deletion failed", w.group("undeleted", "delete:error"), func(g string) {
			p.joined(1, g, "m")
			p.push(pushing(g, "m", 0))
			p.leave(g, "m")
			p.delete(3, g)
		}, 1, 0},
	} {
		c.setUp(c.group)
		if s := p.describe(c.group)[c.group]; s != c.status {
			t.Errorf("%s: status %d, want %d", c.name, s, c.status)
		}
		gets := 0
		for _, call := range p.pluginCalls(c.group) {
			if call[:3] == "get" {
				gets++
			}
		}
		if gets != c.calls {
			t.Errorf("%s: %d gets, want %d", c.name, gets, c.calls)
		}
	}
}

// describeVersions: nothing is asked of the plugin unless the request says so.
func describeVersions(t *testing.T, w *world) {
	p, g := w.pair(t), w.group("described")
	p.joined(1, g, "m")
	p.push(pushing(g, "m", 0))
	p.describeAs(describing(0, false, g, "nobody"))
	p.describeAs(describing(1, false, g, "nobody"))
	p.describeAs(describing(1, true)) // of nothing
	twice := describing(1, true, g, g)
	twice.IncludeAuthorizedOperations = true
	p.describeAs(twice)
	if calls := p.pluginCalls(g); len(calls) != 3 { // the set, and the two of the last
		t.Errorf("calls %q", calls)
	}
}
