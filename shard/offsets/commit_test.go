package offsets

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/eventlog"
)

var (
	idIn  = [16]byte{15: 1}
	idOut = [16]byte{15: 2}
)

// resolveTest knows "in" (2 partitions, idIn) and refuses "secret".
func resolveTest(name string, id [16]byte) (Topic, int16) {
	switch {
	case name == "secret":
		return Topic{}, kerr.TopicAuthorizationFailed.Code
	case name == "in", id == idIn:
		return Topic{Name: "in", ID: idIn, Partitions: 2}, 0
	case name == "":
		return Topic{}, kerr.UnknownTopicID.Code
	}
	return Topic{}, kerr.UnknownTopicOrPartition.Code
}

func commitRequest(version int16, topics ...kmsg.OffsetCommitRequestTopic) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Topics = version, "g", topics
	return req
}

func commitTopic(name string, id [16]byte, partitions ...int32) kmsg.OffsetCommitRequestTopic {
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = name, id
	for _, p := range partitions {
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch = p, int64(100+p), 7
		t.Partitions = append(t.Partitions, rp)
	}
	return t
}

// codes are the answers by partition, in order.
func codes(resp *kmsg.OffsetCommitResponse) (list []int16) {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			list = append(list, p.ErrorCode)
		}
	}
	return list
}

func env() Env {
	return Env{Now: 1_000_000, MetadataBytesMax: MetadataMaxDefault, Retention: RetentionDefault}
}

func TestCommitResolvesTopicsAsKafka(t *testing.T) {
	for _, c := range []struct {
		name    string
		req     *kmsg.OffsetCommitRequest
		want    []int16
		records int
		decided bool
	}{
		{"name known", commitRequest(9, commitTopic("in", [16]byte{}, 0, 1)), []int16{0, 0}, 2, false},
		{"id known", commitRequest(10, commitTopic("", idIn, 0)), []int16{0}, 1, false},
		{"id unknown", commitRequest(10, commitTopic("", idOut, 0, 1)), []int16{100, 100}, 0, true},
		{"name unknown", commitRequest(9, commitTopic("out", [16]byte{}, 0)), []int16{3}, 0, true},
		{"not authorized", commitRequest(9, commitTopic("secret", [16]byte{}, 0)), []int16{29}, 0, true},
		{"partition unknown", commitRequest(9, commitTopic("in", [16]byte{}, 1, 2, -1)), []int16{0, 3, 3}, 1, false},
		{"mixed", commitRequest(9, commitTopic("out", [16]byte{}, 0), commitTopic("in", [16]byte{}, 0), commitTopic("secret", [16]byte{}, 0)), []int16{3, 0, 29}, 1, false},
		{"nothing asked", commitRequest(9), nil, 0, true},
		{"no partitions", commitRequest(9, commitTopic("in", [16]byte{})), nil, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			commit := NewCommit(c.req, resolveTest)
			if commit.Decided() != c.decided {
				t.Errorf("decided %v, want %v", commit.Decided(), c.decided)
			}
			resp, recs, err := commit.Run(env(), nil)
			if err != nil || !reflect.DeepEqual(codes(resp), c.want) || len(recs) != c.records {
				t.Errorf("codes %v, %d records, error %v; want %v, %d", codes(resp), len(recs), err, c.want, c.records)
			}
			if resp.Version != c.req.Version || len(resp.Topics) != len(c.req.Topics) {
				t.Errorf("version %d with %d topics", resp.Version, len(resp.Topics))
			}
			for i, topic := range resp.Topics {
				if asked := c.req.Topics[i]; c.req.Version < 10 && topic.Topic != asked.Topic || c.req.Version >= 10 && topic.TopicID != asked.TopicID {
					t.Errorf("topic %q %x answered for %q %x", topic.Topic, topic.TopicID, asked.Topic, asked.TopicID)
				}
			}
		})
	}
}

func TestCommitRecords(t *testing.T) {
	meta := "m"
	for _, c := range []struct {
		name   string
		change func(*kmsg.OffsetCommitRequest)
		want   eventlog.OffsetCommit
	}{
		{"version 10", func(r *kmsg.OffsetCommitRequest) {}, eventlog.OffsetCommit{Offset: 101, LeaderEpoch: 7, CommitTimestamp: 1_000_000, ExpireTimestamp: -1, TopicID: idIn}},
		{"metadata", func(r *kmsg.OffsetCommitRequest) { r.Topics[0].Partitions[0].Metadata = &meta }, eventlog.OffsetCommit{Offset: 101, LeaderEpoch: 7, Metadata: "m", CommitTimestamp: 1_000_000, ExpireTimestamp: -1, TopicID: idIn}},
		{"offset and epoch are not range-checked", func(r *kmsg.OffsetCommitRequest) {
			r.Topics[0].Partitions[0].Offset, r.Topics[0].Partitions[0].LeaderEpoch = -5, -9
		}, eventlog.OffsetCommit{Offset: -5, LeaderEpoch: -9, CommitTimestamp: 1_000_000, ExpireTimestamp: -1, TopicID: idIn}},
		{"version 5 has no leader epoch", func(r *kmsg.OffsetCommitRequest) { r.Version = 5 }, eventlog.OffsetCommit{Offset: 101, LeaderEpoch: -1, CommitTimestamp: 1_000_000, ExpireTimestamp: -1, TopicID: idIn}},
		{"version 6 has one", func(r *kmsg.OffsetCommitRequest) { r.Version = 6 }, eventlog.OffsetCommit{Offset: 101, LeaderEpoch: 7, CommitTimestamp: 1_000_000, ExpireTimestamp: -1, TopicID: idIn}},
		{"retention of version 4", func(r *kmsg.OffsetCommitRequest) { r.Version, r.RetentionTimeMillis = 4, 500 }, eventlog.OffsetCommit{Offset: 101, LeaderEpoch: -1, CommitTimestamp: 1_000_000, ExpireTimestamp: 1_000_500}},
		{"no retention of version 4", func(r *kmsg.OffsetCommitRequest) { r.Version, r.RetentionTimeMillis = 4, -1 }, eventlog.OffsetCommit{Offset: 101, LeaderEpoch: -1, CommitTimestamp: 1_000_000, ExpireTimestamp: -1, TopicID: idIn}},
		{"retention for ever", func(r *kmsg.OffsetCommitRequest) { r.Version, r.RetentionTimeMillis = 2, math.MaxInt64 }, eventlog.OffsetCommit{Offset: 101, LeaderEpoch: -1, CommitTimestamp: 1_000_000, ExpireTimestamp: math.MaxInt64}},
		{"retention is not a field of version 5", func(r *kmsg.OffsetCommitRequest) { r.Version, r.RetentionTimeMillis = 5, 500 }, eventlog.OffsetCommit{Offset: 101, LeaderEpoch: -1, CommitTimestamp: 1_000_000, ExpireTimestamp: -1, TopicID: idIn}},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := commitRequest(10, commitTopic("in", idIn, 1))
			c.change(req)
			_, recs, err := NewCommit(req, resolveTest).Run(env(), nil)
			want := []eventlog.Record{{Key: eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: "g", Topic: "in", Partition: 1}, Value: &c.want}}
			if err != nil || !reflect.DeepEqual(recs, want) {
				t.Errorf("records %+v, %v; want %+v", recs, err, want)
			}
		})
	}
}

