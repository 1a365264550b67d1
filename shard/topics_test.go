package shard

import (
	"testing"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/shard/offsets"
)

func TestOffsetsOfDeletedTopicsAreForgottenInTheLog(t *testing.T) {
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) {
		r := serving(t, log, start)
		epoch := r.join(t, "g", "m").MemberEpoch
		if err := r.commit("g", "m", epoch, 3); err != nil {
			t.Fatal(err)
		}
		forget := func(gone func(offsets.TopicRef) bool, before time.Time) int {
			t.Helper()
			judged, err := r.ForgetTopics(t.Context(), 0, []string{"g"}, gone, before)
			if err != nil || len(judged) != 1 || judged[0].Err != nil {
				t.Fatal(judged, err)
			}
			return judged[0].Offsets
		}
		named := func(name string) func(offsets.TopicRef) bool {
			return func(ref offsets.TopicRef) bool { return ref.Name == name }
		}
		if n := forget(named("in"), time.Now()); n != 0 {
			t.Errorf("%d offsets removed that were committed when it was asked, or later", n)
		}
		time.Sleep(time.Second) // the bubble's clock: commit times are in milliseconds
		if n := forget(named("out"), time.Now()); n != 0 {
			t.Errorf("%d offsets of a topic that nobody deleted removed", n)
		}
		if n := forget(named("in"), time.Now()); n != 1 {
			t.Errorf("%d offsets removed, want 1", n)
		}
		if got, err := r.fetched("g"); err != nil || got != -1 {
			t.Errorf("offset %d, %v after the topic is gone", got, err)
		}
		if n := forget(named("in"), time.Now()); n != 0 {
			t.Errorf("%d offsets removed twice", n)
		}
		entries := log.Entries(0)
		last, err := eventlog.Decode(eventlog.Raw{Key: entries[len(entries)-1].Key, Value: entries[len(entries)-1].Value})
		want := eventlog.Key{Type: eventlog.TypeOwnership}
		if err != nil || last.Key != want { // of the fetch's barrier
			t.Errorf("the last record is %v, %v", last.Key, err)
		}
		tomb, err := eventlog.Decode(eventlog.Raw{Key: entries[len(entries)-2].Key, Value: entries[len(entries)-2].Value})
		if want := (eventlog.Key{Type: eventlog.TypeOffsetCommit, Group: "g", Topic: "in"}); err != nil || tomb.Key != want || tomb.Value != nil {
			t.Errorf("before it %v, %v; want the tombstone of %v", tomb, err, want)
		}
		if _, err := r.beat("g", "m", epoch); err != nil {
			t.Errorf("the running group: %v", err)
		}
		if n, err := r.ForgetTopics(t.Context(), 0, []string{"nobody"}, named("in"), time.Now()); err != nil || len(n) != 1 || n[0] != (Judged{}) {
			t.Errorf("a group that is not there: %v, %v", n, err)
		}
	})
}
