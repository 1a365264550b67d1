package eventlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestTopicIsCreated(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs())
	info := c.TopicInfo(testTopic)
	if id := k.Identity(); id.Partitions != 50 || id.TopicID != info.TopicID || id.Topic != testTopic {
		t.Fatalf("%+v, cluster has %+v", id, info)
	}
	for name, want := range map[string]string{"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600", "min.insync.replicas": "2"} {
		if got := info.Configs[name]; got == nil || *got != want {
			t.Errorf("%s is %v, want %s", name, got, want)
		}
	}
	s := k.Settings()
	if s.BatchBytesMax != k.BatchBytesMax() || s.BatchBytesMax < 1<<20 || s.DeleteRetention != 24*time.Hour || s.TransactionalIDExpiration != 7*24*time.Hour || s.ReplicationFactor != 3 || s.MinInsyncReplicas != 2 {
		t.Fatalf("%+v", s)
	}
	if k.RenewInterval() != 6*time.Hour {
		t.Fatal(k.RenewInterval())
	}
	again := open(t, c.ListenAddrs(), partitions(50))
	if again.Identity() != k.Identity() {
		t.Fatalf("%+v, then %+v", k.Identity(), again.Identity())
	}
}

func TestRenewalKeepsToExpiry(t *testing.T) {
	c := fakeCluster(t, kfake.BrokerConfigs(map[string]string{"transactional.id.expiration.ms": "40000"}))
	if got := open(t, c.ListenAddrs()).RenewInterval(); got != 10*time.Second {
		t.Fatal(got)
	}
}

func TestUnfitTopicsAreRefused(t *testing.T) {
	value := func(s string) map[string]string { return map[string]string{"cleanup.policy": "compact", s: ""} }
	for _, test := range []struct {
		name    string
		configs map[string]string
		change  func(*KafkaConfig)
		want    []string // parts of the error
	}{
		{"not compacted", map[string]string{"cleanup.policy": "delete"}, partitions(0),
			[]string{"log topic log: ", `cleanup.policy is "delete", must be "compact"`, "--add-config cleanup.policy=compact"}},
		{"compacted and deleted", map[string]string{"cleanup.policy": "compact,delete"}, partitions(0), []string{`"compact,delete"`}},
		{"log append time", map[string]string{"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}, partitions(0),
			[]string{`message.timestamp.type is "LogAppendTime", must be "CreateTime"`}},
		{"tiny batches", map[string]string{"cleanup.policy": "compact", "max.message.bytes": "1000"}, partitions(0), []string{"max.message.bytes is 1000, must be at least 65536"}},
		{"another count", value("x"), partitions(7), []string{"partition count is 4, must be 7", "leave the setting out"}},
		{"bad count", value("x"), partitions(-1), []string{"partition count -1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := fakeCluster(t)
			delete(test.configs, "x")
			if err := c.CreateTopic(testTopic, 4, test.configs); err != nil {
				t.Fatal(err)
			}
			_, err := tryOpen(c.ListenAddrs(), test.change)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q lacks %q", err, part)
				}
			}
		})
	}
}

func TestTopicThatCannotBeCreated(t *testing.T) {
	c := fakeCluster(t)
	if _, err := tryOpen(c.ListenAddrs(), func(c *KafkaConfig) { c.ReplicationFactor = 5 }); err == nil || !strings.Contains(err.Error(), "replication factor 5 is more than the cluster's 3 brokers") {
		t.Fatal(err)
	}
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.TopicAuthorizationFailed})
	if _, err := tryOpen(c.ListenAddrs()); !errors.Is(err, kerr.TopicAuthorizationFailed) || !strings.Contains(err.Error(), "allow CREATE") {
		t.Fatal(err)
	}
}

