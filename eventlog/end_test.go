package eventlog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reply is what a broker answers where a partition ends.
type reply struct {
	offset int64
	epoch  int32 // -1: it doesn't say
	code   *kerr.Error
	after  time.Duration
}

// endsAt has the brokers answer the question where partition 0 ends as to says, by broker and whether the leader is asked (replica id -1); false leaves it to the cluster.
func endsAt(c *kfake.Cluster, to func(node int32, leader bool) (reply, bool)) {
	c.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		r := req.(*kmsg.ListOffsetsRequest)
		if r.Topics[0].Partitions[0].Timestamp != offsetLatest {
			return nil, nil, false
		}
		a, ok := to(c.CurrentNode(), r.ReplicaID != debuggingReplica)
		if !ok {
			return nil, nil, false
		}
		if a.after > 0 {
			c.SleepControl(func() { time.Sleep(a.after) }) // the broker is late, and others answer meanwhile
		}
		resp := r.ResponseKind().(*kmsg.ListOffsetsResponse)
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = r.Topics[0].Topic
		rp := kmsg.NewListOffsetsResponseTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = r.Topics[0].Partitions[0].Partition, a.offset, a.epoch
		if a.code != nil {
			rp.Offset, rp.ErrorCode = -1, a.code.Code
		}
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
}

// writtenTo is a log on a cluster with a partition that three brokers have, where something is written, the offset that it ends at, and a follower.
func writtenTo(t *testing.T, c *kfake.Cluster, change ...func(*KafkaConfig)) (k *Kafka, w Writer, high int64, follower int32) {
	t.Helper()
	k = open(t, c.ListenAddrs(), append([]func(*KafkaConfig){partitions(1), deadline(5 * time.Second)}, change...)...)
	leader := k.leader(0)
	if err := c.MoveTopicPartition(testTopic, 0, (leader+1)%3); err != nil { // so that there was an epoch before
		t.Fatal(err)
	}
	w = claim(t, k, 0)
	high = mustPut(t, w, Encode(Record{Key: Key{Type: TypeGroup, Group: "g"}})) + 1
	eventually(t, func() error {
		if l := k.leaders.get(0); l.node == leader || l.epoch < 1 {
			return fmt.Errorf("leader %+v", l)
		}
		return nil
	})
	return k, w, high, leader
}

