package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// beaten is the outcome of a heartbeat.
type beaten struct {
	epoch int32 // that was sent
	told  *Tasks
	sent  time.Time
	resp  *kmsg.StreamsGroupHeartbeatResponse
	err   error
}

// startBeat sends the heartbeat of the phase.
func (s *session) startBeat(now time.Time) {
	var req *kmsg.StreamsGroupHeartbeatRequest
	b := beaten{sent: now}
	switch {
	case s.phase == goodbye:
		req = s.m.base(s.farewellEpoch(), s.endpointEpoch)
	case s.m.Epoch() == joining:
		req = s.m.join(s.endpointEpoch)
		s.everSent = true
	default:
		req = s.m.base(s.m.Epoch(), s.endpointEpoch)
		if s.told == nil || !s.told.Equal(s.owned) {
			owned := s.owned
			b.told = &owned
			req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = tasksToWire(owned.Active), tasksToWire(owned.Standby), tasksToWire(owned.Warmup)
		}
	}
	if f := s.m.cfg.TaskOffsets; f != nil && s.phase != goodbye && !now.Before(s.offsetsAt) {
		offsets, ends := f(s.owned.clone())
		req.TaskOffsets, req.TaskEndOffsets = taskOffsetsToWire(offsets), taskOffsetsToWire(ends)
		s.offsetsAt = now.Add(s.offsetsInterval)
	}
	b.epoch = req.MemberEpoch
	s.urgent = false
	node := *s.node
	s.beating = true
	ctx, cancel := context.WithTimeout(s.work, requestTimeout)
	s.beatCancel = cancel
	s.requests.Go(func() {
		defer cancel()
		kresp, err := s.m.net.request(ctx, node, heartbeat{req})
		if b.err = err; err == nil {
			b.resp = kresp.(*kmsg.StreamsGroupHeartbeatResponse)
			b.err = refusal(b.resp.ErrorCode, b.resp.ErrorMessage)
		}
		s.beats <- b
	})
}

func (s *session) onBeaten(b beaten, now time.Time) {
	s.beating = false
	switch s.phase {
	case goodbye:
		s.onFarewell(b, now)
		return
	case fenced, expelled: // what was sent before has nothing to say any more
		return
	}
	if b.err != nil {
		s.onBeatFailed(b.err, now)
		return
	}
	s.settled()
	s.untroubled(now)
	s.beatFailures = 0
	s.m.setEpoch(b.resp.MemberEpoch)
	if s.phase == entering {
		s.phase = inGroup
		s.m.log.Info("joined", "epoch", b.resp.MemberEpoch)
	}
	if b.told != nil {
		s.told = b.told
	}
	// What an older broker does not say stays as it is.
	if ms := b.resp.HeartbeatIntervalMillis; ms >= 1 {
		s.interval = time.Duration(ms) * time.Millisecond
	}
	if ms := b.resp.TaskOffsetIntervalMillis; ms >= 1 {
		s.offsetsInterval = time.Duration(ms) * time.Millisecond
	}
	s.endpointEpoch = b.resp.EndpointInformationEpoch
	if s.beatAt = b.sent.Add(s.interval); s.urgent {
		s.beatAt = now
	}
	if r := b.resp; r.ActiveTasks != nil && r.StandbyTasks != nil && r.WarmupTasks != nil {
		s.target = &Tasks{tasksFromWire(r.ActiveTasks), tasksFromWire(r.StandbyTasks), tasksFromWire(r.WarmupTasks)}
	}
	// The wish stands also if a later answer does not repeat it: only one member is asked, once in a while.
	if b.resp.TopologyDescriptionRequired && s.m.description != nil {
		s.push.wanted = true
	}
	s.onStatuses(remarks(b.resp.Status), now)
}