// TestBrokersThatAreStillToCome: replicas that start before the brokers of a cluster are all there must not make a topic with one replica for good.
func TestBrokersThatAreStillToCome(t *testing.T) {
	// The cluster says, or does not, what the replication factor of its topic of offsets is.
	says := func(c *kfake.Cluster, offsets string) {
		c.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			asked := req.(*kmsg.DescribeConfigsRequest)
			if asked.Resources[0].ResourceType != kmsg.ConfigResourceTypeBroker {
				return nil, nil, false
			}
			resp := asked.ResponseKind().(*kmsg.DescribeConfigsResponse)
			r := kmsg.NewDescribeConfigsResponseResource()
			if offsets != "" {
				entry := kmsg.NewDescribeConfigsResponseResourceConfig()
				entry.Name, entry.Value = "offsets.topic.replication.factor", &offsets
				r.Configs = append(r.Configs, entry)
			}
			resp.Resources = append(resp.Resources, r)
			return resp, nil, true
		})
	}
	for _, test := range []struct {
		offsets string
		more    int // brokers that come later
		want    int // replicas; 0: it is given up
	}{{"3", 2, 3}, {"5", 2, 3}, {"2", 2, 2}, {"3", 1, 0}, {"1", 0, 1}, {"", 0, 1}} {
		t.Run(fmt.Sprintf("offsets %q and %d brokers later", test.offsets, test.more), func(t *testing.T) {
			t.Parallel()
			const port = 9092
			clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
				says(c, test.offsets)
				var added sync.WaitGroup
				defer added.Wait()
				for i := range test.more {
					added.Go(func() {
						time.Sleep(time.Duration(i+1) * 500 * time.Millisecond) // of the bubble
						if _, _, err := c.AddNode(int32(i+1), port+1+i); err != nil {
							t.Error(err)
						}
					})
				}
				k, err := tryOpen(c.ListenAddrs(), partitions(1), dial)
				if test.want == 0 {
					if !errors.Is(err, ErrFewBrokers) || !strings.Contains(err.Error(), "offsets.topic.replication.factor is 3") || !strings.Contains(err.Error(), "--log-replication-factor") {
						t.Errorf("%v", err)
					}
					if c.TopicInfo(testTopic) != nil {
						t.Error("it was created all the same")
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				defer k.Close()
				if got := k.Settings().ReplicationFactor; got != test.want {
					t.Errorf("%d replicas, want %d", got, test.want)
				}
			}, kfake.NumBrokers(1), kfake.Ports(port))
		})
	}
}

func TestClusterThatDoesNotKnowTheSettings(t *testing.T) {
	c := fakeCluster(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.CreateTopics}, Err: kerr.InvalidConfig})
	k := open(t, c.ListenAddrs(), partitions(1))
	mustPut(t, claim(t, k, 0), kv("a", "1"))
}

func TestSettingsThatMayNotBeRead(t *testing.T) {
	c := fakeCluster(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.TopicAuthorizationFailed, Count: -1})
	k := open(t, c.ListenAddrs(), partitions(1))
	if s := k.Settings(); s.BatchBytesMax != 1048588 || s.TransactionalIDExpiration != 0 || s.MinInsyncReplicas != -1 {
		t.Fatalf("%+v", s)
	}
	mustPut(t, claim(t, k, 0), kv("a", "1"))
}

// TestBrokersWhoseSettingsMayNotBeRead: what follows from that is said, once for each thing, and only where something does.
func TestBrokersWhoseSettingsMayNotBeRead(t *testing.T) {
	const created, renewed = "it is not known whether there are brokers to come", "claims are renewed too seldom"
	for _, test := range []struct {
		brokers, silent int // how many there are, and how many of them tell nothing
		factor          int16
		want            []string
	}{
		{1, 1, 0, []string{created, renewed}},
		{1, 1, 1, []string{renewed}},
		{3, 3, 0, []string{renewed}},
		{3, 2, 0, nil},
		{2, 0, 0, nil},
	} {
		t.Run(fmt.Sprintf("%d of %d, factor %d", test.silent, test.brokers, test.factor), func(t *testing.T) {
			c := fakeCluster(t, kfake.NumBrokers(test.brokers), kfake.BrokerConfigs(map[string]string{"offsets.topic.replication.factor": "1"}))
			c.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
				c.KeepControl()
				asked := req.(*kmsg.DescribeConfigsRequest)
				if r := asked.Resources[0]; r.ResourceType != kmsg.ConfigResourceTypeBroker || r.ResourceName >= strconv.Itoa(test.silent) {
					return nil, nil, false
				}
				resp := asked.ResponseKind().(*kmsg.DescribeConfigsResponse)
				r := kmsg.NewDescribeConfigsResponseResource()
				r.ErrorCode = kerr.ClusterAuthorizationFailed.Code
				resp.Resources = append(resp.Resources, r)
				return resp, nil, true
			})
			var lines strings.Builder
			k, err := tryOpen(c.ListenAddrs(), partitions(1), func(c *KafkaConfig) {
				c.ReplicationFactor, c.Logger = test.factor, slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelWarn}))
			})
			if err != nil {
				t.Fatal(err)
			}
			k.Close()
			said := lines.String()
			for _, line := range []string{created, renewed} {
				want := 0
				if slices.Contains(test.want, line) {
					want = 1
				}
				if n := strings.Count(said, line); n != want {
					t.Errorf("%q is said %d times, want %d:\n%s", line, n, want, said)
				}
			}
			if len(test.want) > 0 && !strings.Contains(said, "CLUSTER_AUTHORIZATION_FAILED") {
				t.Errorf("the reason is not said:\n%s", said)
			}
		})
	}
}

