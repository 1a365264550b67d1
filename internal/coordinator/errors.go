package coordinator

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"streamkeeper/eventlog"
	"streamkeeper/projection"
	"streamkeeper/shard"
	"streamkeeper/shard/streams"
)

// Kafka error codes that the coordinator gives by name in more than one place.
var (
	codeNotCoordinator = kerr.NotCoordinator.Code              // 16
	codeLoading        = kerr.CoordinatorLoadInProgress.Code   // 14
	codeUnavailable    = kerr.CoordinatorNotAvailable.Code     // 15
	codeInternal       = kerr.UnknownServerError.Code          // -1
	codeInvalidGroup   = kerr.InvalidGroupID.Code              // 24
	codeNoGroup        = kerr.GroupIDNotFound.Code             // 69
	codeNoTopic        = kerr.UnknownTopicOrPartition.Code     // 3
	codeNoTopicID      = kerr.UnknownTopicID.Code              // 100
	codeTimedOut       = kerr.RequestTimedOut.Code             // 7
	codeUnsupported    = kerr.UnsupportedVersion.Code          // 35
	codeBrokerInUse    = kerr.DuplicateBrokerRegistration.Code // 101
	codeNoBroker       = kerr.BrokerIDNotRegistered.Code       // 102
	codeBadTopology    = kerr.StreamsInvalidTopology.Code      // 130
)

// failure is what a client is told: a Kafka error code and a text ("": null). Unexpected says that it is none of the errors
// that a running system produces, so it is worth a line in the log.
type failure struct {
	Code       int16
	Message    string
	Unexpected bool
}

// failureOf is the one table from our errors to Kafka's codes (Kafka 4.4's CoordinatorOperationExceptionHelper, with
// our causes). Texts of refusals of the group itself go to the client; what we say to ourselves stays in our log.
func failureOf(err error) failure {
	var refusal *streams.Error
	switch {
	case errors.As(err, &refusal):
		return failure{Code: refusal.Code, Message: refusal.Message}

	// Somebody else's group: the client looks the coordinator up again.
	case errors.Is(err, shard.ErrNotOwner), errors.Is(err, eventlog.ErrFenced):
		return failure{Code: codeNotCoordinator}

	// Ours, not now: the client asks here again after its back-off. The upstream cluster being away belongs here, because
	// the answer of a lookup would be the same.
	case errors.Is(err, shard.ErrLoading), errors.Is(err, ErrTopicsUnknown), errors.Is(err, shard.ErrConverting):
		return failure{Code: codeLoading}

	// The projection's disk is full, or it is read again: that passes too, and the projection says so in the log. As an unknown error it
	// would end every application that starts meanwhile.
	case errors.Is(err, projection.ErrLoading), errors.Is(err, projection.ErrStorage), errors.Is(err, projection.ErrClosed):
		return failure{Code: codeLoading}

	// The write may be in the log or not: the client repeats it.
	case errors.Is(err, eventlog.ErrOutcomeUnknown), errors.Is(err, eventlog.ErrClosed):
		return failure{Code: codeUnavailable}
	case errors.Is(err, shard.ErrUnavailable):
		return failure{Code: codeUnavailable}
	// What this replica would say may be from long ago, and another may read the partition: the client asks again, there or here.
	case errors.Is(err, shard.ErrBlind):
		return failure{Code: codeUnavailable}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return failure{Code: codeUnavailable}

	case errors.Is(err, eventlog.ErrRefused):
		// The partition can't be served by this program; another replica, newer, may. The shard says so in the log, once and not for
		// every request.
		return failure{Code: codeUnavailable}
	case errors.Is(err, shard.ErrTooLarge), errors.Is(err, eventlog.ErrTooLarge):
		return failure{Code: codeInternal, Unexpected: true}
	}
	return failure{Code: codeInternal, Unexpected: true}
}

// fetchFailureOf is failureOf for an OffsetFetch with RequireStable: there Kafka answers NOT_COORDINATOR where a write was not
// acknowledged in time, and not COORDINATOR_NOT_AVAILABLE.
func fetchFailureOf(err error, requireStable bool) failure {
	f := failureOf(err)
	if requireStable && (errors.Is(err, eventlog.ErrOutcomeUnknown) || errors.Is(err, context.DeadlineExceeded)) {
		f.Code = codeNotCoordinator
	}
	return f
}

// text is the message as the wire has it: null where there is none.
func (f failure) text() *string {
	if f.Message == "" {
		return nil
	}
	return &f.Message
}
