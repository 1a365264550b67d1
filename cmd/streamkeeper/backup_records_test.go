package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
)

// Refusals and marks of conversions come back as they were, of each key the last value that counts: what a replaced owner wrote later is in the log,
// and neither in a backup nor in what is made of it.
func TestBackupOfRefusalsMarksAndVoidRecords(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	log, err := eventlog.OpenKafka(t.Context(), eventlog.KafkaConfig{SeedBrokers: c.ListenAddrs(), Topic: "__streams_groups", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	w, err := log.Claim(t.Context(), 0, eventlog.Ownership{Format: eventlog.OwnershipFormat, NodeID: 1000001, Address: "r1:9292", Instance: "one"})
	if err != nil {
		t.Fatal(err)
	}
	refusal := eventlog.Key{Type: eventlog.TypeDescriptionRefusal, Group: "refused"}
	mark := eventlog.Key{Type: eventlog.TypeGroup, Group: "leaving"}
	offset := eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: "leaving", Topic: "in"}
	group := func(epoch int32, c eventlog.Conversion) *eventlog.Group {
		return &eventlog.Group{Epoch: epoch, ValidatedTopologyEpoch: 1, StoredDescriptionTopologyEpoch: eventlog.EpochNone, FailedDescriptionTopologyEpoch: eventlog.EpochNone, Conversion: c}
	}
	commit := func(at int64) *eventlog.OffsetCommit {
		return &eventlog.OffsetCommit{Offset: at, LeaderEpoch: -1, CommitTimestamp: 1_700_000_000_000, ExpireTimestamp: -1}
	}
	refused := func(why string) *eventlog.DescriptionRefusal {
		return &eventlog.DescriptionRefusal{Format: eventlog.DescriptionRefusalFormat, TopologyEpoch: 3, Plugin: "http", Member: "m1", Reason: why, Timestamp: 1_700_000_000_000}
	}
	failed := group(2, eventlog.ConversionNone)
	failed.FailedDescriptionTopologyEpoch = 3
	valid := []eventlog.Record{
		{Key: refusal, Value: refused(`too "large"`)}, {Key: eventlog.Key{Type: eventlog.TypeGroup, Group: "refused"}, Value: failed},
		{Key: mark, Value: group(7, eventlog.ConversionCopied)}, {Key: offset, Value: commit(5)},
	}
	outdated := []eventlog.Record{{Key: mark, Value: group(6, eventlog.ConversionBegun)}, {Key: offset, Value: commit(4)}}
	for _, records := range [][]eventlog.Record{outdated, valid} {
		written := make(chan error, 1)
		var raw []eventlog.Raw
		for _, r := range records {
			raw = append(raw, eventlog.Encode(r))
		}
		w.Append(time.Now().UnixMilli(), raw, func(_ int64, err error) { written <- err })
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
	// Records that the cluster takes, and that are of no owner: the last of their keys.
	plain, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.DisableIdempotentWrite(), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	void := []eventlog.Record{{Key: refusal, Value: refused("void")}, {Key: mark, Value: group(9, eventlog.ConversionNone)}, {Key: offset, Value: commit(99)}}
	for _, r := range void {
		raw := eventlog.Encode(r)
		if err := plain.ProduceSync(t.Context(), &kgo.Record{Topic: "__streams_groups", Key: raw.Key, Value: raw.Value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}

	s := &serving{t, strings.Join(c.ListenAddrs(), ","), t.TempDir()}
	first, second := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "second")
	for _, args := range [][]string{
		{"backup", "--bootstrap-servers", s.upstream, "--to", first},
		{"restore", "--bootstrap-servers", s.upstream, "--from", first, "--log-topic", "__other"},
		{"backup", "--bootstrap-servers", s.upstream, "--log-topic", "__other", "--to", second},
	} {
		if out, code := s.run(args...); code != 0 {
			t.Fatalf("%v: %d %s", args, code, out)
		}
	}
	want := map[string]string{}
	for _, r := range valid {
		raw := eventlog.Encode(r)
		want["0"+string(raw.Key)] = string(raw.Value)
	}
	for _, file := range []string{first, second} {
		if got := contents(t, file); !equal(got, want) {
			t.Errorf("%s has\n%q, want\n%q", filepath.Base(file), got, want)
		}
	}
}