// A broker other than the one that told of the topic may be asked, and may hear of it later.
func TestBrokersThatHearOfTheTopicLate(t *testing.T) {
	c := fakeCluster(t)
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Err: kerr.UnknownTopicOrPartition, Count: 3})
	k := open(t, c.ListenAddrs(), partitions(1))
	if s := k.Settings(); s.DeleteRetention != 24*time.Hour {
		t.Fatalf("the topic's settings were not read: %+v", s)
	}
}

// A topic that is there may have lost a leader, for long where all brokers that have the partition are down: a process that starts then serves the others.
func TestAStartWhileAPartitionHasNoLeader(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		first := open(t, c.ListenAddrs(), partitions(2), dial)
		mustPut(t, claim(t, first, 0), kv("a", "1"))
		req := kmsg.NewPtrMetadataRequest()
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = kmsg.StringPtr(testTopic)
		req.Topics = append(req.Topics, topic)
		full, err := req.RequestWith(t.Context(), first.client)
		if err != nil {
			t.Fatal(err)
		}
		first.Close()
		for i := range full.Topics[0].Partitions {
			if p := &full.Topics[0].Partitions[i]; p.Partition == 0 {
				p.Leader, p.ErrorCode = -1, kerr.LeaderNotAvailable.Code
			}
		}
		var lost atomic.Bool
		lost.Store(true)
		c.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if r := req.(*kmsg.MetadataRequest); !lost.Load() || len(r.Topics) == 0 {
				return nil, nil, false
			}
			resp := *full
			resp.SetVersion(req.GetVersion())
			return &resp, nil, true
		})
		k := open(t, c.ListenAddrs(), partitions(2), dial)
		m := newMemory()
		follow(t, k, m)
		mustPut(t, claim(t, k, 1), kv("b", "1"))
		reaches(t, k, m, 1)
		equal(t, "the other partition", m.values(1), []string{"b=1"})
		lost.Store(false)
		mustPut(t, claim(t, k, 0), kv("a", "2"))
		reaches(t, k, m, 0)
		equal(t, "the partition, led again", m.values(0), []string{"a=1", "a=2"})
	})
}

func TestNoClusterIsAnError(t *testing.T) {
	c := fakeCluster(t)
	addrs := c.ListenAddrs()
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := OpenKafka(ctx, KafkaConfig{SeedBrokers: addrs})
	if err == nil || !strings.Contains(err.Error(), "log topic __streams_groups on "+addrs[0]) || !strings.Contains(err.Error(), "deadline") {
		t.Fatal(err)
	}
}

func TestTopicThatChangesEndsFollow(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(c *kfake.Cluster) error
		want   string
	}{
		{"made again", func(c *kfake.Cluster) error {
			if err := c.DeleteTopic(testTopic); err != nil {
				return err
			}
			return c.CreateTopic(testTopic, 2, map[string]string{"cleanup.policy": "compact"})
		}, "log topic log is another one"},
		{"deleted", func(c *kfake.Cluster) error { return c.DeleteTopic(testTopic) }, "log topic log is gone"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := fakeCluster(t)
			k := open(t, c.ListenAddrs(), partitions(2))
			m := newMemory()
			k.leaders.mu.Lock()
			k.leaders.patience = 300 * time.Millisecond
			k.leaders.mu.Unlock()
			ended := follow(t, k, m)
			w := claim(t, k, 0)
			mustPut(t, w, kv("a", "1"))
			reaches(t, k, m, 0)
			if err := test.change(c); err != nil {
				t.Fatal(err)
			}
			if err := <-ended; err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("Follow ends with %v", err)
			}
			if _, err := put(t, w, kv("a", "2")); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("an append ends with %v", err)
			}
			if _, err := k.Claim(t.Context(), 0, Ownership{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("a claim ends with %v", err)
			}
		})
	}
}

func TestMorePartitionsEndFollow(t *testing.T) {
	c := fakeCluster(t)
	k := open(t, c.ListenAddrs(), partitions(2))
	ended := follow(t, k, newMemory())
	req := kmsg.NewPtrCreatePartitionsRequest()
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = testTopic, 3
	req.Topics = append(req.Topics, rt)
	req.TimeoutMillis = 1000
	if resp, err := req.RequestWith(t.Context(), k.client); err != nil || resp.Topics[0].ErrorCode != 0 {
		t.Fatalf("%+v, %v", resp, err)
	}
	k.leaders.refresh() // by itself within 30 s
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "has 3 partitions, had 2") {
		t.Fatal(err)
	}
}

