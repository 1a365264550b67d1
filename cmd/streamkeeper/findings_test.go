package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
)

// What people typed, and what they were told.
func TestWordsForWhoIsWrong(t *testing.T) {
	t.Setenv("STREAMKEEPER_LOG_TOPICS", "other")
	t.Setenv("STREAMKEEPER_SERVICE_HOST", "10.0.0.1")
	t.Setenv("STREAMKEEPER_VERSION", "true") // of an image: no reason to print ours and end
	dir := t.TempDir()
	d := startDev(t, dir)
	const unknown = "STREAMKEEPER_LOG_TOPICS stands for no flag and has no effect; did you mean STREAMKEEPER_LOG_TOPIC?"
	if log := d.err.String(); !strings.Contains(log, "there is no such setting") || !strings.Contains(log, unknown) || strings.Contains(log, "SERVICE_HOST") {
		t.Errorf("dev logs\n%s", log)
	}
	produce(t, d, 1)
	newMember(t, d, "orders").join(4)
	newMember(t, d, "bills").join(4)

	for _, c := range []struct {
		args, out, err string
		code           int
	}{
		{"list", "orders", "streamkeeper: the environment variable " + unknown, 0},
		{"describe orders bills", "\n\nGROUP", unknown, 0},
		{"describe nobody bills", "bills", "streamkeeper: Group nobody not found.", exitFailure},
		{"forget 1000001", "", "Node 1000001 is a replica that runs: stop it first.", exitFailure},
		{"forget 1000002 0", "", "No replica with node id 1000002 was seen within the last day. Seen were 1000001.\nNo replica with node id 0 was seen", exitFailure},
	} {
		out, err, code := execute(t, d, strings.Fields(c.args)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(err, c.err) {
			t.Errorf("%s: exit %d, want %d\n%s%s", c.args, code, c.code, out, err)
		}
	}
	var both []struct{ Group string }
	if err := json.Unmarshal([]byte(must(t, d, "describe", "orders", "bills", "-o", "json")), &both); err != nil || len(both) != 2 || both[1].Group != "bills" {
		t.Errorf("%+v %v", both, err)
	}

	var out, err text
	code := run(context.Background(), []string{"restore", "--dry-run", "--data-dir", dir}, &out, &err)
	if code != exitFailure || !strings.Contains(err.String(), "a replica runs with it, stop that one first") {
		t.Errorf("restore from a directory in use: exit %d\n%s", code, err.String())
	}
}
