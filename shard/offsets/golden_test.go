package offsets

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
)

// exchange is an OffsetCommit (key 8) or OffsetFetch (key 9) between a Kafka Streams 4.4 application, or Kafka's own
// tools, and a Kafka 4.4 broker; bodies without headers. Records are what the broker wrote for a commit: key and value.
type exchange struct {
	Run               string
	Key, Version      int16
	Request, Response string
	Records           [][2]string
}

func readExchanges(t *testing.T) []exchange {
	t.Helper()
	f, err := os.Open("testdata/captured.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []exchange
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var x exchange
		if err := json.Unmarshal(lines.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		all = append(all, x)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The same requests in the same order lead to the broker's records and the broker's answers, byte for byte.
func TestCapturedExchangesHaveTheSameOutcome(t *testing.T) {
	views := map[string]*fakeView{} // by run and group
	names := map[[16]byte]string{}  // of topics, from the records
	exchanges := readExchanges(t)
	for _, x := range exchanges {
		for _, kv := range x.Records {
			rec, err := eventlog.Decode(eventlog.Raw{Key: unhex(t, kv[0]), Value: unhex(t, kv[1])})
			if err != nil {
				t.Fatal(err)
			}
			names[rec.Value.(*eventlog.OffsetCommit).TopicID] = rec.Key.Topic
		}
	}
	view := func(run, group string) *fakeView {
		if views[run+"/"+group] == nil {
			views[run+"/"+group] = &fakeView{}
		}
		return views[run+"/"+group]
	}
	commits, found := 0, 0
	for i, x := range exchanges {
		want := unhex(t, x.Response)
		if x.Key == 8 {
			commits++
			got := replayCommit(t, x, names, view)
			if !bytes.Equal(got, want) {
				t.Errorf("%s exchange %d, commit:\n got %x\nwant %x", x.Run, i, got, want)
			}
			continue
		}
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version = x.Version
		if err := req.ReadFrom(unhex(t, x.Request)); err != nil {
			t.Fatal(err)
		}
		var groups []kmsg.OffsetFetchResponseGroup
		for _, g := range FetchGroups(req) {
			for j := range g.Topics {
				if x.Version >= 10 {
					// A topic that nothing was committed for exists all the same; its name is not in the capture.
					g.Topics[j].Topic = cmp.Or(names[g.Topics[j].TopicID], "a topic without commits")
				}
			}
			a := Fetch(view(x.Run, g.Group), &g, req.RequireStable)
			for _, topic := range a.Topics {
				for _, p := range topic.Partitions {
					if p.Offset >= 0 {
						found++
					}
				}
			}
			groups = append(groups, a)
		}
		got, want := sortedFetch(t, x.Version, FetchResponse(req, groups).AppendTo(nil)), sortedFetch(t, x.Version, want)
		if !bytes.Equal(got, want) {
			t.Errorf("%s exchange %d, fetch version %d:\n got %x\nwant %x", x.Run, i, x.Version, got, want)
		}
	}
	if commits < 20 || found < 50 {
		t.Errorf("%d commits, %d offsets found: not what this test was written for", commits, found)
	}
}

func replayCommit(t *testing.T, x exchange, names map[[16]byte]string, view func(run, group string) *fakeView) []byte {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version = x.Version
	if err := req.ReadFrom(unhex(t, x.Request)); err != nil {
		t.Fatal(err)
	}
	first, err := eventlog.Decode(eventlog.Raw{Key: unhex(t, x.Records[0][0]), Value: unhex(t, x.Records[0][1])})
	if err != nil {
		t.Fatal(err)
	}
	env := env()
	env.Now = first.Value.(*eventlog.OffsetCommit).CommitTimestamp
	resp, recs, err := NewCommit(req, func(_ string, id [16]byte) (Topic, int16) {
		return Topic{Name: names[id], ID: id, Partitions: 100}, 0
	}).Run(env, nil)
	if err != nil || len(recs) != len(x.Records) {
		t.Fatalf("%d records, want %d: %v", len(recs), len(x.Records), err)
	}
	for i, rec := range recs {
		raw := eventlog.Encode(rec)
		if hex.EncodeToString(raw.Key) != x.Records[i][0] || hex.EncodeToString(raw.Value) != x.Records[i][1] {
			t.Errorf("record %d:\n got %x %x\nwant %v", i, raw.Key, raw.Value, x.Records[i])
		}
	}
	view(x.Run, req.Group).apply(recs)
	return resp.AppendTo(nil)
}

// sortedFetch is a response body in ascending order: the broker's order is that of its hash maps.
func sortedFetch(t *testing.T, version int16, body []byte) []byte {
	r := kmsg.NewPtrOffsetFetchResponse()
	r.Version = version
	if err := r.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		slices.SortFunc(g.Topics, func(a, b kmsg.OffsetFetchResponseGroupTopic) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), bytes.Compare(a.TopicID[:], b.TopicID[:]))
		})
		for j := range g.Topics {
			slices.SortFunc(g.Topics[j].Partitions, func(a, b kmsg.OffsetFetchResponseGroupTopicPartition) int {
				return cmp.Compare(a.Partition, b.Partition)
			})
		}
	}
	return r.AppendTo(nil)
}