func TestAMissingTopicMayBeRefused(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		refused := errors.New("there are groups of it")
		asked := 0
		cfg := KafkaConfig{SeedBrokers: c.ListenAddrs(), Topic: testTopic, MayCreate: func() error { asked++; return refused }}
		dial(&cfg)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		if k, err := OpenKafka(ctx, cfg); !errors.Is(err, refused) || !strings.Contains(err.Error(), "log topic log does not exist: ") {
			t.Fatalf("%v, %v", k, err)
		}
		if c.TopicInfo(testTopic) != nil {
			t.Error("it was created all the same")
		}
		if asked < 2 || time.Since(begun) < missingFor {
			t.Errorf("asked %d times in %v", asked, time.Since(begun))
		}
		// A broker that learns of the topic in time is all that was needed.
		opened := make(chan struct{})
		time.AfterFunc(time.Second, func() {
			defer close(opened)
			if k, err := tryOpen(c.ListenAddrs(), dial); err != nil {
				t.Error(err)
			} else {
				k.Close()
			}
		})
		k, err := OpenKafka(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		k.Close()
		<-opened
	})
}

// TestABrokerThatHangsAtTheStart: what brokers forget is read of the others, and of those that did not tell later on. Claims are renewed as often as that takes.
func TestABrokerThatHangsAtTheStart(t *testing.T) {
	const interval = 10 * time.Second
	of := func(nodes int32) func(c *kfake.Cluster, req kmsg.Request) bool { // those below
		return func(c *kfake.Cluster, req kmsg.Request) bool {
			r, ok := req.(*kmsg.DescribeConfigsRequest)
			return ok && r.Resources[0].ResourceType == kmsg.ConfigResourceTypeBroker && c.CurrentNode() < nodes
		}
	}
	for _, test := range []struct {
		name  string
		hangs func(c *kfake.Cluster, req kmsg.Request) bool
		known bool // at the start
	}{
		{"one answers nothing", func(c *kfake.Cluster, _ kmsg.Request) bool { return c.CurrentNode() == 0 }, true},
		{"one tells nothing of itself", of(1), true},
		{"two tell nothing of themselves", of(2), true},
		{"none tells anything of itself", of(3), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
				if err := c.CreateTopic(testTopic, 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
					t.Fatal(err)
				}
				for p := c.LeaderFor(testTopic, 0); p == 0; p = c.LeaderFor(testTopic, 0) {
					c.ShufflePartitionLeaders()
				}
				woken := make(chan struct{})
				c.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
					c.KeepControl()
					if test.hangs(c, req) {
						c.SleepControl(func() { <-woken })
					}
					return nil, nil, false
				})
				cfg := KafkaConfig{SeedBrokers: c.ListenAddrs(), Topic: testTopic, Partitions: 1}
				dial(&cfg)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // the bubble's clock
				defer cancel()
				begun := time.Now()
				k, err := OpenKafka(ctx, cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer k.Close()
				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("the start took %v", took)
				}
				if got := k.RenewInterval(); (got == interval) != test.known || (got == defaultRenewInterval) == test.known {
					t.Errorf("claims are renewed every %v", got)
				}
				w := claim(t, k, 0)
				first := w.Claim().ProducerEpoch
				time.Sleep(5 * time.Second) // the bubble's clock
				close(woken)
				time.Sleep(insyncInterval + 2*brokerConfigsTimeout + interval) // the bubble's clock
				if got := k.RenewInterval(); got != interval || w.Claim().ProducerEpoch == first {
					t.Errorf("when all brokers answer claims are renewed every %v, and the epoch is %d after %d", got, w.Claim().ProducerEpoch, first)
				}
				k.expiry.mu.Lock()
				defer k.expiry.mu.Unlock()
				if len(k.expiry.unread) > 0 {
					t.Errorf("brokers %v are still to tell", k.expiry.unread)
				}
			}, kfake.BrokerConfigs(map[string]string{"transactional.id.expiration.ms": "40000"}))
		})
	}
}

// TestALargerBatch: an operator raises max.message.bytes for a group that is too large, and lowers it again. Both count within seconds.
func TestALargerBatch(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		k := open(t, c.ListenAddrs(), partitions(1), dial)
		w := claim(t, k, 0)
		large := kv("a", strings.Repeat("x", batchBytesDefault))
		for _, step := range []struct {
			set      string
			want     int
			tooLarge bool
		}{
			{"", batchBytesDefault, true},
			{"2097152", 2 << 20, false},
			{"524288", 512 << 10, true},
			{"1000", batchBytesLeast, true}, // the cluster refuses what does not fit
			{"4194304", 4 << 20, false},
		} {
			if step.set != "" {
				alterTopic(t, c, dial, "max.message.bytes", step.set)
				time.Sleep(insyncInterval + time.Second) // the bubble's clock
			}
			if got := k.BatchBytesMax(); got != step.want {
				t.Errorf("max.message.bytes is %q: %d, want %d", step.set, got, step.want)
			}
			if _, err := put(t, w, large); errors.Is(err, ErrTooLarge) != step.tooLarge || err != nil && !step.tooLarge {
				t.Errorf("max.message.bytes is %q: %v", step.set, err)
			}
		}
	})
}
