package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/plugin/topic"
)

// backend is a plugin whose calls can be seen from outside, and what it keeps.
type backend struct {
	name string
	// settings are the arguments of a replica.
	settings func(w *world, replica int) []string
	// groups are those of which it has a description.
	groups func(w *world) []string
}

// inCatalogue is the plugin "http"; its calls are requests to the world's service.
var inCatalogue = backend{
	name: "http",
	settings: func(w *world, replica int) []string {
		return []string{"--plugin", "http", "--plugin-set", fmt.Sprintf("url=%s/%s", w.service.URL, replicaName(replica))}
	},
	groups: func(w *world) []string {
		w.t.Helper()
		w.mu.Lock()
		asked := map[string]bool{}
		for _, r := range w.asked {
			asked[groupOf(r)] = true
		}
		w.mu.Unlock()
		var groups []string
		for group := range asked {
			resp, err := http.Get(w.service.URL + path.Join("/test/groups", group, "topologies/0"))
			if err != nil {
				w.t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				groups = append(groups, group)
			}
		}
		return groups
	},
}

// inTopic is the plugin "topic"; its calls are records of the description topic.
var inTopic = backend{
	name:     topic.Name,
	settings: func(*world, int) []string { return []string{"--plugin", topic.Name} },
	groups: func(w *world) []string {
		w.t.Helper()
		groups, err := describedGroups(w.t.Context(), w.direct(), logTopic+topic.TopicSuffix)
		if err != nil {
			w.t.Fatal(err)
		}
		return groups
	},
}

// descriptionKey is the part of the key of a description record that is needed here.
type descriptionKey struct {
	Group *string `json:"group"`
	Epoch int32   `json:"epoch"`
}

// describedGroup is the group that a record of the description topic is about; ok is false for other records.
func describedGroup(key []byte) (k descriptionKey, ok bool) {
	err := json.Unmarshal(key, &k)
	return k, err == nil && k.Group != nil
}

// describedGroups reads the description topic to its end: the groups whose latest record of some epoch has a value.
func describedGroups(ctx context.Context, cl *kgo.Client, topic string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, settled)
	defer cancel()
	ends, err := endOffsets(ctx, cl, topic)
	if err != nil || len(ends) == 0 {
		return nil, err
	}
	starts := map[int32]kgo.Offset{}
	for p, end := range ends {
		if end > 0 {
			starts[p] = kgo.NewOffset().AtStart()
		}
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts})
	latest := map[string]bool{} // by the bytes of the key: has it a value
	names := map[string]string{}
	for left := len(starts); left > 0; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if k, ok := describedGroup(r.Key); ok {
				latest[string(r.Key)], names[string(r.Key)] = r.Value != nil, *k.Group
			}
			if r.Offset == ends[r.Partition]-1 {
				left--
			}
		})
	}
	groups := map[string]bool{}
	for key, there := range latest {
		if there {
			groups[names[key]] = true
		}
	}
	return slices.Sorted(maps.Keys(groups)), nil
}

// endOffsets are the ends of the topic's partitions; none where it does not exist.
func endOffsets(ctx context.Context, cl *kgo.Client, topic string) (map[int32]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for p := range int32(logPartitions) {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = p, -1
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			switch err := kerr.ErrorForCode(p.ErrorCode); {
			case errors.Is(err, kerr.UnknownTopicOrPartition):
			case err != nil:
				return nil, err
			default:
				ends[p.Partition] = p.Offset
			}
		}
	}
	return ends, nil
}

// holds says whether the plugin has a description of the group.
func (w *world) holds(group string) bool {
	w.t.Helper()
	return slices.Contains(w.backend.groups(w), group)
}

// nothingHeld checks that no description is left of groups of which none is left.
func (w *world) nothingHeld() {
	w.t.Helper()
	if groups := w.backend.groups(w); len(groups) > 0 {
		w.t.Errorf("the plugin %s holds descriptions of %v, and no group is left", w.backend.name, groups)
	}
}