// onStatuses reports remarks that have changed and ends the member where Kafka Streams would end the application.
func (s *session) onStatuses(now []Status, at time.Time) {
	if !slices.Equal(now, s.statuses) {
		for _, r := range now {
			s.m.log.Info("the coordinator remarks", "status", r)
		}
		if s.m.cfg.Status != nil {
			s.m.cfg.Status(slices.Clone(now))
		}
	}
	s.statuses = now
	missing := false
	for _, r := range now {
		switch r.Code {
		case StatusShutdownApplication, StatusIncorrectlyPartitionedTopics:
			s.part(&StatusError{r})
		case StatusMissingSourceTopics: // someone may be creating them
			missing = true
			if s.missingSince.IsZero() {
				s.missingSince = at
			} else if at.Sub(s.missingSince) >= 2*s.interval {
				s.part(&StatusError{r})
			}
		}
	}
	if !missing {
		s.missingSince = time.Time{}
	}
}

// onBeatFailed is Kafka's table of heartbeat errors: enter again, try again, or end.
func (s *session) onBeatFailed(err error, now time.Time) {
	s.told = nil // the coordinator may not have heard it: with its tasks a member whose answer was lost is taken for what it is
	again, elsewhere := moved(err)
	switch {
	case errors.Is(err, kerr.UnknownMemberID), errors.Is(err, kerr.FencedMemberEpoch):
		s.settled()
		s.untroubled(now)
		s.beatFailures = 0
		s.m.log.Info("thrown out of the group", "err", err)
		s.m.thrownOut()
		s.push.wanted, s.push.failures = false, 0
		if s.phase == parting {
			s.phase = expelled // nothing to leave
		} else {
			s.phase = fenced
		}
	case elsewhere: // asked as soon as it is found
		s.beatAt = now
		s.forgetCoordinator(now)
		s.troubled(now, "the coordinator has moved", err)
	case again:
		s.beatFailures++
		s.beatAt = now.Add(retryDelay(s.beatFailures))
		s.troubled(now, "heartbeat refused", err)
	case errors.Is(err, kerr.TopicAuthorizationFailed): // somebody has to allow it
		s.beatFailures++
		s.beatAt = now.Add(retryDelay(s.beatFailures))
		s.trouble.lasts = true
		s.troubled(now, "heartbeat refused", err)
	case hopeless(err), refused(err):
		if errors.Is(err, kerr.UnsupportedVersion) {
			err = fmt.Errorf("the cluster does not support the streams group protocol in a version that this client speaks (0 to 1): %w", err)
		}
		s.expel(fmt.Errorf("heartbeat of member %s of group %q: %w", s.m.id, s.m.cfg.Group, err))
	default: // no answer
		s.beatFailures++
		s.beatAt = now.Add(retryDelay(s.beatFailures))
		s.forgetCoordinator(now)
		s.troubled(now, "heartbeat not answered", err)
	}
}

// refused says that the coordinator has answered, and said no.
func refused(err error) bool {
	var e *Error
	return errors.As(err, &e)
}

// farewellEpoch is what a member says when it goes.
func (s *session) farewellEpoch() int32 {
	if s.m.cfg.InstanceID != "" && s.m.cfg.OnLeave != LeaveTheGroup {
		return leavingForNow
	}
	return leaving
}

// farewell says goodbye, if the group may know us and is to be told.
func (s *session) farewell(now time.Time) {
	if !s.everSent || s.m.cfg.InstanceID == "" && s.m.cfg.OnLeave == RemainInTheGroup {
		s.phase = over
		return
	}
	if s.beating {
		s.beatCancel() // its outcome makes room for the last one
	}
	s.phase, s.beatAt, s.farewellUntil = goodbye, now, now.Add(goodbyeTimeout)
}

func (s *session) onFarewell(b beaten, now time.Time) {
	if b.epoch >= joining {
		return // the heartbeat before: the last one is still to be sent
	}
	again, elsewhere := moved(b.err)
	switch {
	case b.err == nil:
		s.m.log.Info("left the group")
		s.phase = over
	case hopeless(b.err), refused(b.err) && !again:
		s.m.log.Info("the group was left already", "err", b.err)
		s.phase = over
	default:
		s.beatFailures++
		s.beatAt = now.Add(retryDelay(s.beatFailures))
		if elsewhere || !again {
			s.forgetCoordinator(now)
		}
	}
}
