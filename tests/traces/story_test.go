package traces

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"streamkeeper/client"
	"streamkeeper/client/topology"
	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
	"streamkeeper/plugin"
	"streamkeeper/plugin/faulty"
	"streamkeeper/plugin/http/reference"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

// store is where spans go, and are found again.
type store interface {
	endpoint() string
	spans() (spans, error)
}

// catalogueService is the service name of the catalogue that the plugin http speaks to.
const catalogueService = "catalogue"

// The groups of the story, by what the plugin does to them (plugin/faulty).
const (
	groupGood    = "orders"
	groupDeleted = "returns"
	groupThrown  = "thrown;set:throw"
	groupNil     = "nothing;set:nil"
	groupRefused = "refused;set:permanent"
	groupFailing = "failing;set:transient"
	groupSlow    = "slow;set:slow"
	groupHanging = "hanging;set:hang"
	groupGets    = "unreadable;get:error"
	groupDeletes = "undeletable;delete:error*1"
)

// play plays the story with each plugin, stops each process, and looks at what the store has.
func play(t *testing.T, s store) {
	if testing.Short() {
		t.Skip("-short, and this starts processes")
	}
	faulty := keeper(t, s, "--plugin", "faulty", "--set", "offsets.retention.check.interval.ms=1000")
	calls := faultyStory(t, faulty)
	lifeStory(t, keeper(t, s, "--plugin", "memory", "--set", "offsets.retention.check.interval.ms=1000"), "in-memory")
	lifeStory(t, keeper(t, s, "--plugin", "http", "--plugin-set", "url="+catalogue(t, s), "--set", "offsets.retention.check.interval.ms=1000"), "over-http")
	t.Run("Faulty", func(t *testing.T) { checkFaulty(t, s, calls) })
	t.Run("Memory", func(t *testing.T) { checkLife(t, s, "memory", "in-memory") })
	t.Run("HTTP", func(t *testing.T) { checkLife(t, s, "http", "over-http"); checkCatalogue(t, s, "over-http") })
}

// keeper starts streamkeeper with its embedded log and traces on, as an operator would: by the standard variables.
func keeper(t *testing.T, s store, args ...string) *kafkatest.Keeper {
	t.Helper()
	k := kafkatest.NewFaultyStreamkeeper(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + s.endpoint(), "OTEL_BSP_SCHEDULE_DELAY=200"},
		append([]string{"dev", "--log-partitions", "4", "--set", "group.streams.initial.rebalance.delay.ms=0"}, args...)...)
	k.Start()
	k.WaitReady()
	kafkatest.CreateTopics(t, k.Bootstrap(), 1, "in")
	return k
}

