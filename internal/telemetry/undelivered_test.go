package telemetry

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// A collector that is away for a quarter of an hour is worth a line a minute, and none is lost in the count.
func TestUndeliveredOncePerMinute(t *testing.T) {
	var b bytes.Buffer
	log, err := NewLogger(&b, "info", "text")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_700_000_000, 0)
	u := &undelivered{log: log, now: func() time.Time { return now }}
	for range 15 * 60 / 5 {
		u.Handle(errors.New("connection refused"))
		now = now.Add(5 * time.Second)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 15 {
		t.Fatalf("%d lines:\n%s", len(lines), b.String())
	}
	if !strings.Contains(lines[0], "connection refused") || strings.Contains(lines[0], "failures_since") {
		t.Errorf("the first line: %s", lines[0])
	}
	for _, l := range lines[1:] {
		if !strings.Contains(l, "failures_since_last_line=12") {
			t.Errorf("a later line: %s", l)
		}
	}
}
