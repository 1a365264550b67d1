package eventlog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
)

// The captures in testdata were taken from a Kafka 4.4.0 broker that served Kafka Streams 4.4 applications:
//
//	records.jsonl.gz          every record of __consumer_offsets, its bytes and what Kafka's classes decode them to
//	dump-log.txt.gz           the same kind of log, printed by kafka-dump-log --offsets-decoder
//	formatter-group.jsonl.gz  classic group records, printed by the console consumer's formatter

func gunzip(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type captured struct {
	Partition, Offset int64
	TypeID            int16 `json:"typeId"`
	Key, Value        json.RawMessage
	KeyHex            string
	ValueHex          *string
	ValueVersion      int
	Batch             struct{ Control bool }
}

// capturedRecords are the records that are not control records.
func capturedRecords(t testing.TB) []captured {
	t.Helper()
	var all []captured
	for d := json.NewDecoder(bytes.NewReader(gunzip(t, "records.jsonl.gz"))); d.More(); {
		var c captured
		if err := d.Decode(&c); err != nil {
			t.Fatal(err)
		}
		if !c.Batch.Control {
			all = append(all, c)
		}
	}
	if len(all) < 600 {
		t.Fatalf("only %d records", len(all))
	}
	return all
}

func (c captured) raw(t testing.TB) Raw {
	raw := Raw{Key: unhex(t, c.KeyHex)}
	if c.ValueHex != nil {
		raw.Value = unhex(t, *c.ValueHex)
	}
	return raw
}

func compact(t *testing.T, b []byte) string {
	t.Helper()
	var out bytes.Buffer
	if err := json.Compact(&out, b); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestCapturedRecordsDecodeToWhatKafkaSaysAndEncodeToTheSameBytes(t *testing.T) {
	for _, c := range capturedRecords(t) {
		raw := c.raw(t)
		r, err := Decode(raw)
		if err != nil {
			t.Fatalf("%d@%d: %v", c.Partition, c.Offset, err)
		}
		line, err := JSON(r)
		if err != nil {
			t.Fatalf("%d@%d: %v", c.Partition, c.Offset, err)
		}
		var got struct {
			Key     struct{ Data json.RawMessage }
			Payload *struct{ Data json.RawMessage }
		}
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		if int16(r.Key.Type) != c.TypeID || string(got.Key.Data) != compact(t, c.Key) {
			t.Errorf("%d@%d: key %s, Kafka decodes %s", c.Partition, c.Offset, got.Key.Data, c.Key)
		}
		switch {
		case got.Payload == nil:
			if raw.Value != nil {
				t.Errorf("%d@%d: a tombstone of %x", c.Partition, c.Offset, raw.Value)
			}
		case string(got.Payload.Data) != compact(t, c.Value):
			t.Errorf("%d@%d: value\n%s, Kafka decodes\n%s", c.Partition, c.Offset, got.Payload.Data, c.Value)
		}
		if again := Encode(r); !reflect.DeepEqual(again, raw) {
			t.Errorf("%d@%d: encoded %x %x, was %x %x", c.Partition, c.Offset, again.Key, again.Value, raw.Key, raw.Value)
		}
	}
}

// TestJSONIsWhatDumpLogPrints compares whole lines: the printed keys and payloads are read back into records through
// their type alone, so it is the text of the captured records that must match, in order.
func TestJSONIsWhatDumpLogPrints(t *testing.T) {
	want := map[string]int{}
	lines := 0
	for s := bufio.NewScanner(bytes.NewReader(gunzip(t, "dump-log.txt.gz"))); s.Scan(); {
		_, rest, ok := strings.Cut(s.Text(), " key: ")
		if !ok {
			continue
		}
		key, payload, ok := strings.Cut(rest, " payload: ")
		if !ok {
			t.Fatalf("no payload: %s", s.Text())
		}
		if payload == "<DELETE>" {
			payload = "null"
		}
		lines++
		want[`{"key":`+key+`,"payload":`+payload+`}`]++
	}
	if lines < 130 {
		t.Fatalf("only %d lines", lines)
	}
	for _, c := range capturedRecords(t) {
		r, err := Decode(c.raw(t))
		if err != nil {
			t.Fatal(err)
		}
		line, err := JSON(r)
		if err != nil {
			t.Fatal(err)
		}
		if want[string(line)] > 0 {
			want[string(line)]--
			lines--
		}
	}
	for line, n := range want {
		if n > 0 {
			t.Errorf("dump-log printed this, and we don't, %d times: %s", n, line)
		}
	}
	if lines != 0 {
		t.Errorf("%d lines of dump-log have no record", lines)
	}
}

func TestClassicGroupsAreWhatTheFormatterPrints(t *testing.T) {
	n := 0
	for d := json.NewDecoder(bytes.NewReader(gunzip(t, "formatter-group.jsonl.gz"))); d.More(); n++ {
		var line struct {
			Key   struct{ Data struct{ Group string } }
			Value *struct {
				Version int
				Data    json.RawMessage
			}
		}
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.Value == nil {
			continue
		}
		var v ClassicGroup
		if err := json.Unmarshal(line.Value.Data, &v); err != nil { // the field names are the same
			t.Fatal(err)
		}
		text, err := JSON(Record{Key{Type: TypeClassicGroup, Group: line.Key.Data.Group}, &v})
		if err != nil {
			t.Fatal(err)
		}
		if line.Value.Version != classicVersionWritten || !strings.Contains(string(text), `"payload":{"version":"3","data":`+string(line.Value.Data)+"}}") {
			t.Errorf("got  %s\nwant %s", text, line.Value.Data)
		}
		again, err := DecodeValue(TypeClassicGroup, AppendValue(nil, &v))
		if err != nil {
			t.Fatal(err)
		}
		if text2, _ := JSON(Record{Key{Type: TypeClassicGroup, Group: line.Key.Data.Group}, again}); !bytes.Equal(text, text2) {
			t.Errorf("encoded and decoded: %s\nwas %s", text2, text)
		}
	}
	if n < 2 {
		t.Fatalf("only %d records", n)
	}
}

func TestJSONOfWhatDumpLogDoesNotPrint(t *testing.T) {
	for _, c := range []struct {
		r    Record
		want string
	}{
		{vectors[1].record, `{"key":{"type":"19","data":{"groupId":"app","memberId":"m1"}},"payload":{"version":"0","data":{"instanceId":"i1","rackId":"r1","clientId":"c","clientHost":"/h","rebalanceTimeoutMs":-1,"topologyEpoch":0,"processId":"p","userEndpoint":{"host":"h","port":65535},"clientTags":[{"key":"k","value":"v"}]}}}`},
		{vectors[4].record, `{"key":{"type":"17","data":{"groupId":"app"}},"payload":{"version":"0","data":{"epoch":3,"metadataHash":1,"validatedTopologyEpoch":0,"storedDescriptionTopologyEpoch":-2,"failedDescriptionTopologyEpoch":0}}}`},
		{vectors[12].record, `{"key":{"type":"1","data":{"group":"app","topic":"in","partition":1}},"payload":{"version":"1","data":{"offset":42,"metadata":"m","commitTimestamp":1000000,"expireTimestamp":2000000}}}`},
		{Record{Key{Type: TypeLegacyOffsetCommit, Group: "<&>"}, &OffsetCommit{Offset: 1, LeaderEpoch: -1, ExpireTimestamp: -1}}, `{"key":{"type":"0","data":{"group":"<&>","topic":"","partition":0}},"payload":{"version":"0","data":{"offset":1,"metadata":"","commitTimestamp":0}}}`},
		{Record{Key{Type: TypeOwnership}, &Ownership{Format: 1, NodeID: 7, Address: "h:1", Claim: -1}}, `{"key":{"type":"32000","data":{}},"payload":{"version":"1","data":{"format":1,"nodeId":7,"address":"h:1","producerId":0,"producerEpoch":0,"claim":-1,"released":false,"instance":"","logId":""}}}`},
		{Record{Key{Type: TypeGroupConfig, Group: "g"}, &GroupConfig{1, map[string]string{"b": "2", "a": "1"}}}, `{"key":{"type":"32001","data":{"groupId":"g"}},"payload":{"version":"1","data":{"format":1,"configs":{"a":"1","b":"2"}}}}`},
		{Record{Key: Key{Type: TypeClassicGroup, Group: "g"}}, `{"key":{"type":"2","data":{"group":"g"}},"payload":null}`},
	} {
		got, err := JSON(c.r)
		if err != nil || string(got) != c.want {
			t.Errorf("got  %s %v\nwant %s", got, err, c.want)
		}
	}
	if _, err := JSON(Record{Key{Type: TypeGroup}, &Topology{}}); err == nil {
		t.Error("a record that can't be is printed")
	}
}
