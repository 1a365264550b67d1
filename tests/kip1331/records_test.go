package kip1331

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/eventlog"
)

// records are all records of both logs so far, by group, in the order of the log, as text.
type records struct{ kafka, keeper map[string][]string }

// readLogs reads both logs to their ends.
func (w *world) readLogs(t *testing.T) records {
	t.Helper()
	return records{kafka: readLog(t, w.kafka.Bootstrap(), "__consumer_offsets"), keeper: readLog(t, w.keeper.Bootstrap(), w.keeper.LogTopic())}
}

// readTimeout bounds the reading of a log of some thousand records.
const readTimeout = time.Minute

func readLog(t *testing.T, bootstrap, topic string) map[string][]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readTimeout)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	for _, o := range ends[topic] {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	}
	byGroup := map[string][]string{}
	for len(left) > 0 {
		fetched := cl.PollFetches(ctx)
		if err := errors.Join(errorsOf(fetched)...); err != nil {
			t.Fatalf("read %s at %s: %v", topic, bootstrap, err)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			if group, text := recordText(t, r); group != "" {
				byGroup[group] = append(byGroup[group], text)
			}
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return byGroup
}

func errorsOf(f kgo.Fetches) []error {
	var errs []error
	for _, e := range f.Errors() {
		errs = append(errs, e.Err)
	}
	return errs
}

// recordText prints a record without what differs from cluster to cluster: times, topic ids, and the hash over them.
func recordText(t *testing.T, r *kgo.Record) (group, text string) {
	t.Helper()
	rec, err := eventlog.Decode(eventlog.Raw{Key: r.Key, Value: r.Value})
	if err != nil {
		t.Fatalf("record %d of %s-%d: %v", r.Offset, r.Topic, r.Partition, err)
	}
	switch v := rec.Value.(type) {
	case *eventlog.Group:
		v.MetadataHash = 0
	case *eventlog.OffsetCommit:
		v.CommitTimestamp, v.TopicID = 0, [16]byte{}
	case *eventlog.TargetAssignment:
		v.AssignmentTimestamp = 0
	}
	value, err := json.Marshal(rec.Value)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Key.Group, fmt.Sprintf("%s %s%s %s", rec.Key.Type, rec.Key.Member, rec.Key.Topic, value)
}

// same compares the records of a group, one by one.
func (r records) same(p *pair, group string) []string {
	p.t.Helper()
	theirs, ours := r.kafka[group], r.keeper[group]
	if !slices.Equal(theirs, ours) {
		a, b := unequal(strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
		p.errorf("records of %s differ\n--- Kafka ---\n%s\n--- streamkeeper ---\n%s", group, a, b)
	}
	return theirs
}

// epochs are the stored and failed description epochs of a group's records of type 17, "stored/failed", each said once in a row.
func epochs(lines []string) []string {
	var found []string
	for _, l := range lines {
		rest, ok := strings.CutPrefix(l, eventlog.TypeGroup.String()+" ")
		if !ok {
			continue
		}
		text := "gone"
		if rest = strings.TrimSpace(rest); rest != "null" {
			var g eventlog.Group
			if err := json.Unmarshal([]byte(rest), &g); err != nil {
				panic(err)
			}
			text = fmt.Sprintf("%d/%d", g.StoredDescriptionTopologyEpoch, g.FailedDescriptionTopologyEpoch)
		}
		if len(found) == 0 || found[len(found)-1] != text {
			found = append(found, text)
		}
	}
	return found
}
