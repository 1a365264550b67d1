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

// readLogs reads on in both logs, to their ends.
func (w *world) readLogs(t *testing.T) records {
	t.Helper()
	if w.readers == nil {
		w.readers = &readers{theirs: newReader(t, w.kafka.Bootstrap(), "__consumer_offsets"), ours: newReader(t, w.keeper.Bootstrap(), w.keeper.LogTopic())}
	}
	w.readers.theirs.read(t)
	w.readers.ours.read(t)
	return records{kafka: w.readers.theirs.groups, keeper: w.readers.ours.groups}
}

type readers struct{ theirs, ours *reader }

// reader has read a log up to some offsets.
type reader struct {
	cl     *kgo.Client
	topic  string
	next   map[int32]int64
	groups map[string][]string
}

func newReader(t *testing.T, bootstrap, topic string) *reader {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	return &reader{cl: cl, topic: topic, next: map[int32]int64{}, groups: map[string][]string{}}
}

// readTimeout bounds the reading of a log of some thousand records.
const readTimeout = time.Minute

func (r *reader) read(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readTimeout)
	defer cancel()
	ends, err := kadm.NewClient(r.cl).ListEndOffsets(ctx, r.topic)
	if err != nil {
		t.Fatal(err)
	}
	behind := func() bool {
		for _, o := range ends[r.topic] {
			if o.Offset > r.next[o.Partition] {
				return true
			}
		}
		return false
	}
	for behind() {
		fetched := r.cl.PollFetches(ctx)
		if err := errors.Join(errorsOf(fetched)...); err != nil {
			t.Fatalf("read %s: %v", r.topic, err)
		}
		fetched.EachRecord(func(rec *kgo.Record) {
			r.next[rec.Partition] = rec.Offset + 1
			if group, text := recordText(t, rec); group != "" {
				r.groups[group] = append(r.groups[group], text)
			}
		})
	}
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
	if rec.Key.Type >= eventlog.TypeOwnership { // types of our own, which Kafka's tools skip
		return "", ""
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

// same compares the records of a group, one by one. Kafka writes a group's record again where an outcome changes nothing (a description
// that is refused for good twice); we do not.
func (r records) same(p *pair, group string) []string {
	p.t.Helper()
	theirs, ours := withoutRepeats(r.kafka[group]), withoutRepeats(r.keeper[group])
	if !slices.Equal(theirs, ours) {
		a, b := unequal(strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
		p.errorf("records of %s differ\n--- Kafka ---\n%s\n--- streamkeeper ---\n%s", group, a, b)
	}
	return theirs
}

// withoutRepeats leaves out a group's records of type 17 that say what the one before them says.
func withoutRepeats(lines []string) []string {
	var kept []string
	last := ""
	for _, l := range lines {
		if strings.HasPrefix(l, eventlog.TypeGroup.String()+" ") {
			if l == last {
				continue
			}
			last = l
		}
		kept = append(kept, l)
	}
	return kept
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
