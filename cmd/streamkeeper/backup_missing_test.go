package main

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestABackupLooksForATopicTwice: a broker that has just started says of topics that they do not exist.
func TestABackupLooksForATopicTwice(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, topic := range []string{"__streams_groups", "__streams_groups-topologies"} {
		if err := c.CreateTopic(topic, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
			t.Fatal(err)
		}
	}
	var asked atomic.Int32
	c.ControlKey(kmsg.Metadata.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.MetadataRequest)
		if len(req.Topics) != 2 || asked.Add(1) > 1 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		b := kmsg.NewMetadataResponseBroker()
		host, port, _ := net.SplitHostPort(c.ListenAddrs()[0])
		n, _ := strconv.Atoi(port)
		b.Host, b.Port = host, int32(n)
		resp.Brokers = append(resp.Brokers, b)
		for _, wanted := range req.Topics {
			topic := kmsg.NewMetadataResponseTopic()
			if topic.Topic = wanted.Topic; *wanted.Topic != "__streams_groups" {
				topic.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
	d := &dev{bootstrap: c.ListenAddrs()[0]}
	out, said, code := execute(t, d, "backup", "--to", filepath.Join(t.TempDir(), "new"))
	if code != 0 || said != "" || !strings.Contains(out, "__streams_groups-topologies ") {
		t.Errorf("exit %d: %s%s", code, out, said)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
	// What was asked for by name must be there.
	out, said, code = execute(t, d, "backup", "--description-topic", "others", "--to", filepath.Join(t.TempDir(), "new"))
	if code != exitFailure || !strings.Contains(said, "--description-topic: there is no topic others") {
		t.Errorf("exit %d: %s%s", code, out, said)
	}
}
