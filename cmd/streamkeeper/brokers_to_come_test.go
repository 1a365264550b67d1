package main

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestServeWaitsForBrokersThatAreStillToCome: replicas are started together with the cluster, whose first broker is up. The log topic is not made with one
// replica for good: the start waits until there are as many as the brokers say. Where the number is a setting of ours, it is told and the process ends.
func TestServeWaitsForBrokersThatAreStillToCome(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	three := "3"
	c.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		asked := req.(*kmsg.DescribeConfigsRequest)
		if asked.Resources[0].ResourceType != kmsg.ConfigResourceTypeBroker {
			return nil, nil, false
		}
		resp := asked.ResponseKind().(*kmsg.DescribeConfigsResponse)
		r := kmsg.NewDescribeConfigsResponseResource()
		entry := kmsg.NewDescribeConfigsResponseResourceConfig()
		entry.Name, entry.Value = "offsets.topic.replication.factor", &three
		r.Configs = append(r.Configs, entry)
		resp.Resources = append(resp.Resources, r)
		return resp, nil, true
	})
	serve := func(args ...string) (*dev, <-chan int) {
		d := &dev{out: &text{}, err: &text{}}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, append([]string{"serve", "--bootstrap-servers", strings.Join(c.ListenAddrs(), ","), "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
				"--data-dir", t.TempDir(), "--log-partitions", "4", "--log-format", "text"}, args...), d.out, d.err)
		}()
		d.stop = func() int { cancel(); return <-ended }
		return d, ended
	}

	d, ended := serve("--log-replication-factor", "3")
	select {
	case code := <-ended:
		if code == 0 || !strings.Contains(d.err.String(), "replication factor 3 is more than the cluster's 1 brokers") {
			t.Errorf("exit %d\n%s", code, d.err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("it runs:\n%s", d.err)
	}

	d, ended = serve()
	d.err.wait(t, `is to have 3 replicas, as the brokers' offsets\.topic\.replication\.factor is 3, and the cluster has 1 brokers yet`, ended)
	if c.TopicInfo("__streams_groups") != nil {
		t.Error("the topic is made although there are brokers to come")
	}
	for node := range int32(2) {
		if _, _, err := c.AddNode(node+1, 0); err != nil {
			t.Fatal(err)
		}
	}
	d.err.wait(t, `is ready bootstrap=(\S+)`, ended)
	for _, created := range []string{"log topic created", "topology description topic created"} {
		if line := regexp.MustCompile(created + ` .* replicationFactor=(\d+)`).FindStringSubmatch(d.err.String()); line == nil || line[1] != "3" {
			t.Errorf("%q, want 3 replicas\n%s", line, d.err)
		}
	}
	if code := d.stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
}
