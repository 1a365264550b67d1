package main

import (
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"streamkeeper/eventlog"
	"streamkeeper/plugin"
	"streamkeeper/plugin/faulty"
)

// What is remembered of the groups of a shard goes when the shard does, and nothing else.
func TestTheBackoffGoesWithItsShard(t *testing.T) {
	const partitions = 4
	d, err := newDescribing(faulty.New(faulty.Config{}), plugin.Config{}, false)
	if err != nil {
		t.Fatal(err)
	}
	of := map[int32]int{}
	for i := range 100 {
		group := fmt.Sprint("g", i)
		d.backoff.Ask(group, 0, time.Now(), "m", trace.SpanContext{})
		of[eventlog.Partition(group, partitions)]++
	}
	left := 100
	for p := range int32(partitions) {
		d.tenureEnded(partitions)(p)
		if left -= of[p]; of[p] == 0 || d.backoff.Len() != left {
			t.Errorf("without partition %d, which had %d, %d are left, want %d", p, of[p], d.backoff.Len(), left)
		}
	}
	if (*describing)(nil).tenureEnded(partitions) != nil {
		t.Error("without a plugin somebody wants to know")
	}
}
