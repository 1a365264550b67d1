package shard

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
)

// BenchmarkSteadyHeartbeat is a heartbeat that changes nothing, in one of 256 groups over 50 partitions, from as many goroutines as
// GOMAXPROCS: what a replica does nearly all of its time.
func BenchmarkSteadyHeartbeat(b *testing.B) {
	log, start, end := newReplicas(context.Background(), 50)
	defer end()
	r := serving(b, log, start)
	epochs := make([]int32, 256)
	for i := range epochs {
		resp, err := r.Heartbeat(context.Background(), Caller{ClientID: "c", ClientHost: "/127.0.0.1"}, 1, joinRequest(fmt.Sprint("g", i), "m"))
		if err != nil {
			b.Fatal(err)
		}
		epochs[i] = resp.MemberEpoch
	}
	var n atomic.Int64
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := int(n.Add(1)) % len(epochs)
			if _, err := r.beat(fmt.Sprint("g", i), "m", epochs[i]); err != nil {
				b.Error(err)
			}
		}
	})
}

// BenchmarkCommit is an OffsetCommit of one partition, up to its acknowledgement by a log that answers at once.
func BenchmarkCommit(b *testing.B) {
	log, start, end := newReplicas(context.Background(), 1)
	defer end()
	r := serving(b, log, start)
	resp, err := r.Heartbeat(context.Background(), Caller{ClientID: "c", ClientHost: "/127.0.0.1"}, 1, joinRequest("g", "m"))
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for i := range b.N {
		if err := r.commit("g", "m", resp.MemberEpoch, int64(i)); err != nil {
			b.Fatal(err)
		}
	}
}