// TestTheEndIsReached: a former leader that is cut off from the other brokers, and not from us, holds records that it took and that nobody else has: its log
// ends behind what will ever be committed. On a partition that nobody writes to, what waits for the end that it names (a read barrier, the scan of a claimer)
// waits in vain. It answers sooner than the other follower here.
func TestTheEndIsReached(t *testing.T) {
	for _, test := range []struct {
		name  string
		epoch int32 // that the former leader knows of, less than the leader's by so much; 0: brokers don't tell
		late  time.Duration
	}{
		{"brokers that tell no epochs", 0, 20 * time.Millisecond},
		{"the other follower does not answer", 1, time.Minute},
	} {
		t.Run(test.name, func(t *testing.T) {
			clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
				k, w, high, former := writtenTo(t, c, dial)
				leading := k.leaders.get(0).epoch
				endsAt(c, func(node int32, leader bool) (reply, bool) {
					a := reply{offset: high, epoch: -1}
					if test.epoch > 0 {
						a.epoch = leading
					}
					switch {
					case leader:
						return a, false
					case node == former:
						a.offset += 7
						a.epoch -= test.epoch
					default:
						a.after = test.late
					}
					return a, true
				})
				for range 3 {
					end, err := k.End(t.Context(), 0)
					if err != nil || end != high {
						t.Errorf("the log ends at %d for all who read it, End says %d, %v: a read barrier waits until its time is over", high, end, err)
					}
				}
				if test.late > endPatience {
					return // the silent broker may be the coordinator of the claim as well
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				prev := &Owner{Ownership: Ownership{ProducerID: w.Claim().ProducerID - 1}, Offset: 0}
				began := time.Now()
				if _, err := k.ClaimAfter(ctx, 0, Ownership{NodeID: 5}, prev, 150*time.Millisecond); err != nil {
					t.Errorf("a claim whose producer id is another one, after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

func TestBoundOfEnds(t *testing.T) {
	for _, test := range []struct {
		name             string
		replicas, insync int
		leader           told
		others           []told
		want             int64
	}{
		{"the only replica", 1, 1, told{10, 3}, nil, 10},
		{"the only replica, where nothing is acknowledged", 1, 2, told{10, 3}, nil, 10},
		{"replicas that are not known", 0, 2, told{10, 3}, nil, 10},
		{"all have all that is acknowledged", 2, 2, told{10, 3}, nil, 10},
		{"one may acknowledge", 3, 1, told{10, -1}, []told{{10, -1}, {17, -1}}, 17},
		{"one may acknowledge, and one of an earlier epoch did not", 3, 1, told{10, 3}, []told{{10, 3}, {17, 2}}, 10},
		{"the leader is old", 3, 2, told{10, 3}, []told{{12, 4}}, 12},
		{"the leader is old, all answer", 3, 2, told{10, 3}, []told{{12, 4}, {13, 4}}, 12},
		{"the leader is old, epochs are not told", 3, 2, told{10, -1}, []told{{12, -1}}, 12},
		{"the follower is old", 3, 2, told{10, 3}, []told{{17, 2}}, 10},
		{"the follower is old, epochs are not told", 3, 2, told{10, -1}, []told{{17, -1}, {10, -1}}, 10},
		{"two may have acknowledged what these two have", 3, 2, told{10, -1}, []told{{17, -1}, {16, -1}}, 16},
		{"the leader tells no epoch", 3, 2, told{10, -1}, []told{{17, 2}}, 17},
		{"a follower tells no epoch", 3, 2, told{10, 3}, []told{{17, -1}}, 17},
		{"a follower behind", 3, 2, told{10, 3}, []told{{4, 3}, {2, 3}}, 10},
		{"five, three in sync, enough", 5, 3, told{10, -1}, []told{{17, -1}, {11, -1}}, 17},
		{"five, three in sync, one more", 5, 3, told{10, -1}, []told{{17, -1}, {11, -1}, {10, -1}}, 11},
		{"five, three in sync, all", 5, 3, told{10, -1}, []told{{17, -1}, {11, -1}, {10, -1}, {10, -1}}, 10},
	} {
		e := ends{test.replicas, test.insync, test.leader, test.others}
		if got := e.bound(); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// TestAnOldEndIsNotBelievedAlone: the leader's end is old, and the followers, which have just started, don't know the topic yet.
func TestAnOldEndIsNotBelievedAlone(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		k, _, high, _ := writtenTo(t, c, dial)
		began := time.Now()
		endsAt(c, func(_ int32, leader bool) (reply, bool) {
			switch {
			case leader:
				return reply{offset: high - 1, epoch: -1}, true
			case time.Since(began) < notLeaderFor+500*time.Millisecond:
				return reply{code: kerr.UnknownTopicOrPartition}, true
			}
			return reply{offset: high, epoch: -1}, true
		})
		if end, err := k.End(t.Context(), 0); err != nil || end != high {
			t.Errorf("the log ends at %d, End says %d, %v", high, end, err)
		}
	})
}

// TestFollowersThatCannotBeAsked: with a cluster whose followers refuse the question, as brokers that do not lead, the leader's word counts.
func TestFollowersThatCannotBeAsked(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		k, _, high, _ := writtenTo(t, c, dial)
		endsAt(c, func(_ int32, leader bool) (reply, bool) { return reply{code: kerr.NotLeaderForPartition}, !leader })
		began := time.Now()
		for range 3 {
			if end, err := k.End(t.Context(), 0); err != nil || end != high {
				t.Errorf("the log ends at %d, End says %d, %v", high, end, err)
			}
		}
		if took := time.Since(began); took < notLeaderFor || took > 2*notLeaderFor {
			t.Errorf("the leader was believed alone after %v", took)
		}
	})
}

func TestRefusals(t *testing.T) {
	const p = 3
	other := errors.New("some other error")
	began := time.Now()
	type round struct {
		after time.Duration
		ends  int
		errs  []error
		alone bool
	}
	for name, rounds := range map[string][]round{
		"the question is not known":     {{0, 0, []error{kerr.InvalidRequest, kerr.UnsupportedVersion}, true}},
		"they do not lead":              {{0, 0, []error{kerr.NotLeaderForPartition}, false}, {notLeaderFor, 0, []error{kerr.NotLeaderForPartition}, true}},
		"one does not know the topic":   {{0, 0, []error{kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition}, false}, {notLeaderFor, 0, []error{kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition}, false}},
		"nor ever will":                 {{0, 0, []error{kerr.UnknownTopicOrPartition}, false}, {refusedFor, 0, []error{kerr.UnknownTopicOrPartition}, true}},
		"another error":                 {{0, 0, []error{other}, false}, {notLeaderFor, 0, []error{other}, false}},
		"they were silent between":      {{0, 0, []error{kerr.UnknownTopicOrPartition}, false}, {time.Second, 0, nil, false}, {refusedFor, 0, []error{kerr.UnknownTopicOrPartition}, false}},
		"they have answered once":       {{0, 1, nil, false}, {time.Second, 0, []error{kerr.NotLeaderForPartition}, false}, {time.Hour, 0, []error{kerr.NotLeaderForPartition}, false}},
		"one answers, and not the rest": {{0, 1, []error{kerr.NotLeaderForPartition}, false}, {time.Hour, 1, []error{kerr.NotLeaderForPartition}, false}},
	} {
		var r refusals
		for i, round := range rounds {
			if got := r.take(p, round.ends, round.errs, began.Add(round.after)); got != round.alone {
				t.Errorf("%s, round %d: %v", name, i, got)
			}
		}
	}
}

// alterTopic changes a setting of the topic, as an operator does.
func alterTopic(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig), name, value string) {
	t.Helper()
	var cfg KafkaConfig
	dial(&cfg)
	client, err := kgo.NewClient(append(cfg.ClientOptions, kgo.SeedBrokers(c.ListenAddrs()...))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, testTopic
	conf := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	conf.Name, conf.Value = name, &value
	res.Configs = append(res.Configs, conf)
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("%+v, %v", resp, err)
	}
}

// TestFewerReplicasThatAcknowledge: an operator who is short of brokers lowers min.insync.replicas. From then on a record may be with one broker alone, and
// all are asked.
func TestFewerReplicasThatAcknowledge(t *testing.T) {
	clusterInBubble(t, func(t *testing.T, c *kfake.Cluster, dial func(*KafkaConfig)) {
		k, _, high, other := writtenTo(t, c, dial, func(c *KafkaConfig) { c.reread = 20 * time.Millisecond })
		endsAt(c, func(node int32, leader bool) (reply, bool) {
			if node == other {
				return reply{offset: high + 7, epoch: -1, after: 50 * time.Millisecond}, !leader
			}
			return reply{offset: high, epoch: -1}, !leader
		})
		if end, err := k.End(t.Context(), 0); err != nil || end != high {
			t.Errorf("two replicas acknowledge: End says %d, %v, want %d", end, err, high)
		}
		for _, n := range []string{"1", "2"} {
			want := high
			if n == "1" {
				want += 7
			}
			alterTopic(t, c, dial, "min.insync.replicas", n)
			eventually(t, func() error {
				if end, err := k.End(t.Context(), 0); err != nil || end != want {
					return fmt.Errorf("%s replicas acknowledge: End says %d, %v, want %d", n, end, err, want)
				}
				return nil
			})
		}
	})
}
