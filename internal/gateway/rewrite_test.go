package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/coordinator"
	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }

func TestMetadataShowsTheGatewayEverywhere(t *testing.T) {
	k := cluster(t)
	svc := newService()
	svc.nodes = []coordinator.Node{{ID: otherNode, Host: "other.example", Port: 9999}}
	g, _ := start(t, svc, k.ListenAddrs())
	want := map[int32]string{testNode: g.Addr().String(), otherNode: "other.example:9999"}
	for id := range int32(3) {
		want[id] = brokerAddr(t, g, id)
	}
	for _, addr := range []string{g.Addr().String(), brokerAddr(t, g, 1)} {
		cl := raw(t, addr)
		for version := int16(0); version <= wire.MaxVersion(metadata); version++ {
			req := kmsg.NewPtrMetadataRequest()
			for _, name := range []string{"in", logTopic, descriptionTopic} {
				topic := kmsg.NewMetadataRequestTopic()
				topic.Topic = kmsg.StringPtr(name)
				req.Topics = append(req.Topics, topic)
			}
			r := ask[*kmsg.MetadataResponse](t, cl, version, req)
			got := map[int32]string{}
			for _, b := range r.Brokers {
				got[b.NodeID] = hostPort(b.Host, b.Port)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("v%d: brokers %v, want %v", version, got, want)
			}
			for _, topic := range r.Topics {
				if len(topic.Partitions) == 0 || version >= 1 && topic.IsInternal != (*topic.Topic == logTopic || *topic.Topic == descriptionTopic) {
					t.Errorf("v%d: topic %s: internal %v, %d partitions", version, *topic.Topic, topic.IsInternal, len(topic.Partitions))
				}
			}
		}
		for version := int16(0); version <= wire.MaxVersion(describeCluster); version++ {
			req := kmsg.NewPtrDescribeClusterRequest()
			req.EndpointType = endpointTypeBrokers
			r := ask[*kmsg.DescribeClusterResponse](t, cl, version, req)
			got := map[int32]string{}
			for _, b := range r.Brokers {
				got[b.NodeID] = hostPort(b.Host, b.Port)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("DescribeCluster v%d: %v, want %v", version, got, want)
			}
		}
		d := kmsg.NewPtrDescribeTopicPartitionsRequest()
		for _, name := range []string{"in", logTopic, descriptionTopic} {
			topic := kmsg.NewDescribeTopicPartitionsRequestTopic()
			topic.Topic = name
			d.Topics = append(d.Topics, topic)
		}
		for _, topic := range ask[*kmsg.DescribeTopicPartitionsResponse](t, cl, 0, d).Topics {
			if topic.IsInternal != (*topic.Topic == logTopic || *topic.Topic == descriptionTopic) {
				t.Errorf("DescribeTopicPartitions: %s internal %v", *topic.Topic, topic.IsInternal)
			}
		}
	}
	if !g.own.identified() {
		t.Error("the ids of the own topics are not known")
	}
}

// Captured FindCoordinator answers of a real broker (node 1 at 127.0.0.1:19392): rewriting changes the port's four
// bytes and nothing else, and an answer without a coordinator not at all.
func TestCapturedCoordinatorsAreRewrittenByteForByte(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", nil)
	g, _ := start(t, newService(), []string{up.addr()})
	here, _ := g.brokers.advertised(1)
	named := 0
	for _, c := range readCapture(t, "testdata/wire-old-3.9-plain.jsonl.gz") {
		if c.Dir != "resp" || c.APIKey != findCoordinator {
			continue
		}
		id, body, err := wire.ParseResponseHeader(c.APIKey, c.APIVersion, c.frame)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := wire.ParseResponse(c.APIKey, c.APIVersion, body)
		if err != nil {
			t.Fatal(err)
		}
		rewriteFindCoordinator(g, resp)
		there := binary.BigEndian.AppendUint32([]byte("127.0.0.1"), 19392)
		want := bytes.ReplaceAll(c.frame, there, binary.BigEndian.AppendUint32([]byte("127.0.0.1"), uint32(here.port)))
		if !bytes.Equal(want, c.frame) {
			named++
		}
		if got := wire.AppendResponse(nil, id, resp)[4:]; !bytes.Equal(got, want) {
			t.Errorf("% x\nbecame\n% x, want\n% x", c.frame, got, want)
		}
	}
	if named == 0 {
		t.Error("no captured answer names a coordinator")
	}
}

