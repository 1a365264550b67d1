package differential

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"streamkeeper/eventlog"
	"streamkeeper/internal/coordinator"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestCreationOfInternalTopics: what both ask for, and what both tell when it fails or is refused. The oracle is told the failures that our
// cluster answers with; that they are remembered and for how long is not its part.
func TestCreationOfInternalTopics(t *testing.T) {
	for _, c := range []struct {
		name   string
		stores int
		failed string // the text of the failure; "" for none
		deny   []string
	}{
		{"all are created", 5, "", nil},
		{"one fails", 1, "Unable to replicate.", nil},
		{"three fail", 3, "x", nil},
		{"seven fail", 7, "x", nil},
		{"one is not allowed", 1, "", []string{"CREATE:CLUSTER:*", "CREATE:TOPIC:*"}},
		{"four are not allowed", 4, "", []string{"CREATE:CLUSTER:*", "CREATE:TOPIC:*"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPair(t, nil)
			p.setTopics([]streams.Topic{topic("a", 2, 1)})
			sub := subtopology{SubtopologyID: "0", SourceTopics: []string{"a"}}
			errors := map[string]string{}
			for i := range c.stores {
				name := fmt.Sprintf("g-s%d-changelog", i)
				sub.StateChangelogTopics = append(sub.StateChangelogTopics, infoWith(name, 0, int16(i), "cleanup.policy", "compact"))
				if c.failed != "" {
					errors[name] = c.failed
				}
			}
			p.do(map[string]any{"op": "deny", "rules": c.deny})
			cluster := &creatingCluster{w: p.world, failed: c.failed, deny: c.deny != nil, joined: make(chan struct{})}
			coord := coordinate(t, p.world, cluster)
			ask := func(req *kmsg.StreamsGroupHeartbeatRequest) (a answer, kafka, ours string, epoch int32) {
				t.Helper()
				a, body := p.request(req, "client", "/10.0.0.1")
				theirs := kmsg.NewPtrStreamsGroupHeartbeatResponse()
				theirs.Version = req.Version
				if err := theirs.ReadFrom(body); err != nil {
					t.Fatal(err)
				}
				resp := coord.Heartbeat(t.Context(), coordinator.Caller{ClientID: "client", ClientHost: "/10.0.0.1"}, req)
				return a, creationStatus(t, theirs), creationStatus(t, resp), resp.MemberEpoch
			}

			// Nothing has failed yet; ours answers before it knows.
			theirs, kafka, ours, epoch := ask(p.join("m", sub))
			if c.deny == nil && kafka != ours {
				t.Errorf("join\nKafka %s\n ours %s", kafka, ours)
			}
			close(cluster.joined)
			waitFor(func() bool { return cluster.answered() })
			if c.deny == nil {
				p.compare("topics to create", canonicalInternal(theirs.Internal), cluster.asked())
			}

			// The members are told.
			waitFor(func() bool {
				s := coord.CreationStats()
				return s.Created+s.Failed == int64(c.stores)
			})
			p.do(map[string]any{"op": "creationErrors", "errors": errors})
			_, kafka, ours, _ = ask(beat("m", epoch))
			if kafka != ours {
				t.Errorf("beat\nKafka %s\n ours %s", kafka, ours)
			}
			if told := strings.Contains(ours, "; "); told != (c.failed != "" || c.deny != nil) {
				t.Errorf("told %s", ours)
			}
		})
	}
}

// waitFor waits for what another goroutine is about to do.
func waitFor(done func() bool) {
	for !done() {
		runtime.Gosched()
	}
}

// creationStatus is the status of missing internal topics. Kafka takes the order of names, and which ones are told, from a hash map;
// here they are sorted, and counted where not all are told.
func creationStatus(t *testing.T, r *kmsg.StreamsGroupHeartbeatResponse) string {
	t.Helper()
	i := slices.IndexFunc(r.Status, func(s kmsg.StreamsGroupHeartbeatResponseStatus) bool { return s.StatusCode == 3 })
	if i < 0 {
		t.Fatalf("no status of missing topics: %s", responseText(r))
	}
	missing, more, told := strings.Cut(r.Status[i].StatusDetail, "; ")
	missing = canonicalStatus(missing)
	if !told {
		return missing
	}
	for _, prefix := range []string{"Creation failed: ", "Unauthorized to CREATE on topics "} {
		list, ok := strings.CutPrefix(more, prefix)
		if !ok {
			continue
		}
		list, period := strings.CutSuffix(list, ".")
		list, others, cut := strings.Cut(list, " and ")
		names := strings.Split(list, ", ")
		slices.Sort(names)
		if cut {
			names = []string{fmt.Sprintf("(%d of them)", len(names))}
		}
		return fmt.Sprintf("%s; %s%s, others %q, period %v", missing, prefix, strings.Join(names, ", "), others, period)
	}
	return missing + "; " + more
}

