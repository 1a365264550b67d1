package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// What a rebalance did is read from the log: who came, what was moved, when it was over.
func TestTheLogExplainsARebalance(t *testing.T) {
	d := startDev(t, t.TempDir(), "--set", "group.streams.assignment.interval.ms=0")
	produce(t, d, 1)
	m := newMember(t, d, "orders")
	m.join(4)
	m.commit(0, 1)
	m.leave()

	stamp := regexp.MustCompile(`(?m)^\d+ +\d+ +\S+Z +`)
	got := stamp.ReplaceAllString(must(t, d, "log", "--explain", "--group", "orders"), "")
	got = regexp.MustCompile(`client app-1 at \S+,`).ReplaceAllString(got, "client app-1 at HOST,")
	want := explainHeader + `
orders  member member-1 joined (client app-1 at HOST, process process-1)
orders  topology 0 with 1 subtopology
orders  epoch 2: member member-1 joined; the topology is ready
orders  target of member-1: +0_0 +0_1 +0_2 +0_3
orders  target assignment 2
orders  member-1 gets 0_0 0_1 0_2 0_3, is at epoch 2
orders  stable at 2
orders  member member-1 is gone (left, or timed out)
orders  epoch 3: member member-1 is gone (left, or timed out)
orders  target assignment 3
orders  empty at 3
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}

	var kinds []string
	for line := range strings.Lines(must(t, d, "log", "--explain", "--json")) {
		var e struct {
			Kind, Group, Text string
			Epoch             *int32
			Offset            *int64
			Because           []string
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Group != "orders" || e.Text == "" || e.Offset == nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if e.Kind == "epoch" && (e.Epoch == nil || len(e.Because) == 0) {
			t.Errorf("an epoch without its number or reason: %s", line)
		}
		kinds = append(kinds, e.Kind)
	}
	if got, want := strings.Join(kinds, " "), "member topology epoch target target step state member epoch target state"; got != want {
		t.Errorf("kinds %s, want %s", got, want)
	}
	if got := must(t, d, "delete", "orders"); got != "deleted orders\n" {
		t.Fatal(got)
	}
	if out := must(t, d, "log", "--explain", "--group", "orders"); !strings.HasSuffix(out, "  orders  group removed\n") {
		t.Errorf("the end of the story:\n%s", out)
	}
	if _, err, code := execute(t, d, "log", "--explain", "--segments", t.TempDir()); code != exitUsage || !strings.Contains(err, "--explain do not go with it") {
		t.Errorf("%d %s", code, err)
	}
}
