package eventlog

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// The record of a heartbeat that changes a member's assignment is about this large.
var benchValue = []byte(strings.Repeat("x", 100))

const benchPartitions = 50

// onClusters runs a benchmark on the embedded cluster and on a real broker.
func onClusters(b *testing.B, bench func(b *testing.B, seeds []string)) {
	b.Run("kfake", func(b *testing.B) {
		c, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		bench(b, c.ListenAddrs())
	})
	b.Run("kafka", func(b *testing.B) {
		bench(b, strings.Split(kafkatest.Shared(b, kafkatest.Options{}).Bootstrap(), ","))
	})
}

// BenchmarkAppend: each of fifty partitions has some operations under way, and appends the next when one is acknowledged,
// as shard loops do whose clients wait for answers.
func BenchmarkAppend(b *testing.B) {
	onClusters(b, func(b *testing.B, seeds []string) {
		for _, waiting := range []int{1, 16} {
			b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
				k := open(b, seeds, partitions(benchPartitions))
				ws := make([]Writer, benchPartitions)
				for p := range ws {
					ws[p] = claim(b, k, int32(p))
				}
				counted := countProduce(k)
				b.ResetTimer()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for _, w := range ws {
					recs := []Raw{{Key: []byte("key"), Value: benchValue}}
					for range waiting {
						wg.Add(1)
						var next Done
						next = func(_ int64, err error) {
							if err != nil {
								b.Error(err)
							}
							if err != nil || left.Add(-1) < 0 {
								wg.Done()
								return
							}
							w.Append(1, recs, next)
						}
						next(0, nil)
					}
				}
				wg.Wait()
				b.StopTimer()
				seconds := b.Elapsed().Seconds()
				b.ReportMetric(float64(b.N)/seconds, "records/s")
				b.ReportMetric(float64(counted.batches.Load())/seconds, "batches/s")
				b.ReportMetric(float64(counted.requests.Load())/seconds, "requests/s")
				for _, w := range ws {
					w.Close()
				}
				k.Close()
			})
		}
	})
}

// counted counts what the senders of a log send.
type counted struct{ requests, batches atomic.Int64 }

func countProduce(k *Kafka) *counted {
	c := &counted{}
	k.sent = func(batches int) {
		c.requests.Add(1)
		c.batches.Add(int64(batches))
	}
	return c
}

// BenchmarkRawProduce is the yardstick: a request for all partitions, one batch of one record each, acks=all, the next
// when the answer came, straight from kmsg.
func BenchmarkRawProduce(b *testing.B) {
	onClusters(b, func(b *testing.B, seeds []string) {
		k := open(b, seeds, partitions(benchPartitions))
		node := k.leaders.get(0).node
		op := operation{1, []Raw{{Key: []byte("key"), Value: benchValue}}}
		b.ResetTimer()
		for sent := 0; sent < b.N; sent += benchPartitions {
			req := kmsg.NewPtrProduceRequest()
			req.Acks, req.TimeoutMillis = -1, 5000
			rt := kmsg.NewProduceRequestTopic()
			rt.Topic, rt.TopicID = k.id.Topic, k.id.TopicID
			for p := range int32(benchPartitions) {
				rp := kmsg.NewProduceRequestTopicPartition()
				rp.Partition, rp.Records = p, appendBatch(nil, -1, -1, -1, []operation{op})
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
			if _, err := request[*kmsg.ProduceResponse](b.Context(), k, node, req); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "batches/s")
	})
}

// BenchmarkKgoProduce is kgo's own idempotent producer with the same load as BenchmarkAppend.
func BenchmarkKgoProduce(b *testing.B) {
	onClusters(b, func(b *testing.B, seeds []string) {
		k := open(b, seeds, partitions(benchPartitions))
		cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
		if err != nil {
			b.Fatal(err)
		}
		defer cl.Close()
		for _, waiting := range []int{1, 16} {
			b.Run(fmt.Sprintf("waiting=%d", waiting), func(b *testing.B) {
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for p := range int32(benchPartitions) {
					for range waiting {
						wg.Add(1)
						var next func(_ *kgo.Record, err error)
						next = func(_ *kgo.Record, err error) {
							if err != nil {
								b.Error(err)
							}
							if err != nil || left.Add(-1) < 0 {
								wg.Done()
								return
							}
							cl.Produce(b.Context(), &kgo.Record{Topic: k.id.Topic, Partition: p, Key: []byte("key"), Value: benchValue}, next)
						}
						next(nil, nil)
					}
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			})
		}
	})
}

// BenchmarkAppendLatency is one operation at a time in one partition: what an idle log takes.
func BenchmarkAppendLatency(b *testing.B) {
	onClusters(b, func(b *testing.B, seeds []string) {
		k := open(b, seeds, partitions(benchPartitions))
		w := claim(b, k, 0)
		m := newMemory()
		follow(b, k, m)
		for b.Loop() {
			mustPut(b, w, Raw{Key: []byte("key"), Value: benchValue})
		}
	})
}

// BenchmarkTail reads a log that is there.
func BenchmarkTail(b *testing.B) {
	onClusters(b, func(b *testing.B, seeds []string) {
		k := open(b, seeds, partitions(benchPartitions))
		per := b.N/benchPartitions + 1
		var wg sync.WaitGroup
		for p := range int32(benchPartitions) {
			w := claim(b, k, p)
			for range per {
				wg.Add(1)
				w.Append(1, []Raw{{Key: []byte("key"), Value: benchValue}}, func(_ int64, err error) {
					if err != nil {
						b.Error(err)
					}
					wg.Done()
				})
			}
		}
		wg.Wait()
		c := &countingFollower{want: int64(per * benchPartitions), done: make(chan struct{})}
		b.ResetTimer()
		ctx := b.Context()
		go k.Follow(ctx, c)
		<-c.done
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
	})
}

type countingFollower struct {
	seen, want int64
	mu         sync.Mutex
	done       chan struct{}
}

func (c *countingFollower) Resume(int32) Position     { return Position{0, EpochNone} }
func (c *countingFollower) Reset(int32, string) error { return nil }
func (c *countingFollower) Batch(_ int32, b Batch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.seen
	if c.seen += int64(len(b.Entries)); before < c.want && c.seen >= c.want {
		close(c.done)
	}
	return nil
}
