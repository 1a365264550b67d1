package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/streams"
)

const (
	// creationFailuresMax bounds the failures that are remembered, as in Kafka 4.4 (ExpiringErrorCache): the one that ends first
	// is forgotten first, and its topic is tried again early.
	creationFailuresMax = 1000
	// creationFailuresTold is how many failures one status tells, as in Kafka 4.4: a status is read by people.
	creationFailuresTold = 3
	// statusMissingInternalTopics is the status that tells of missing internal topics (StreamsGroupHeartbeatResponse.Status).
	statusMissingInternalTopics int8 = 3
)

// creationFailure is why a topic was not created.
type creationFailure struct {
	text    string
	refused bool      // for want of the right to create it
	retryAt time.Time // until then it is not tried again
}

// creationFailures remembers what failed last, by topic. The zero value is empty.
type creationFailures struct{ byTopic map[string]creationFailure }

// put remembers a failure; the earlier one of the topic is forgotten.
func (f *creationFailures) put(topic string, failure creationFailure) {
	if f.byTopic == nil {
		f.byTopic = map[string]creationFailure{}
	}
	f.byTopic[topic] = failure
	if len(f.byTopic) <= creationFailuresMax {
		return
	}
	first := ""
	for name, x := range f.byTopic {
		if y := f.byTopic[first]; first == "" || x.retryAt.Before(y.retryAt) || x.retryAt.Equal(y.retryAt) && name < first {
			first = name
		}
	}
	delete(f.byTopic, first)
}

func (f *creationFailures) remove(topic string) { delete(f.byTopic, topic) }

// held says that the topic must not be tried now.
func (f *creationFailures) held(now time.Time, topic string) bool {
	return f.byTopic[topic].retryAt.After(now)
}

// of returns what to tell of the topics, in their order: the names of those that we may not create, and the failures of others
// as "topic (text)". A failure is told until it ends; a refusal also while the topic is being tried again, for Kafka
// tells that at every heartbeat.
func (f *creationFailures) of(now time.Time, topics []streams.CreatableTopic, busy func(string) bool) (refused, failed []string) {
	if len(f.byTopic) == 0 {
		return nil, nil
	}
	for _, t := range topics {
		x, ok := f.byTopic[t.Name]
		switch {
		case !ok:
		case x.refused && (x.retryAt.After(now) || busy(t.Name)):
			refused = append(refused, t.Name)
		case !x.refused && x.retryAt.After(now):
			failed = append(failed, fmt.Sprintf("%s (%s)", t.Name, x.text))
		}
	}
	return refused, failed
}

// withRefused tells of the topics that may not be created (KafkaApis): at the end of status 3, which is added if there is none.
func withRefused(statuses []kmsg.StreamsGroupHeartbeatResponseStatus, topics []string) []kmsg.StreamsGroupHeartbeatResponseStatus {
	text := "Unauthorized to CREATE on topics " + strings.Join(topics, ", ") + "."
	if list, ok := appended(statuses, text); ok {
		return list
	}
	s := kmsg.NewStreamsGroupHeartbeatResponseStatus()
	s.StatusCode, s.StatusDetail = statusMissingInternalTopics, text
	return append(slices.Clone(statuses), s)
}

// withFailed tells of the topics that could not be created, a few of them, at the end of status 3 if there is one.
func withFailed(statuses []kmsg.StreamsGroupHeartbeatResponseStatus, failures []string) []kmsg.StreamsGroupHeartbeatResponseStatus {
	text := strings.Join(failures[:min(len(failures), creationFailuresTold)], ", ")
	if more := len(failures) - creationFailuresTold; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if list, ok := appended(statuses, "Creation failed: "+text+"."); ok {
		return list
	}
	return statuses
}

// appended is a copy with the text at the end of status 3.
func appended(statuses []kmsg.StreamsGroupHeartbeatResponseStatus, text string) ([]kmsg.StreamsGroupHeartbeatResponseStatus, bool) {
	i := slices.IndexFunc(statuses, func(s kmsg.StreamsGroupHeartbeatResponseStatus) bool {
		return s.StatusCode == statusMissingInternalTopics
	})
	if i < 0 {
		return nil, false
	}
	list := slices.Clone(statuses)
	list[i].StatusDetail += "; " + text
	return list, true
}
