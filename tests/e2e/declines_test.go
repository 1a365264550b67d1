package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

// farAhead is beyond message.timestamp.after.max.ms, an hour by default.
const farAhead = 2 * time.Hour

// TestAClockThatTheClusterRefuses: a replica whose clock is hours ahead can write nothing. It says what is wrong, and the other replica has all shards; the
// group of the replicas comes to rest.
func TestAClockThatTheClusterRefuses(t *testing.T) {
	t.Parallel()
	r := newFleet(t, kafkatest.Shared(t, kafka44), 2, "--plugin", "none")
	fast := r.replicas[nodeOne]
	fast.SkewClock(farAhead)
	for _, node := range r.nodes {
		r.replicas[node].Start()
	}
	r.replicas[nodeTwo].WaitReady()
	r.waitSpread(nodeTwo)
	kafkatest.Eventually(t, outcome, func() error {
		status, body := fast.Get("/readyz")
		for _, words := range []string{"are left to other replicas", "clock", "this machine's clock says", "message.timestamp.after.max.ms", "INVALID_TIMESTAMP"} {
			if status != http.StatusServiceUnavailable || !strings.Contains(body, words) {
				return fmt.Errorf("/readyz does not say %q: %d %s", words, status, body)
			}
		}
		return nil
	})
	out, errOut, exit := kafkatest.Streamkeeper(t, "shards", "--bootstrap-servers", r.cluster.Bootstrap(), "--log-topic", r.topic, "--admin", fast.Admin(), "--admin", r.replicas[nodeTwo].Admin())
	if exit != 0 || !strings.Contains(out, fmt.Sprintf("Left to others by %d: shards 0, 1", nodeOne)) || strings.Count(out, "  declined  ") != len(r.owners()) {
		t.Errorf("streamkeeper shards: exit %d %s\n%s", exit, errOut, out)
	}
	joins := strings.Count(fast.Output(), "partitions assigned")
	if joins > 2 {
		t.Errorf("shards were assigned %d times to the replica that can't serve them", joins)
	}
}
