package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/shard/streams"
)

// creationTimeout is what the controller is given for one request: request.timeout.ms of a Kafka broker.
const creationTimeout = 30 * time.Second

var (
	// errTopicExists: there is a topic of that name.
	errTopicExists = errors.New("the topic exists")
	// errNotAllowed: the cluster does not let us create it.
	errNotAllowed = errors.New("not allowed to create the topic")
	// errNoAnswer: the cluster could not be asked, or did not answer; whether the topic was created is unknown.
	errNoAnswer = errors.New("no answer from the cluster")
)

// creationError is a cluster's refusal of one topic.
type creationError struct {
	code int16
	text string // for people, never empty
}

func (e *creationError) Error() string { return e.text }

// Is makes the codes that are treated apart known by their sentinels. A cluster before Kafka 2.0 refuses with the code of
// the cluster's own right.
func (e *creationError) Is(target error) bool {
	switch target {
	case errTopicExists:
		return e.code == kerr.TopicAlreadyExists.Code
	case errNotAllowed:
		return e.code == kerr.TopicAuthorizationFailed.Code || e.code == kerr.ClusterAuthorizationFailed.Code
	}
	return false
}

// clientText is what a client is told of an error: the cluster's own text, but not what our connection to it met.
func clientText(err error) string {
	var refusal *creationError
	if errors.As(err, &refusal) {
		return refusal.text
	}
	return "The cluster did not answer."
}

// UpstreamCreator creates topics at the cluster's controller, with our own identity.
type UpstreamCreator struct {
	// Client finds the controller; *kgo.Client does.
	Client kmsg.Requestor
}

// CreateTopics implements TopicCreator.
func (u UpstreamCreator) CreateTopics(ctx context.Context, topics []streams.CreatableTopic) []error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(creationTimeout.Milliseconds())
	for _, t := range topics {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = t.Name, t.Partitions, t.ReplicationFactor
		for _, kv := range t.Configs {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = kv.Key, kmsg.StringPtr(kv.Value)
			rt.Configs = append(rt.Configs, c)
		}
		req.Topics = append(req.Topics, rt)
	}
	errs := make([]error, len(topics))
	resp, err := req.RequestWith(ctx, u.Client)
	if err != nil {
		for i := range errs {
			errs[i] = fmt.Errorf("%w: %w", errNoAnswer, err)
		}
		return errs
	}
	answers := make(map[string]*kmsg.CreateTopicsResponseTopic, len(resp.Topics))
	for i := range resp.Topics {
		answers[resp.Topics[i].Topic] = &resp.Topics[i]
	}
	for i, t := range topics {
		errs[i] = creationErrorOf(answers[t.Name])
	}
	return errs
}

func creationErrorOf(answer *kmsg.CreateTopicsResponseTopic) error {
	switch {
	case answer == nil:
		return fmt.Errorf("%w about this topic", errNoAnswer)
	case answer.ErrorCode == 0:
		return nil
	}
	e := &creationError{code: answer.ErrorCode, text: kerr.TypedErrorForCode(answer.ErrorCode).Description}
	if answer.ErrorMessage != nil && *answer.ErrorMessage != "" {
		e.text = *answer.ErrorMessage
	}
	return e
}
