package streams

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Kafka error codes that a streams group answers with.
const (
	codeUnknownServerError     int16 = -1
	codeUnknownMember          int16 = 25
	codeUnsupportedVersion     int16 = 35
	codeInvalidRequest         int16 = 42
	codeNonEmptyGroup          int16 = 68
	codeGroupIDNotFound        int16 = 69
	codeGroupMaxSizeReached    int16 = 81
	codeFencedInstanceID       int16 = 82
	codeFencedMemberEpoch      int16 = 110
	codeUnreleasedInstanceID   int16 = 111
	codeStaleMemberEpoch       int16 = 113
	codeStreamsInvalidTopology int16 = 130
)

func refuse(code int16, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// ErrorResponse is the response that carries a refusal: everything else stays at its default, the status list is
// empty, the task lists are null.
func ErrorResponse(version int16, e *Error) *kmsg.StreamsGroupHeartbeatResponse {
	r := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	r.Version, r.ErrorCode, r.Status = version, e.Code, noStatus
	if e.Message != "" {
		r.ErrorMessage = kmsg.StringPtr(e.Message)
	}
	return r
}

// Validate checks what can be checked of a heartbeat without looking at any state, in the order of Kafka 4.4
// (GroupCoordinatorService); nil is valid. "Empty" means blank. After Kafka's own rules come those that Kafka does not state and
// fails on: see validateSense.
func Validate(req *kmsg.StreamsGroupHeartbeatRequest) *Error {
	if usesRegex(req.Topology) {
		return refuse(codeInvalidRequest, "Regular expressions for source topics are not supported yet.")
	}
	switch {
	case blank(req.MemberID):
		return refuse(codeInvalidRequest, "MemberId can't be empty.")
	case blank(req.Group):
		return refuse(codeInvalidRequest, "GroupId can't be empty.")
	case req.InstanceID != nil && blank(*req.InstanceID):
		return refuse(codeInvalidRequest, "InstanceId can't be empty.")
	case req.RackID != nil && blank(*req.RackID):
		return refuse(codeInvalidRequest, "RackId can't be empty.")
	}
	switch {
	case req.MemberEpoch == epochJoin:
		if err := validateJoin(req); err != nil {
			return err
		}
	case req.MemberEpoch == epochStaticLeft && req.InstanceID == nil:
		return refuse(codeInvalidRequest, "InstanceId can't be null.")
	case req.MemberEpoch < epochStaticLeft:
		return refuse(codeInvalidRequest, "MemberEpoch is %d, but must be greater than or equal to %d.", req.MemberEpoch, epochStaticLeft)
	}
	if some, all := owns(req); some && !all {
		return refuse(codeInvalidRequest, "If one task-type is non-null, all must be non-null.")
	}
	if req.MemberEpoch != epochJoin && req.Topology != nil {
		return refuse(codeInvalidRequest, "Topology can only be provided when (re-)joining.")
	}
	return validateSense(req)
}

func validateJoin(req *kmsg.StreamsGroupHeartbeatRequest) *Error {
	const notGiven = -1
	if req.RebalanceTimeoutMillis == notGiven {
		return refuse(codeInvalidRequest, "RebalanceTimeoutMs must be provided in first request.")
	}
	for _, l := range []struct {
		name string
		ids  []kmsg.TaskIDs
	}{{"ActiveTasks", req.ActiveTasks}, {"StandbyTasks", req.StandbyTasks}, {"WarmupTasks", req.WarmupTasks}} {
		if l.ids == nil || len(l.ids) > 0 {
			return refuse(codeInvalidRequest, "%s must be empty when (re-)joining.", l.name)
		}
	}
	if req.Topology == nil {
		return refuse(codeInvalidRequest, "Topology must be non-null when (re-)joining.")
	}
	for _, s := range req.Topology.Subtopologies {
		for _, t := range s.StateChangelogTopics {
			if t.NumPartitions != 0 {
				return refuse(codeStreamsInvalidTopology, "Changelog topic %s must have an undefined partition count, but it is set to %d.", t.Topic, t.NumPartitions)
			}
		}
	}
	return nil
}

func usesRegex(t *kmsg.StreamsGroupHeartbeatRequestTopology) bool {
	if t == nil {
		return false
	}
	for _, s := range t.Subtopologies {
		if len(s.SourceTopicRegex) > 0 {
			return true
		}
	}
	return false
}

// owns says whether some and whether all three lists of owned tasks are given.
func owns(req *kmsg.StreamsGroupHeartbeatRequest) (some, all bool) {
	a, s, w := req.ActiveTasks != nil, req.StandbyTasks != nil, req.WarmupTasks != nil
	return a || s || w, a && s && w
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
