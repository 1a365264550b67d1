package config

import (
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

type testCLI struct {
	Config  kong.ConfigFlag  `name:"config"`
	Version kong.VersionFlag `name:"version"`
	Serve   struct {
		Upstream
		Replica
		Logging
	} `cmd:""`
}

func parse(t *testing.T, args ...string) (*testCLI, error) {
	t.Helper()
	var cli testCLI
	p, err := kong.New(&cli, kong.Configuration(Load), kong.DefaultEnvars(EnvPrefix))
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Parse(append([]string{"serve"}, args...))
	return &cli, err
}

func yamlFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "streamkeeper.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	name := yamlFile(t, `
bootstrap-servers: [a:1, b:2]
node-id: 11
log-topic: from-file
data-dir: /from-file
set:
  group.streams.max.size: 5
  group.streams.num.standby.replicas: 1
`)
	t.Setenv("STREAMKEEPER_NODE_ID", "12")
	t.Setenv("STREAMKEEPER_LOG_TOPIC", "from-environment")
	cli, err := parse(t, "--config", name, "--node-id", "1013")
	if err != nil {
		t.Fatal(err)
	}
	s := cli.Serve
	if s.NodeID != 1013 || s.LogTopic != "from-environment" || s.DataDir != "/from-file" || s.Listen != "127.0.0.1:9292" {
		t.Errorf("node id %d, log topic %s, data dir %s, listen %s", s.NodeID, s.LogTopic, s.DataDir, s.Listen)
	}
	if !reflect.DeepEqual(s.BootstrapServers, []string{"a:1", "b:2"}) {
		t.Errorf("bootstrap servers %v", s.BootstrapServers)
	}
	if want := map[string]string{"group.streams.max.size": "5", "group.streams.num.standby.replicas": "1"}; !reflect.DeepEqual(s.Set, want) {
		t.Errorf("set %v, want %v", s.Set, want)
	}
	e, err := s.Replica.Check()
	if err != nil {
		t.Fatal(err)
	}
	if e.Kafka.Groups.Config().MaxSize != 5 || e.BrokerPortBase != 9293 || e.AdvertiseHost != "127.0.0.1" {
		t.Errorf("effective %+v", e)
	}
}

func TestSetIsRepeatable(t *testing.T) {
	cli, err := parse(t, "--bootstrap-servers", "a:1", "--set", "group.streams.max.size=5", "--set=group.streams.rack.aware.assignment.tags=a,b")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"group.streams.max.size": "5", "group.streams.rack.aware.assignment.tags": "a,b"}
	if !reflect.DeepEqual(cli.Serve.Set, want) {
		t.Errorf("set %v, want %v", cli.Serve.Set, want)
	}
}

func TestFileRefusals(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"bootstrap-servers: a:1\nnode_id: 5\n", `streamkeeper.yaml:2: there is no setting "node_id"`},
		{"node-id:\n", "streamkeeper.yaml:1: node-id: has no value"},
		{"node-id: 5\nnode-id: 6\n", "node-id"},
		{"- a\n", "streamkeeper.yaml:1: want a mapping"},
		{"set:\n  a: [1]\n  b: {c: d}\n", "streamkeeper.yaml:2: set: b: want a plain value"},
		{"bootstrap-servers: [[a]]\n", "bootstrap-servers: want a list of plain values"},
		{"config: other.yaml\n", `there is no setting "config"`},
		{"version: true\n", `there is no setting "version"`},
		{"a: b: c\n", "yaml"},
		{strings.Repeat("# much too much\n", 100_000), "is larger than"},
		{"bootstrap-servers: a:1\nnode-id: many\n", "node-id"},
	} {
		_, err := parse(t, "--config", yamlFile(t, c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40q\ngot  %v\nwant …%s…", c.text, err, c.want)
		}
	}
	if _, err := parse(t, "--config", "/does/not/exist.yaml"); err == nil || !strings.Contains(err.Error(), "/does/not/exist.yaml") {
		t.Errorf("missing file: %v", err)
	}
}

func TestCheckNamesTheFlag(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--listen here", `--listen: "here" is not HOST:PORT`},
		{"--listen here:70000", `--listen: "here:70000": "70000" is no port`},
		{"--listen :9292", `--advertise: clients can't connect to ":9292"`},
		{"--listen 0.0.0.0:9292", `--advertise: clients can't connect to "0.0.0.0:9292"`},
		{"--advertise :9292", `--advertise: ":9292" names no host`},
		{"--listen 127.0.0.1:65535", "--broker-port-base: the port after 65535 is none"},
		{"--broker-port-base 70000", "--broker-port-base: 70000 is no port"},
		{"--node-id=-1", "--node-id: -1 is negative"},
		{"--node-id=0", "--node-id: 0 may be a broker's id, now or later"},
		{"--node-id=1000", "--node-id: 1000 may be a broker's id, now or later"},
		{"--node-id=2147483647", "--node-id: 2147483647 is too large"},
		{"--log-topic a/b", `--log-topic: "a/b" is no topic name: it holds '/'`},
		{"--log-topic ..", `--log-topic: ".." is no topic name`},
		{"--log-partitions=-1", "--log-partitions: -1 is negative"},
		{"--log-replication-factor=-1", "--log-replication-factor: -1 is negative"},
		{"--admin-listen x", `--admin-listen: "x" is not HOST:PORT`},
		{"--ownership-session-timeout 10ms", "--ownership-session-timeout: 10ms is less than a second"},
		{"--shutdown-timeout=-1s", "--shutdown-timeout: -1s is negative"},
		{"--set group.streams.max.size=0", "--set: Invalid value 0"},
	} {
		cli, err := parse(t, append([]string{"--bootstrap-servers", "a:1"}, strings.Fields(c.args)...)...)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		if _, err := cli.Serve.Replica.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\ngot  %v\nwant …%s…", c.args, err, c.want)
		}
	}
	for _, c := range []struct{ servers, want string }{
		{"a", `--bootstrap-servers: "a" is not HOST:PORT`},
		{"a:0", `"a:0" has no port`},
		{"a:1,b", `"b" is not HOST:PORT`},
	} {
		cli, err := parse(t, "--bootstrap-servers", c.servers)
		if err != nil {
			t.Fatal(err)
		}
		if err := cli.Serve.Upstream.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want …%s…", c.servers, err, c.want)
		}
	}
	if _, err := parse(t); err == nil || !strings.Contains(err.Error(), "bootstrap-servers") {
		t.Errorf("without a cluster: %v", err)
	}
}

