package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestDescribeShowsWhatThereIs: where what a group reads can't be asked for its ends, the group itself is shown all the same, and the command fails.
func TestDescribeShowsWhatThereIs(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(4, "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := &serving{t, strings.Join(c.ListenAddrs(), ","), t.TempDir()}
	d := s.start("--log-partitions", "1")
	m := newMember(t, d, "orders")
	m.join(4)
	m.commit(0, 5)
	c.ControlKey(kmsg.ListOffsets.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.ListOffsetsRequest)
		if req.Topics[0].Topic != "in" {
			return nil, nil, false
		}
		return nil, kerr.UnknownServerError, true // the connection ends
	})
	out, said, code := execute(t, d, "describe", "--timeout", "10s", "orders")
	if code != exitFailure || !strings.Contains(said, "ends of the topics of group orders: ") {
		t.Errorf("exit %d: %s", code, said)
	}
	if got := squeeze(out); !strings.Contains(got, "orders Stable ") || !strings.Contains(got, "in 0 5 - - 0_0 member-1\n") || !strings.Contains(got, "in 3 - - - 0_3 member-1\n") {
		t.Errorf("described as:\n%s", got)
	}
}