func TestQuorumAndControllersAreNotShown(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", func(_ wire.Header, req kmsg.Request) kmsg.Response {
		switch r := req.ResponseKind().(type) {
		case *kmsg.DescribeQuorumResponse:
			r.Nodes = []kmsg.DescribeQuorumResponseNode{{NodeID: 3000, Listeners: []kmsg.DescribeQuorumResponseNodeListener{{Name: "CONTROLLER", Host: "secret.example", Port: 9}}}}
			return r
		case *kmsg.DescribeClusterResponse:
			r.EndpointType = 2
			r.Brokers = []kmsg.DescribeClusterResponseBroker{{NodeID: 3000, Host: "secret.example", Port: 9}}
			return r
		case *kmsg.ShareAcknowledgeResponse:
			r.NodeEndpoints = []kmsg.ShareAcknowledgeResponseNodeEndpoint{{NodeID: 1, Host: "secret.example", Port: 9}, {NodeID: 8, Host: "unknown.example", Port: 9}}
			return r
		}
		return nil
	})
	g, _ := start(t, newService(), []string{up.addr()})
	cl := raw(t, g.Addr().String())
	q := ask[*kmsg.DescribeQuorumResponse](t, cl, 2, kmsg.NewPtrDescribeQuorumRequest())
	if len(q.Nodes) != 1 || len(q.Nodes[0].Listeners) != 0 {
		t.Errorf("quorum: %+v", q.Nodes)
	}
	c := ask[*kmsg.DescribeClusterResponse](t, cl, 2, kmsg.NewPtrDescribeClusterRequest())
	if len(c.Brokers) != 0 {
		t.Errorf("controllers: %+v", c.Brokers)
	}
	a := ask[*kmsg.ShareAcknowledgeResponse](t, cl, 1, kmsg.NewPtrShareAcknowledgeRequest())
	if len(a.NodeEndpoints) != 1 || hostPort(a.NodeEndpoints[0].Host, a.NodeEndpoints[0].Port) != brokerAddr(t, g, 1) {
		t.Errorf("share acknowledge: %+v", a.NodeEndpoints)
	}
}