func TestAdvertise(t *testing.T) {
	for _, c := range []struct {
		listen, advertise, host string
		port                    int
	}{
		{"127.0.0.1:9292", "", "127.0.0.1", 0},
		{"0.0.0.0:9292", "keeper.example.org", "keeper.example.org", 0},
		{":9292", "keeper.example.org:19292", "keeper.example.org", 19292},
		{":9292", "::1", "::1", 0},
		{":9292", "[::1]:5", "::1", 5},
	} {
		args := []string{"--bootstrap-servers", "a:1", "--listen", c.listen}
		if c.advertise != "" {
			args = append(args, "--advertise", c.advertise)
		}
		cli, err := parse(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		e, err := cli.Serve.Replica.Check()
		if err != nil || e.AdvertiseHost != c.host || e.AdvertisePort != c.port {
			t.Errorf("%s, %s: %s %d, %v; want %s %d", c.listen, c.advertise, e.AdvertiseHost, e.AdvertisePort, err, c.host, c.port)
		}
	}
}

// TestTheClusterIsNotTheReplicaItself: what is surely an address of the replica is refused, and nothing else.
func TestTheClusterIsNotTheReplicaItself(t *testing.T) {
	var mine []string // addresses of this machine, on its networks
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			mine = append(mine, net.JoinHostPort(n.IP.String(), "9292"))
		}
	}
	for _, c := range []struct {
		args    string
		itself  []string
		another []string
	}{
		{"", []string{"127.0.0.1:9292", "localhost:9292", "LOCALHOST:9292", ":9292", "0.0.0.0:9292", "broker:9092,127.0.0.1:9292"},
			[]string{"127.0.0.1:9092", "127.0.0.2:9292", "localhost:9293", "broker:9292", "10.0.0.7:9292"}},
		{"--listen localhost:9292", []string{"127.0.0.1:9292", "localhost:9292"}, []string{"localhost:9092", "[2001:db8::1]:9292"}},
		{"--listen 0.0.0.0:9292 --advertise keeper-1", append([]string{"127.0.0.1:9292", "127.0.0.2:9292", "[::1]:9292", "localhost:9292", "keeper-1:9292", "Keeper-1.:9292"}, mine...),
			[]string{"keeper-1:9092", "keeper-2:9292", "192.0.2.7:9292", "localhost:9092"}},
		{"--listen [::]:9292 --advertise keeper-1:9999", append([]string{"localhost:9292", "keeper-1:9999"}, mine...), []string{"keeper-1:9292", "localhost:9999"}},
		{"--listen :9292 --advertise localhost:9092", []string{"localhost:9292"}, []string{"localhost:9092"}}, // a port of the clients' machine that leads here
		{"--listen [2001:db8::1]:9292", []string{"[2001:DB8:0::1]:9292"}, []string{"[2001:db8::2]:9292", "127.0.0.1:9292"}},
		{"--listen 127.0.0.1:0", nil, []string{"127.0.0.1:9292", "localhost:1"}},
	} {
		for servers, itself := range map[*[]string]bool{&c.itself: true, &c.another: false} {
			for _, s := range *servers {
				cli, err := parse(t, append([]string{"--bootstrap-servers", s}, strings.Fields(c.args)...)...)
				if err != nil {
					t.Fatal(err)
				}
				e, err := cli.Serve.Replica.Check()
				if err != nil {
					t.Fatalf("%s: %v", c.args, err)
				}
				switch err := cli.Serve.NotAt(e); {
				case !itself && err != nil:
					t.Errorf("%s, %s: %v", c.args, s, err)
				case itself && (err == nil || !strings.Contains(err.Error(), " is this replica itself, not the cluster behind it")):
					t.Errorf("%s, %s: %v, want it refused", c.args, s, err)
				}
			}
		}
	}
}
