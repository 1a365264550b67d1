package shard

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/streams"
)

// The large group of BenchmarkBesideALargeGroup.
const (
	largeMembers       = 1000
	largeSubtopologies = 100
	largePartitions    = 100
)

// manyTopics is a cluster with the source topics in, in-0, in-1, ….
type manyTopics struct{}

func (manyTopics) Topic(name string) (streams.Topic, bool) {
	return streams.Topic{Name: name, ID: [16]byte{1}, Partitions: largePartitions}, true
}
func (manyTopics) Version() int64 { return 1 }

// BenchmarkBesideALargeGroup is what a heartbeat waits for beside a group of 1,000 members with 100 subtopologies of 100 tasks each, of
// which one after another joins again in another process, so that each time a new target is computed for all: in a group of the
// same shard, and in a group of another shard. "quiet" is the same without the large group. Figures are per heartbeat of the small
// group: p50-µs, p99-µs, max-µs; join-µs is what a join took in the middle.
func BenchmarkBesideALargeGroup(b *testing.B) {
	log, start, end := newReplicas(context.Background(), 2)
	defer end()
	topics, groupConfig = func() streams.Topics { return manyTopics{} }, func(cfg *streams.Config) { cfg.AssignmentInterval = 0 }
	defer func() { topics, groupConfig = nil, nil }()
	r := serving(b, log, start)
	name := func(prefix string, shard int32) string { // a group of that shard
		for i := 0; ; i++ {
			if g := fmt.Sprint(prefix, i); r.Partition(g) == shard {
				return g
			}
		}
	}
	for _, c := range []struct {
		name  string
		storm bool
		shard int32
	}{{"quiet", false, 0}, {"same shard", true, 0}, {"other shard", true, 1}} {
		b.Run(c.name, func(b *testing.B) {
			small := name("small-"+c.name, c.shard)
			resp, err := r.Heartbeat(b.Context(), Caller{ClientID: "c", ClientHost: "/127.0.0.1"}, 1, joinRequest(small, "m"))
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			large := name("large-"+c.name, 0)
			if c.storm {
				if _, err := r.storm(b.Context(), large, 0, largeMembers); err != nil {
					b.Fatal(err)
				}
			}
			var joins []time.Duration
			stormed := make(chan error, 1)
			go func() {
				var err error
				if c.storm {
					joins, err = r.storm(ctx, large, largeMembers, math.MaxInt)
				}
				stormed <- err
			}()
			var took []time.Duration
			for b.Loop() {
				sent := time.Now()
				if _, err := r.beat(small, "m", resp.MemberEpoch); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(sent))
				time.Sleep(time.Millisecond) // a client between two requests; without it the loop would be measured waiting for itself
			}
			cancel()
			if err := <-stormed; err != nil {
				b.Fatal(err)
			}
			report := func(d time.Duration, unit string) { b.ReportMetric(float64(d.Nanoseconds())/1000, unit) }
			slices.Sort(took)
			report(took[len(took)/2], "p50-µs")
			report(took[len(took)*99/100], "p99-µs")
			report(took[len(took)-1], "max-µs")
			if len(joins) > 0 {
				slices.Sort(joins)
				report(joins[len(joins)/2], "join-µs")
				b.ReportMetric(float64(len(joins)), "joins")
			}
		})
	}
}

// storm lets members join the group, from the from-th join to the one before the to-th or until ctx ends, and returns how long each
// join took. After largeMembers joins the members come again, in other processes.
func (r *node) storm(ctx context.Context, group string, from, to int) (took []time.Duration, err error) {
	topology := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	for i := range largeSubtopologies {
		s := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		s.SubtopologyID, s.SourceTopics = fmt.Sprint(i), []string{fmt.Sprintf("in-%d", i)}
		topology.Subtopologies = append(topology.Subtopologies, s)
	}
	for i := from; i < to && ctx.Err() == nil; i++ {
		req := joinRequest(group, fmt.Sprintf("member-%04d", i%largeMembers))
		process := fmt.Sprintf("process-%d", i)
		req.ProcessID, req.Topology = &process, &topology
		sent := time.Now()
		_, err := r.Heartbeat(ctx, Caller{ClientID: "c", ClientHost: "/127.0.0.1"}, 1, req)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(sent))
	}
	return took, nil
}