// A leader that moved: Produce answers get the new leader's address here, Fetch answers lose it.
func TestNewLeadersInProduceAndFetch(t *testing.T) {
	for _, moved := range []bool{false, true} {
		up := startScripted(t, "127.0.0.1:0", func(_ wire.Header, req kmsg.Request) kmsg.Response {
			switch r := req.ResponseKind().(type) {
			case *kmsg.ProduceResponse:
				topic := kmsg.NewProduceResponseTopic()
				topic.Topic = "in"
				p := kmsg.NewProduceResponseTopicPartition()
				p.ErrorRecords = []kmsg.ProduceResponseTopicPartitionErrorRecord{{RelativeOffset: 1, ErrorMessage: kmsg.StringPtr("bad")}}
				if moved {
					p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 6, 1, 3
					r.Brokers = []kmsg.ProduceResponseBroker{{NodeID: 1, Host: "secret.example", Port: 9}, {NodeID: 9, Host: "unknown.example", Port: 9}}
				}
				topic.Partitions = append(topic.Partitions, p)
				r.Topics = append(r.Topics, topic)
				return r
			case *kmsg.FetchResponse:
				topic := kmsg.NewFetchResponseTopic()
				p := kmsg.NewFetchResponseTopicPartition()
				p.RecordBatches = []byte("records")
				if moved {
					p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = 6, 1, 3
					r.Brokers = []kmsg.FetchResponseBroker{{NodeID: 1, Host: "secret.example", Port: 9}}
				}
				topic.Partitions = append(topic.Partitions, p)
				r.Topics = append(r.Topics, topic)
				return r
			}
			return nil
		})
		g, _ := start(t, newService(), []string{up.addr()})
		cl := raw(t, brokerAddr(t, g, 1))
		for version := int16(3); version <= wire.MaxVersion(produce); version++ {
			r := ask[*kmsg.ProduceResponse](t, cl, version, produceRequest(version, "in"))
			want := ""
			if moved && version >= produceEndpointsVersion {
				want = brokerAddr(t, g, 1)
			}
			got := ""
			for _, b := range r.Brokers {
				got += hostPort(b.Host, b.Port)
			}
			if got != want {
				t.Errorf("Produce v%d, moved %v: addresses %q, want %q", version, moved, got, want)
			}
			if p := r.Topics[0].Partitions[0]; moved && version >= produceEndpointsVersion && p.CurrentLeader.LeaderID != 1 {
				t.Errorf("Produce v%d: the new leader's id is lost", version)
			}
		}
		for version := int16(4); version <= wire.MaxVersion(fetch); version++ {
			r := ask[*kmsg.FetchResponse](t, cl, version, kmsg.NewPtrFetchRequest())
			p := r.Topics[0].Partitions[0]
			if len(r.Brokers) != 0 || string(p.RecordBatches) != "records" || moved && version >= 12 && p.CurrentLeader.LeaderID != 1 {
				t.Errorf("Fetch v%d, moved %v: %+v", version, moved, r)
			}
		}
	}
}

func TestPortsOfBrokers(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", nil)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	for _, c := range []struct {
		name string
		base int
		want string
	}{
		{"taken", port - 1, fmt.Sprintf("upstream broker 1 would be reached at port %d (--broker-port-base %d + its id)", port, port-1)},
		{"outside the range", 65535, "outside 1 to 65535: choose another --broker-port-base"},
		{"no port", 65536, "--broker-port-base 65536 is outside"},
		{"negative", -1, "--broker-port-base -1 is outside"},
	} {
		_, err := New(Config{Listen: "127.0.0.1:0", NodeID: testNode, Upstream: []string{up.addr()}, Service: newService(), BrokerPortBase: c.base})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		var pe *PortError
		if c.base > 0 && c.base < 65536 && !errors.As(err, &pe) {
			t.Errorf("%s: %T", c.name, err)
		}
	}
	// The same broker at its fixed port, when it is free.
	taken.Close()
	g, _ := start(t, newService(), []string{up.addr()}, func(c *Config) { c.BrokerPortBase = port - 1 })
	if got := brokerAddr(t, g, 1); got != hostPort("127.0.0.1", int32(port)) {
		t.Errorf("broker 1 at %s, want port %d", got, port)
	}
}

// While the gateway runs, a broker whose port is taken is left out of Metadata, logged and counted; when the port is
// free it comes in.
func TestBrokerWithoutAPortIsLeftOut(t *testing.T) {
	base, err := kafkatest.ReservePorts(6)
	if err != nil {
		t.Fatal(err)
	}
	upstream := base + 3
	taken, err := net.Listen("tcp", hostPort("127.0.0.1", int32(base+2)))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	g, log := start(t, newService(), []string{hostPort("127.0.0.1", int32(upstream))}, func(c *Config) {
		c.BrokerPortBase = base
		c.Limits.StartWait = 50 * time.Millisecond // the cluster comes later: at start this would be an error
	})
	cluster(t, kfake.Ports(upstream, upstream+1, upstream+2))
	ids := func() string {
		r := ask[*kmsg.MetadataResponse](t, raw(t, g.Addr().String()), 12, kmsg.NewPtrMetadataRequest())
		var s []string
		for _, b := range r.Brokers {
			s = append(s, strconv.Itoa(int(b.NodeID)))
		}
		return strings.Join(s, " ")
	}
	if got, want := ids(), "0 1 1000001"; got != want {
		t.Fatalf("nodes %q, want %q", got, want)
	}
	if want := "choose another --broker-port-base"; !strings.Contains(log.String(), want) {
		t.Errorf("the log does not say %q: %v", want, log)
	}
	taken.Close()
	g.brokers.mu.Lock()
	clear(g.brokers.failed) // instead of waiting for relistenInterval
	g.brokers.mu.Unlock()
	if got, want := ids(), "0 1 2 1000001"; got != want {
		t.Fatalf("nodes %q, want %q", got, want)
	}
}

