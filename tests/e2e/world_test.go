package e2e

import (
	"flag"
	"os"
	"strings"
	"testing"

	"streamkeeper/internal/kafkatest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Subtests that run side by side mostly wait for sessions to end; by default there would be no more of them than processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(kafkatest.Main(m))
}

// settings make groups quick enough for tests, for Kafka's coordinator and ours alike. Six seconds is the shortest
// session time-out that still survives a machine that is busy for a while.
var settings = map[string]string{
	"group.streams.initial.rebalance.delay.ms": "500",
	"group.streams.min.session.timeout.ms":     "6000",
	"group.streams.session.timeout.ms":         "6000",
	"group.streams.min.heartbeat.interval.ms":  "500",
	"group.streams.heartbeat.interval.ms":      "1000",
}

// logPartitions is the number of partitions of the record log, small because each costs a broker files and time.
const logPartitions = "8"

var (
	kafka39      = kafkatest.Options{Version: kafkatest.V391}
	kafka44      = kafkatest.Options{Version: kafkatest.V44}
	kafkaStreams = kafkatest.Options{Version: kafkatest.V44, Streams: true, Properties: settings}
)

// place is where a story happens.
type place struct {
	// streams is what the application and the tools bootstrap to: it has streams groups.
	streams string
	// direct is what writes the input and reads the output: the cluster without streamkeeper between, where there is one.
	direct string

	cluster *kafkatest.Cluster // nil with the embedded log
	keeper  *kafkatest.Keeper  // nil before Kafka's own coordinator

	// killCoordinator kills the process that has the groups and starts it again.
	killCoordinator func()
	// logTopic has the records of groups.
	logTopic string
}

// world makes a place of a certain kind.
type world struct {
	name  string
	build func(t *testing.T) *place
}

var (
	// itself is Kafka's own coordinator: no streamkeeper.
	itself = world{"kafka itself", func(t *testing.T) *place {
		c := kafkatest.Shared(t, kafkaStreams)
		return &place{
			streams: c.Bootstrap(), direct: c.Bootstrap(), cluster: c, logTopic: "__consumer_offsets",
			killCoordinator: func() { c.Kill(1); c.Restart(1) },
		}
	}}
	before39 = serveWorld("serve before 3.9", kafka39)
	before44 = serveWorld("serve before 4.4", kafka44)
	embedded = devWorld()

	// The same without topology descriptions, as Kafka is without a plugin.
	plain39       = serveWorld("serve before 3.9", kafka39, "--plugin", "none")
	plain44       = serveWorld("serve before 4.4", kafka44, "--plugin", "none")
	plainEmbedded = devWorld("--plugin", "none")
)

func devWorld(more ...string) world {
	return world{"dev", func(t *testing.T) *place {
		return keeperPlace(kafkatest.StartStreamkeeper(t, keeperArgs("dev", more...)...), nil)
	}}
}

func serveWorld(name string, o kafkatest.Options, more ...string) world {
	return world{name, func(t *testing.T) *place {
		c := kafkatest.Shared(t, o)
		k := kafkatest.StartStreamkeeper(t, serveArgs(t, c, more...)...)
		return keeperPlace(k, c)
	}}
}

func keeperPlace(k *kafkatest.Keeper, c *kafkatest.Cluster) *place {
	p := &place{streams: k.Bootstrap(), direct: k.Bootstrap(), keeper: k, cluster: c, killCoordinator: k.Restart, logTopic: k.LogTopic()}
	if c != nil {
		p.direct = c.Bootstrap()
	}
	return p
}

// keeperArgs are the arguments of a command with the settings of the stories.
func keeperArgs(command string, more ...string) []string {
	args := []string{command, "--log-partitions", logPartitions}
	for k, v := range settings {
		args = append(args, "--set", k+"="+v)
	}
	return append(args, more...)
}

// serveArgs start a replica before the cluster, with a log of the test's own.
func serveArgs(t *testing.T, c *kafkatest.Cluster, more ...string) []string {
	topic := "__log_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, t.Name())
	return keeperArgs("serve", append([]string{"--bootstrap-servers", c.Bootstrap(), "--log-topic", topic}, more...)...)
}
