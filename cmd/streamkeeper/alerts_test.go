package main

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
)

// rule is one alerting rule of docs/deploy/alerts.yaml.
type rule struct {
	Alert       string
	Expr        string
	For         model.Duration
	Annotations map[string]string
}

func alerts(t *testing.T) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal([]byte(read(t, "alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("no rules")
	}
	return all
}

// What alarms and the dashboard ask for is on a running replica.
func TestWhatIsAskedForIsMeasured(t *testing.T) {
	d := startDev(t, t.TempDir())
	produce(t, d, 1)
	m := newMember(t, d, "orders")
	m.join(4)
	h := newHistory(t)
	h.scrape(map[string]page{"a": parsePage(t, metricsOf(t, d))})
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	exprs := map[string]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			exprs["panel "+p.Title] = target.Expr
		}
	}
	for _, r := range alerts(t) {
		exprs["alarm "+r.Alert] = r.Expr
	}
	for where, expr := range exprs {
		asked := unmeasured(h, expr)
		if len(asked) > 0 {
			t.Errorf("%s asks for %v, which /metrics has not", where, asked)
		}
	}
	// The two sides of the alarm of unserved shards are the same where all are served.
	if all, active := scrape(t, d)["streamkeeper_partitions"], scrape(t, d)[`streamkeeper_num_partitions{state="active"}`]; all != 4 || active != all {
		t.Errorf("%v of %v partitions are active, want 4 of 4", active, all)
	}
	if got := unmeasured(h, `sum(streamkeeper_num_partitions{state="nonsense"}) + streamkeeper_nothing`); len(got) != 2 {
		t.Errorf("a wrong label and a wrong name: found %v", got)
	}
	if got := unmeasured(h, `rate(nothing_at_all[5m])`); len(got) != 1 {
		t.Errorf("a name that is not ours: found %v", got)
	}
}

// unmeasured are the selectors of an expression that the only page of a history does not answer. Prometheus' own "up" counts as answered.
func unmeasured(h *history, expr string) (out []string) {
	for _, selector := range selectors(h.t, expr) {
		if len(h.query(selector, h.now)) == 0 {
			out = append(out, selector)
		}
	}
	return out
}

// Each alarm is explained, and each explanation has its alarm.
func TestAlarmsAreExplained(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(Streamkeeper\\w+)` \\| .{40,} \\|$").FindAllStringSubmatch(string(doc), -1) {
		explained[m[1]] = true
	}
	for _, r := range alerts(t) {
		if !explained[r.Alert] {
			t.Errorf("docs/operations.md does not explain %s", r.Alert)
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", r.Alert)
		}
		delete(explained, r.Alert)
	}
	for name := range explained {
		t.Errorf("docs/operations.md explains %s, which docs/deploy/alerts.yaml has not", name)
	}
}
