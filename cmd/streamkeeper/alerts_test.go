package main

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
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
		Templating struct {
			List []struct{ Name, Query string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "grafana.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	exprs := map[string]string{}
	for _, v := range dashboard.Templating.List {
		if values, of := strings.CutPrefix(v.Query, "label_values("); of {
			exprs["variable "+v.Name], _, _ = strings.Cut(values, ",")
		}
	}
	if len(exprs) != 1 {
		t.Errorf("the dashboard has %d variables with values of a metric, want one: the job", len(exprs))
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			exprs["panel "+p.Title] = strings.ReplaceAll(target.Expr, "$job", "streamkeeper") // what the variable is where the pages of these tests come from
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

// What is to be watched has an alarm, or is said to have none.
func TestWhatIsWatchedHasAnAlarm(t *testing.T) {
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(doc), "\n## What to watch\n")
	section, _, _ = strings.Cut(section, "\n## ")
	table, without, ok := strings.Cut(section, "\nFour of these have no rule")
	if !ok {
		t.Fatal("it is not said which have none")
	}
	var asked strings.Builder
	for _, r := range alerts(t) {
		asked.WriteString(r.Expr + "\n")
	}
	metric := regexp.MustCompile("`(streamkeeper_[a-z_]+|…_[a-z_]+)")
	none := map[string]bool{}
	for _, m := range metric.FindAllStringSubmatch(without, -1) {
		none[m[1]] = true
	}
	if len(none) != 4 {
		t.Errorf("four are said to have none: %v", none)
	}
	watched := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(table, -1) {
		for _, m := range metric.FindAllStringSubmatch(row[1], -1) {
			watched++
			name := m[1]
			if short, of := strings.CutPrefix(name, "…"); of {
				name = "streamkeeper_streams_group_topology_description" + short
			}
			if has := regexp.MustCompile(name + `\b`).MatchString(asked.String()); has == none[name] {
				t.Errorf("%s has an alarm: %v; is said to have none: %v", name, has, none[name])
			}
		}
	}
	if watched < 25 {
		t.Errorf("only %d metrics are found in the table", watched)
	}
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
