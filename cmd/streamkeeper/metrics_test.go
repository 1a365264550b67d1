package main

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// metricRows are the metrics that have a row in a table of docs/operations.md, with what the row says of them.
func metricRows(t *testing.T) map[string]string {
	t.Helper()
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, ours := kafkaTable(t)
	rows := map[string]string{}
	for _, name := range ours {
		rows["streamkeeper_"+name] = "a metric of Kafka's"
	}
	quoted := regexp.MustCompile("`(streamkeeper|…)_([a-z_0-9]+)")
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 4 || cells[0] != "" || !strings.HasPrefix(strings.TrimSpace(cells[1]), "`streamkeeper_") {
			continue
		}
		before := ""
		for _, m := range quoted.FindAllStringSubmatch(cells[1], -1) {
			name := "streamkeeper_" + m[2]
			if m[1] == "…" { // the same as the first one of the row, with another end
				i := strings.LastIndex(before, "_set_")
				if i < 0 {
					t.Errorf("what does %s stand for in %q?", m[0], line)
					continue
				}
				name = before[:i+1] + m[2]
			} else {
				before = name
			}
			rows[name] = strings.TrimSpace(cells[len(cells)-2])
		}
	}
	return rows
}

// Every metric of a running replica has a row that says what it is and what to do, and what has a row is there.
func TestEveryMetricHasARow(t *testing.T) {
	d := startDev(t, t.TempDir())
	produce(t, d, 1)
	newMember(t, d, "orders").join(4)
	measured := map[string]bool{}
	for name := range parsePage(t, metricsOf(t, d)) {
		if strings.HasPrefix(name, "streamkeeper_") {
			measured[name] = true
		}
	}
	if len(measured) < 100 {
		t.Errorf("only %d metrics: %v", len(measured), slices.Sorted(maps.Keys(measured)))
	}
	rows := metricRows(t)
	for _, name := range slices.Sorted(maps.Keys(measured)) {
		if len(rows[name]) < 10 {
			t.Errorf("docs/operations.md has no row for %s (%q)", name, rows[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if !measured[name] {
			t.Errorf("docs/operations.md has a row for %s, which a replica does not measure", name)
		}
	}
}