// coordinate puts a coordinator before our side of the world.
func coordinate(t *testing.T, w *world, cluster *creatingCluster) *coordinator.Coordinator {
	topics := coordinator.NewTopics(coordinator.TopicsConfig{Client: cluster})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { topics.Run(ctx) })
	c := coordinator.New(coordinator.Config{Node: coordinator.Node{ID: 1}, LogTopic: "__log", Shards: &oneShard{w: w, topics: topics}, Topics: topics,
		Creator: coordinator.UpstreamCreator{Client: cluster}})
	t.Cleanup(func() { c.Close(); cancel(); wg.Wait() })
	return c
}

// oneShard has the group of a world. It does heartbeats alone.
type oneShard struct {
	coordinator.Shards
	w      *world
	topics *coordinator.Topics
}

func (s *oneShard) Partition(string) int32             { return 0 }
func (s *oneShard) Owns(int32) bool                    { return true }
func (s *oneShard) Owner(int32) (eventlog.Owner, bool) { return eventlog.Owner{}, true }
func (s *oneShard) Known(string) (bool, error)         { return s.w.g.Exists(), nil }

func (s *oneShard) Heartbeat(_ context.Context, c shard.Caller, version int16, req *kmsg.StreamsGroupHeartbeatRequest) (shard.HeartbeatResult, error) {
	env := s.w.env(version, c.ClientID, c.ClientHost)
	env.Topics = s.topics.Snapshot()
	r, err := s.w.g.Heartbeat(env, req)
	if err != nil {
		return shard.HeartbeatResult{}, err
	}
	s.w.apply(r)
	return shard.HeartbeatResult{Response: r.Response, Create: r.Create}, nil
}

// creatingCluster answers Metadata with the topics of a world, and CreateTopics. What it creates nobody sees, so that what both tell can be
// compared at the next heartbeat.
type creatingCluster struct {
	w      *world
	failed string
	deny   bool
	joined chan struct{} // closed when the member was answered; nothing fails before

	mu      sync.Mutex
	request *kmsg.CreateTopicsRequest
}

func (c *creatingCluster) answered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.request != nil
}

func (c *creatingCluster) asked() []internalTopic {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := []internalTopic{}
	for _, t := range c.request.Topics {
		configs := map[string]string{}
		for _, kv := range t.Configs {
			configs[kv.Name] = *kv.Value
		}
		list = append(list, internalTopic{t.Topic, t.NumPartitions, t.ReplicationFactor, configs})
	}
	return canonicalInternal(list)
}

func (c *creatingCluster) Request(ctx context.Context, r kmsg.Request) (kmsg.Response, error) {
	switch req := r.(type) {
	case *kmsg.MetadataRequest:
		resp := kmsg.NewPtrMetadataResponse()
		for _, rt := range req.Topics {
			t := kmsg.NewMetadataResponseTopic()
			t.Topic, t.ErrorCode = rt.Topic, kerr.UnknownTopicOrPartition.Code
			if known, ok := c.w.topics.byName[*rt.Topic]; ok {
				t.TopicID, t.ErrorCode, t.Partitions = known.ID, 0, make([]kmsg.MetadataResponseTopicPartition, known.Partitions)
			}
			resp.Topics = append(resp.Topics, t)
		}
		return resp, nil
	case *kmsg.CreateTopicsRequest:
		select {
		case <-c.joined:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		resp := kmsg.NewPtrCreateTopicsResponse()
		for _, rt := range req.Topics {
			t := kmsg.NewCreateTopicsResponseTopic()
			t.Topic = rt.Topic
			switch {
			case c.deny:
				t.ErrorCode, t.ErrorMessage = kerr.TopicAuthorizationFailed.Code, kmsg.StringPtr("Authorization failed.")
			case c.failed != "":
				t.ErrorCode, t.ErrorMessage = kerr.InvalidReplicationFactor.Code, &c.failed
			}
			resp.Topics = append(resp.Topics, t)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.request = req
		return resp, nil
	}
	return nil, fmt.Errorf("unexpected request of key %d", r.Key())
}