// catalogue serves the reference service of the plugin http, traced; it returns its address.
func catalogue(t *testing.T, s store) string {
	t.Helper()
	exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(s.endpoint()+"/v1/traces"))
	if err != nil {
		t.Fatal(err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", catalogueService))))
	srv := httptest.NewServer(reference.Traced(reference.New(0, 0), provider.Tracer("reference")))
	t.Cleanup(func() {
		srv.Close()
		_ = provider.Shutdown(context.Background())
	})
	return srv.URL
}

// storyTimeout bounds each wait of a story.
const storyTimeout = 2 * time.Minute

// lifeStory: a Go member joins and pushes when it is asked, the group is described, the member leaves, and the group expires with
// its description; a second group is deleted.
func lifeStory(t *testing.T, k *kafkatest.Keeper, prefix string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Bootstrap()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	admin := client.NewAdmin(cl)
	for _, g := range []string{prefix + "-" + groupGood, prefix + "-" + groupDeleted} {
		m, leave := member(t, cl, g)
		d := admin.DescribeStreamsGroups(t.Context(), []string{g}, client.DescribeOptions{IncludeTopologyDescription: true})[0]
		if d.Err != nil || d.Description.TopologyDescription == nil {
			t.Fatalf("describe %s: %+v", g, d)
		}
		if strings.HasSuffix(g, groupDeleted) { // with an offset the cleanup leaves it to us
			kafkatest.Eventually(t, storyTimeout, func() error {
				return m.Commit(t.Context(), map[client.TopicPartition]client.Offset{{Topic: "in"}: {LeaderEpoch: -1}})
			})
			leave()
			if r := admin.DeleteStreamsGroups(t.Context(), g); r[0].Err != nil {
				t.Fatalf("delete %s: %v", g, r[0].Err)
			}
			continue
		}
		leave()
		kafkatest.Eventually(t, storyTimeout, func() error {
			if r := admin.DescribeStreamsGroups(t.Context(), []string{g}, client.DescribeOptions{}); r[0].Err == nil {
				return fmt.Errorf("group %s has not expired", g)
			}
			return nil
		})
	}
	k.Stop()
}

// member runs a Go member until its description is pushed; the function makes it leave.
func member(t *testing.T, cl *kgo.Client, group string) (m *client.Member, leave func()) {
	t.Helper()
	pushed := make(chan error, 1)
	m, err := client.NewMember(cl, client.MemberConfig{
		Group: group, Subtopologies: []client.Subtopology{{ID: "0", SourceTopics: []string{"in"}}},
		Description: &topology.Description{Subtopologies: []topology.Subtopology{{ID: "0", Nodes: []topology.Node{
			{Name: "orders-source", Type: topology.Source, Topics: []string{"in"}},
		}}}},
		Pushed: func(err error) { pushed <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	select {
	case err := <-pushed:
		if err != nil {
			t.Fatalf("push of %s: %v", group, err)
		}
	case err := <-ended:
		t.Fatalf("the member of %s ended: %v", group, err)
	case <-time.After(storyTimeout):
		t.Fatalf("%s was not asked for its description", group)
	}
	return m, func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the member of %s ended: %v", group, err)
		}
	}
}

func dial(t *testing.T, k *kafkatest.Keeper) *wire.Client {
	t.Helper()
	c, err := wire.Dial(t.Context(), k.Bootstrap(), "app")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func exchange[R kmsg.Response](t *testing.T, c *wire.Client, r kmsg.Request) R {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), storyTimeout)
	defer cancel()
	resp, err := c.Exchange(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return resp.(R)
}

// pluginCall is a line that plugin/faulty prints for each call.
var pluginCall = regexp.MustCompile(`(?m)^plugin-call (\S+) (-?\d+) (\S+) (.*)$`)

// faultyStory: pushes, describes and deletions that fail in every way. It returns the calls that the plugin got, after the
// process has stopped: operation, epoch, behaviour, group.
func faultyStory(t *testing.T, k *kafkatest.Keeper) [][]string {
	t.Helper()
	done := make(chan bool)
	groups := []string{groupGood, groupThrown, groupNil, groupRefused, groupFailing, groupSlow, groupHanging, groupGets, groupDeletes}
	for _, g := range groups {
		c := dial(t, k)
		go func() {
			defer func() { done <- true }()
			one(t, c, g)
		}()
	}
	for range groups {
		<-done
	}
	c := dial(t, k)
	// Both get their description deleted by cycles: one at once, one at the second attempt.
	for _, g := range []string{groupGood, groupDeletes} {
		kafkatest.Eventually(t, storyTimeout, func() error {
			ask := kmsg.NewPtrStreamsGroupDescribeRequest()
			ask.Groups = []string{g}
			if code := exchange[*kmsg.StreamsGroupDescribeResponse](t, c, ask).Groups[0].ErrorCode; code != 69 {
				return fmt.Errorf("group %s has not expired: %d", g, code)
			}
			return nil
		})
	}
	// The slow future completes five seconds after its time-out.
	slow := time.After(faulty.SlowAfter - plugin.TimeoutDefault + time.Second)
	<-slow
	k.Stop()
	var calls [][]string
	for _, m := range pluginCall.FindAllStringSubmatch(k.Output(), -1) {
		calls = append(calls, m[1:])
	}
	return calls
}

// one is the life of one group, with raw requests: the failing pushes are not told apart by any client.
func one(t *testing.T, c *wire.Client, group string) {
	m := kafkatest.Member{Version: 1, Group: group, ID: "m", Topic: "in"}
	push := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
	push.Group, push.MemberID = group, "m"
	describe := kmsg.NewPtrStreamsGroupDescribeRequest()
	describe.Version, describe.Groups, describe.IncludeTopologyDescription = 1, []string{group}, true
	joined := false
	for deadline := time.Now().Add(storyTimeout); !joined && time.Now().Before(deadline); {
		ctx, cancel := context.WithDeadline(t.Context(), deadline)
		resp, err := c.Exchange(ctx, m.Heartbeat())
		cancel()
		if err != nil {
			t.Error(err)
			return
		}
		code := resp.(*kmsg.StreamsGroupHeartbeatResponse).ErrorCode
		if joined = code == 0; !joined {
			t.Logf("group %s: the heartbeat is answered with %v", group, kerr.ErrorForCode(code))
			time.Sleep(100 * time.Millisecond) // shards serve a moment after the replica is ready
		}
	}
	if !joined {
		t.Errorf("group %s has no member", group)
	}
	for _, r := range []kmsg.Request{push, describe, m.Leave()} {
		ctx, cancel := context.WithTimeout(t.Context(), storyTimeout)
		if _, err := c.Exchange(ctx, r); err != nil {
			t.Error(err)
		}
		cancel()
	}
}