func TestSettingsThatCannotWork(t *testing.T) {
	up := startScripted(t, "127.0.0.1:0", nil)
	port, err := kafkatest.ReservePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	own := strconv.Itoa(port)
	ok := Config{Listen: "127.0.0.1:0", NodeID: testNode, Upstream: []string{up.addr()}, Service: newService()}
	for _, c := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Listen = up.addr() }, "--listen " + up.addr()},
		{func(c *Config) { c.Listen = "0.0.0.0:0" }, "set --advertise"},
		{func(c *Config) { c.Listen = ":0" }, "set --advertise"},
		{func(c *Config) { c.Advertise = "host:many" }, `--advertise "host:many"`},
		{func(c *Config) { c.Upstream = nil }, "--bootstrap-servers is empty"},
		{func(c *Config) { c.Upstream = []string{"host"} }, `--bootstrap-servers: "host" is not host:port`},
		{func(c *Config) { c.Upstream = []string{"host:0"} }, `"host:0" is not host:port`},
		{func(c *Config) { c.Listen, c.Upstream = "127.0.0.1:"+own, []string{"127.0.0.1:" + own} }, "is streamkeeper's own address"},
		{func(c *Config) { c.NodeID = -5 }, "--node-id -5 is negative"},
		{func(c *Config) { c.NodeID = 1 }, "the upstream cluster has a node 1, which is this replica's --node-id"},
		{func(c *Config) { c.Service = nil }, "no coordinator.Service"},
	} {
		cfg := ok
		c.change(&cfg)
		g, err := New(cfg)
		if err == nil {
			g.Close(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}

// A cluster whose brokers advertise the gateway's ports for themselves would send it round in circles.
func TestClusterThatAdvertisesTheGateway(t *testing.T) {
	base, err := kafkatest.ReservePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	up := startScripted(t, "127.0.0.1:0", nil)
	up.change(func(s *scripted) { s.port = int32(base + 1) })
	_, err = New(Config{Listen: "127.0.0.1:0", NodeID: testNode, Upstream: []string{up.addr()}, Service: newService(), BrokerPortBase: base})
	if want := "advertised.listeners must name the broker itself"; err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("%v, want %q", err, want)
	}
}

func TestAdvertisedAddress(t *testing.T) {
	k := cluster(t)
	for advertise, want := range map[string]string{"": "127.0.0.1", "keeper.example": "keeper.example", "keeper.example:7000": "keeper.example"} {
		g, _ := start(t, newService(), k.ListenAddrs(), func(c *Config) {
			c.Advertise = advertise
			if advertise != "" {
				c.Listen = "0.0.0.0:0"
			}
		})
		host, port := g.Advertised()
		wantPort := int32(g.Addr().(*net.TCPAddr).Port)
		if strings.HasSuffix(advertise, ":7000") {
			wantPort = 7000
		}
		if host != want || port != wantPort {
			t.Errorf("--advertise %q: %s:%d, want %s:%d", advertise, host, port, want, wantPort)
		}
		r := ask[*kmsg.MetadataResponse](t, raw(t, hostPort("127.0.0.1", int32(g.Addr().(*net.TCPAddr).Port))), 12, kmsg.NewPtrMetadataRequest())
		for _, b := range r.Brokers {
			if b.Host != want {
				t.Errorf("--advertise %q: node %d at %q", advertise, b.NodeID, b.Host)
			}
		}
	}
}