func TestMetadataIsMeasuredInUTF16Units(t *testing.T) {
	for _, c := range []struct {
		metadata string
		want     int16
	}{
		{strings.Repeat("a", 4096), 0},
		{strings.Repeat("a", 4097), 12},
		{strings.Repeat("世", 4096), 0}, // three bytes, one unit
		{strings.Repeat("世", 4097), 12},
		{strings.Repeat("😀", 2048), 0}, // four bytes, two units
		{strings.Repeat("😀", 2048) + "a", 12},
	} {
		req := commitRequest(10, commitTopic("", idIn, 0, 1))
		req.Topics[0].Partitions[0].Metadata = &c.metadata
		asked := 0
		resp, recs, err := NewCommit(req, resolveTest).Run(env(), func(string, int32) error { asked++; return nil })
		if err != nil || !reflect.DeepEqual(codes(resp), []int16{c.want, 0}) {
			t.Errorf("%d bytes: codes %v, %v", len(c.metadata), codes(resp), err)
		}
		committed := 2
		if c.want != 0 {
			committed = 1
		}
		if len(recs) != committed || asked != committed {
			t.Errorf("%d bytes: %d records, admission asked %d times; want %d", len(c.metadata), len(recs), asked, committed)
		}
	}
}

func TestOneRefusedPartitionFailsTheWholeCommit(t *testing.T) {
	refused := errors.New("stale")
	req := commitRequest(9, commitTopic("in", [16]byte{}, 0, 1), commitTopic("out", [16]byte{}, 0))
	commit := NewCommit(req, resolveTest)
	var asked []TopicPartition
	resp, recs, err := commit.Run(env(), func(topic string, p int32) error {
		asked = append(asked, TopicPartition{topic, p})
		if p == 1 {
			return refused
		}
		return nil
	})
	if err != refused || resp != nil || recs != nil {
		t.Errorf("response %v, records %v, error %v", resp, recs, err)
	}
	if want := []TopicPartition{{"in", 0}, {"in", 1}}; !reflect.DeepEqual(asked, want) {
		t.Errorf("admission asked for %v, want %v (not for what is refused already)", asked, want)
	}
	if got, want := codes(commit.Fail(kerr.StaleMemberEpoch.Code)), []int16{113, 113, 3}; !reflect.DeepEqual(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
}

func TestFailCommitAnswersEveryPartitionInEveryVersion(t *testing.T) {
	for version := int16(0); version <= 10; version++ {
		req := commitRequest(version, commitTopic("in", idIn, 0, 5), commitTopic("out", idOut, 1))
		resp := FailCommit(req, kerr.CoordinatorLoadInProgress.Code)
		if got, want := codes(resp), []int16{14, 14, 14}; !reflect.DeepEqual(got, want) {
			t.Errorf("version %d: codes %v, want %v", version, got, want)
		}
		again := kmsg.NewPtrOffsetCommitResponse()
		again.Version = version
		if err := again.ReadFrom(resp.AppendTo(nil)); err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
		if again.Topics[0].Partitions[1].Partition != 5 || version < 10 && again.Topics[1].Topic != "out" || version >= 10 && again.Topics[1].TopicID != idOut {
			t.Errorf("version %d on the wire: %+v", version, again)
		}
	}
}

func TestCommitThenFetch(t *testing.T) {
	view := &fakeView{}
	req := commitRequest(10, commitTopic("", idIn, 0, 1))
	_, recs, err := NewCommit(req, resolveTest).Run(env(), nil)
	if err != nil {
		t.Fatal(err)
	}
	view.apply(recs)
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = "g"
	resp := Fetch(view, &group, true)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 2 || resp.Topics[0].Partitions[1].Offset != 101 || resp.Topics[0].Partitions[1].LeaderEpoch != 7 {
		t.Errorf("%+v", resp)
	}
	later := env()
	later.Now += (7 * 24 * time.Hour).Milliseconds()
	expired, gone := Expire(later, view, "g", func(string) bool { return false })
	view.apply(expired)
	if !gone || len(view.keys()) != 0 {
		t.Errorf("after the retention: %v left, all gone %v", view.keys(), gone)
	}
}
