package inspect

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
)

func cluster(t *testing.T, brokers int, opts ...kfake.Opt) (*kfake.Cluster, *kgo.Client) {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(brokers), kfake.SeedTopics(4, "log"))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, client(t, c)
}

func client(t *testing.T, c *kfake.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func produce(t *testing.T, cl *kgo.Client, partition int32, recs ...eventlog.Record) {
	t.Helper()
	for _, r := range recs {
		raw := eventlog.Encode(r)
		if err := cl.ProduceSync(testContext(t), &kgo.Record{Topic: "log", Partition: partition, Key: raw.Key, Value: raw.Value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func reader(t *testing.T, cl *kgo.Client) *Reader {
	t.Helper()
	r, err := NewReader(testContext(t), cl, "log")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func offset(group string, n int64) eventlog.Record {
	return eventlog.Record{
		Key:   eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: group, Topic: "in", Partition: 1},
		Value: &eventlog.OffsetCommit{Offset: n, LeaderEpoch: -1, ExpireTimestamp: -1},
	}
}

// read returns the offsets of all entries of a range.
func read(t *testing.T, r *Reader, partition int32, from, end int64) []int64 {
	t.Helper()
	var got []int64
	if err := r.Read(testContext(t), partition, from, end, func(b Batch) error {
		entries, err := b.Entries(partition, from)
		for _, e := range entries {
			got = append(got, e.Offset)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

func TestReadStopsAtTheEnd(t *testing.T) {
	_, cl := cluster(t, 3)
	for i := range int64(5) {
		produce(t, cl, 1, offset("g", i))
	}
	r := reader(t, cl)
	if got := r.Partitions(); !reflect.DeepEqual(got, []int32{0, 1, 2, 3}) {
		t.Errorf("partitions %v", got)
	}
	bounds, err := r.Bounds(testContext(t))
	if err != nil || bounds[1] != (Bounds{0, 5}) || bounds[0] != (Bounds{}) {
		t.Fatalf("bounds %v, %v", bounds, err)
	}
	for _, c := range []struct {
		from, end int64
		want      []int64
	}{{0, 5, []int64{0, 1, 2, 3, 4}}, {2, 4, []int64{2, 3}}, {5, 5, nil}, {0, 0, nil}} {
		if got := read(t, r, 1, c.from, c.end); !reflect.DeepEqual(got, c.want) {
			t.Errorf("from %d to %d: %v, want %v", c.from, c.end, got, c.want)
		}
	}
}

// A compacted log can end in offsets that no record has any more; reading up to there must end all the same.
func TestReadEndsBehindACompactedTail(t *testing.T) {
	c, cl := cluster(t, 1)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, "log"
	for k, v := range map[string]string{"cleanup.policy": "compact", "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0"} {
		cfg := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		cfg.Name, cfg.Value = k, kmsg.StringPtr(v)
		res.Configs = append(res.Configs, cfg)
	}
	req.Resources = append(req.Resources, res)
	if _, err := req.RequestWith(testContext(t), cl); err != nil {
		t.Fatal(err)
	}
	produce(t, cl, 0, offset("a", 1), offset("b", 1), offset("b", 2), offset("a", 2))
	c.Compact()
	r := reader(t, cl)
	got := read(t, r, 0, 0, 10) // an end that the log does not reach
	if len(got) == 0 || got[len(got)-1] != 3 {
		t.Errorf("offsets %v, want some that end in 3", got)
	}
}

func TestMissingTopicIsNamed(t *testing.T) {
	_, cl := cluster(t, 1)
	if _, err := NewReader(testContext(t), cl, "nothing"); err == nil || !strings.Contains(err.Error(), "there is no topic nothing") {
		t.Errorf("got %v", err)
	}
}

func TestFollowSurvivesALeaderMove(t *testing.T) {
	c, cl := cluster(t, 3)
	produce(t, cl, 0, offset("g", 1))
	r := reader(t, cl)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	seen := make(chan int64, 10)
	done := make(chan error, 1)
	go func() {
		done <- r.Follow(ctx, map[int32]int64{0: 0, 1: 0, 2: 0, 3: 0}, func(p int32, b Batch) error {
			if p == 0 {
				seen <- b.LastOffset
			}
			return nil
		})
	}()
	next := func(want int64) {
		t.Helper()
		select {
		case got := <-seen:
			if got != want {
				t.Fatalf("offset %d, want %d", got, want)
			}
		case err := <-done:
			t.Fatalf("following ended: %v", err)
		case <-ctx.Done():
			t.Fatalf("offset %d did not come", want)
		}
	}
	next(0)
	produce(t, cl, 0, offset("g", 2))
	next(1)
	for node := range int32(3) {
		if err := c.MoveTopicPartition("log", 0, node); err != nil {
			t.Fatal(err)
		}
		produce(t, cl, 0, offset("g", 3))
		next(int64(node) + 2)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("following ended with %v", err)
	}
	failure := errors.New("enough")
	if err := r.Follow(testContext(t), map[int32]int64{0: 0}, func(int32, Batch) error { return failure }); !errors.Is(err, failure) {
		t.Errorf("the caller's error: %v", err)
	}
}

// TestFollowGivesUpFailuresInARowOnly: those that pass, over days, are never too many.
func TestFollowGivesUpFailuresInARowOnly(t *testing.T) {
	c, cl := cluster(t, 1)
	r := reader(t, cl)
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	var asked atomic.Int32
	c.ControlKey(kmsg.Fetch.Int16(), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		n := asked.Add(1)
		if n > 3*readFailuresMax {
			cancel()
		}
		if n%2 == 0 {
			topic := kmsg.NewFetchResponseTopic()
			topic.Topic, topic.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
			p := kmsg.NewFetchResponseTopicPartition()
			p.ErrorCode = kerr.NotLeaderForPartition.Code
			topic.Partitions = append(topic.Partitions, p)
			resp.Topics = append(resp.Topics, topic)
		}
		return resp, nil, true
	})
	if err := r.Follow(ctx, map[int32]int64{0: 0}, func(int32, Batch) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("after %d fetches: %v", asked.Load(), err)
	}
}

func TestTransactionsAndControlRecords(t *testing.T) {
	ctx := testContext(t)
	c, cl := cluster(t, 1)
	tx := client(t, c, kgo.TransactionalID("tx"))
	raw := eventlog.Encode(offset("g", 1))
	for _, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := tx.ProduceSync(ctx, &kgo.Record{Topic: "log", Partition: 0, Key: raw.Key, Value: raw.Value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := tx.EndTransaction(ctx, how); err != nil {
			t.Fatal(err)
		}
	}
	d := Decoder{}
	var text, control []string
	if err := reader(t, cl).Read(ctx, 0, 0, 4, func(b Batch) error {
		entries, err := b.Entries(0, 0)
		for _, e := range entries {
			l := d.Line(e)
			var s bytes.Buffer
			if err := errors.Join(l.WriteText(&s), l.WriteJSON(&s)); err != nil {
				return err
			}
			text = append(text, s.String())
			control = append(control, fmt.Sprint(e.Transactional, e.Control))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprint(true, eventlog.ControlNone), fmt.Sprint(true, eventlog.ControlCommit),
		fmt.Sprint(true, eventlog.ControlNone), fmt.Sprint(true, eventlog.ControlAbort),
	}
	if !reflect.DeepEqual(control, want) {
		t.Fatalf("entries %v, want %v", control, want)
	}
	for i, part := range []string{"(in transaction of producer", "COMMIT", `"transactional":true`, `"control":"ABORT"`} {
		if !strings.Contains(text[i], part) {
			t.Errorf("entry %d lacks %q: %s", i, part, text[i])
		}
	}
}

func ownership(node int32, pid int64, epoch int16, claim int64) eventlog.Record {
	return eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeOwnership}, Value: &eventlog.Ownership{
		Format: eventlog.OwnershipFormat, NodeID: node, Address: fmt.Sprintf("node%d:9292", node), ProducerID: pid, ProducerEpoch: epoch, Claim: claim,
	}}
}

// entry makes an entry as the log has it.
func entry(at int64, pid int64, epoch int16, r eventlog.Record) eventlog.Entry {
	raw := eventlog.Encode(r)
	return eventlog.Entry{Offset: at, Timestamp: 1764460800000, ProducerID: pid, ProducerEpoch: epoch, Key: raw.Key, Value: raw.Value}
}

// newer is an entry whose value is of a version that this program does not know.
func newer(at, pid int64, r eventlog.Record, value string) eventlog.Entry {
	e := entry(at, pid, 0, r)
	e.Value = []byte(value)
	return e
}

func TestLines(t *testing.T) {
	tombstone := offset("g", 1)
	tombstone.Value = nil
	d := Decoder{Partition: 3}
	for _, c := range []struct {
		entry eventlog.Entry
		text  string // part of the line
		json  string // part of the JSON
	}{
		{entry(0, 7, 1, ownership(1, 7, 1, -1)), "3          0          2025-11-30T00:00:00.000Z  Ownership ", `"type":"Ownership","key":{"type":"32000"`},
		{entry(1, 7, 1, offset("g", 5)), `OffsetCommit                          group=g topic=in partition=1 {"offset":5,`, `"partition":3,"offset":1,"timestamp":1764460800000,"producerId":7,"producerEpoch":1,"type":"OffsetCommit"`},
		{entry(2, 7, 1, tombstone), "group=g topic=in partition=1 deleted\n", `"payload":null`},
		{entry(3, 7, 0, offset("g", 6)), "(void: its writer had been replaced)\n", `"void":true`},
		{eventlog.Entry{Offset: 4, ProducerID: 7, ProducerEpoch: 1, Key: []byte{0, 3, 1}, Value: []byte{1, 2}}, "(not decoded)", `"keyBytes":"AAMB","valueBytes":"AQI="`},
		{newer(5, 7, offset("g", 7), "\x00\x05"), "OffsetCommit                          group=g topic=in partition=1 (not decoded: unknown record version: value of OffsetCommit has version 5", `"error":"unknown record version`},
		{newer(6, 9, ownership(1, 9, 0, -1), `{"format":2}`), "Ownership                              (not decoded: unknown record version", `"type":"Ownership"`},
		// Who owns the shard from here on can't be told, so nothing is called void.
		{entry(7, 9, 0, offset("g", 8)), `{"offset":8,"leaderEpoch":-1,"metadata":"","commitTimestamp":0}` + "\n", `"producerId":9`},
	} {
		l := d.Line(c.entry)
		if c.entry.Offset == 5 && l.Group() != "g" {
			t.Errorf("a record of a newer version is of group %q", l.Group())
		}
		var text, js bytes.Buffer
		if err := errors.Join(l.WriteText(&text), l.WriteJSON(&js)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), c.text) || strings.Count(text.String(), "\n") != 1 {
			t.Errorf("offset %d: text lacks %q:\n%s", c.entry.Offset, c.text, text.String())
		}
		if !strings.Contains(js.String(), c.json) || !json.Valid(js.Bytes()) || strings.Count(js.String(), "\n") != 1 {
			t.Errorf("offset %d: JSON lacks %q:\n%s", c.entry.Offset, c.json, js.String())
		}
	}
}

func TestShardsFindTheLastOwner(t *testing.T) {
	ctx := testContext(t)
	c, cl := cluster(t, 1)
	// A producer whose id and epoch the ownership records name, as claims do.
	id, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		t.Fatal(err)
	}
	produce(t, cl, 0, ownership(1, id, epoch, -1), offset("g", 1), ownership(1, id, epoch, 0))
	produce(t, cl, 1, ownership(2, id, epoch, -1))
	for i := range int64(3 * ownershipWindow) { // the record lies far before the end
		raw := eventlog.Encode(offset("g", i))
		cl.Produce(ctx, &kgo.Record{Topic: "log", Partition: 1, Key: raw.Key, Value: raw.Value}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	other := client(t, c) // another producer: its record is not from the producer that it names
	produce(t, cl, 2, ownership(3, id, epoch, -1))
	produce(t, other, 2, ownership(4, id, epoch, -1))
	released := ownership(5, id, epoch, -1)
	released.Value.(*eventlog.Ownership).Released = true
	produce(t, cl, 3, released)

	shards, err := reader(t, cl).Shards(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range shards {
		got = append(got, fmt.Sprintf("%d: node %d %s generation %d end %d released %v", s.Partition, s.Owner.NodeID, s.Owner.Address, s.Owner.Generation, s.End, s.Owner.Released))
	}
	want := []string{
		"0: node 1 node1:9292 generation 0 end 3 released false",
		"1: node 2 node2:9292 generation 0 end 3001 released false",
		"2: node 3 node3:9292 generation 0 end 2 released false",
		"3: node 5 node5:9292 generation 0 end 1 released true",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestShardsWithoutOwner(t *testing.T) {
	_, cl := cluster(t, 1)
	produce(t, cl, 0, offset("g", 1))
	shards, err := reader(t, cl).Shards(testContext(t))
	if err != nil || len(shards) != 4 || shards[0].Owner != nil || shards[0].End != 1 {
		t.Errorf("%+v, %v", shards, err)
	}
}

func TestSegmentsAreTheBatches(t *testing.T) {
	ctx := testContext(t)
	_, cl := cluster(t, 1)
	produce(t, cl, 0, offset("a", 1), offset("b", 2))
	produce(t, cl, 2, offset("c", 3))
	r := reader(t, cl)
	dir := filepath.Join(t.TempDir(), "x")
	s, err := NewSegments(dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	var want [][]byte
	for _, p := range []int32{0, 2} {
		var all []byte
		if err := r.Read(ctx, p, 0, 2, func(b Batch) error { all = append(all, b.Bytes...); return s.Write(p, b) }); err != nil {
			t.Fatal(err)
		}
		want = append(want, all)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files := []string{filepath.Join(dir, "log-0", "00000000000000000000.log"), filepath.Join(dir, "log-2", "00000000000000000000.log")}
	if !reflect.DeepEqual(s.Files, files) {
		t.Fatalf("files %v, want %v", s.Files, files)
	}
	for i, name := range files {
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want[i]) {
			t.Errorf("%s: %d bytes, %v; want %d", name, len(got), err, len(want[i]))
		}
	}
}

func FuzzSplitBatch(f *testing.F) {
	header := make([]byte, batchHeader)
	binary.BigEndian.PutUint32(header[batchLengthAt:], batchHeader-batchLengthEnd)
	header[batchMagicAt] = batchMagicWanted
	f.Add(header)
	f.Add(header[:20])
	f.Add(append([]byte(nil), bytes.Repeat([]byte{0xff}, 100)...))
	old := bytes.Clone(header)
	old[batchMagicAt] = 1
	f.Add(old)
	f.Fuzz(func(t *testing.T, b []byte) {
		for {
			batch, rest, err := splitBatch(b)
			if err != nil {
				return
			}
			if len(batch.Bytes) < batchHeader || len(batch.Bytes)+len(rest) != len(b) {
				t.Fatalf("batch of %d bytes and a rest of %d out of %d", len(batch.Bytes), len(rest), len(b))
			}
			_, _ = batch.Entries(0, 0) // must not panic
			b = rest
		}
	})
}
