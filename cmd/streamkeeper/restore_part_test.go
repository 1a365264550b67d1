package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/backup"
)

// TestRestoreKeepsNoPartOfTheDescriptions: a topic of descriptions that is not empty is somebody's, unless it looks like what a restore that was killed has left; and
// one that can't be asked is not one that is not empty.
func TestRestoreKeepsNoPartOfTheDescriptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "backup")
	w, err := backup.Create(file, backup.Header{Topics: []backup.Topic{
		{Name: "__streams_groups", Partitions: 1, Records: 1}, {Name: "__streams_groups-topologies", Partitions: 1, Records: 2},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, topic := range []int{0, 1, 1} {
		if err := w.Add(topic, 0, fmt.Appendf(nil, "key %d", i), []byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		there int
		fails bool // the question where the topic ends
		code  int
		says  string
	}{
		{0, false, 0, "restored 2 topology descriptions into "},
		{1, false, exitFailure, "has fewer records than "},
		{2, false, 0, "are left as they are, for their topic is not empty"},
		{3, false, 0, "are left as they are, for their topic is not empty"},
		{2, true, exitFailure, kerr.TopicAuthorizationFailed.Message},
	} {
		t.Run(fmt.Sprintf("%d there, fails %v", c.there, c.fails), func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			if err := cluster.CreateTopic("__streams_groups-topologies", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
				t.Fatal(err)
			}
			cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			for i := range c.there {
				if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "__streams_groups-topologies", Key: fmt.Appendf(nil, "key %d", i), Value: []byte("value")}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			cluster.ControlKey(kmsg.ListOffsets.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
				cluster.KeepControl()
				req := kreq.(*kmsg.ListOffsetsRequest)
				if !c.fails || req.Topics[0].Topic != "__streams_groups-topologies" {
					return nil, nil, false
				}
				resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
				topic := kmsg.NewListOffsetsResponseTopic()
				topic.Topic = req.Topics[0].Topic
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.ErrorCode = kerr.TopicAuthorizationFailed.Code
				topic.Partitions = append(topic.Partitions, p)
				resp.Topics = append(resp.Topics, topic)
				return resp, nil, true
			})
			out, said, code := execute(t, &dev{bootstrap: cluster.ListenAddrs()[0]}, "restore", "--timeout", "20s", "--from", file)
			if code != c.code || !strings.Contains(out+said, c.says) {
				t.Errorf("exit %d: %s%s", code, out, said)
			}
		})
	}
}
