package client

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestJoinBeatLeave(t *testing.T) {
	living(t, func(c *MemberConfig) {
		c.RackID, c.Tags, c.Endpoint, c.RebalanceTimeout = "r", map[string]string{"b": "2", "a": "1"}, &Endpoint{"h", 7}, time.Minute
	}, func(l *life) {
		x := l.beat()
		want := kmsg.NewStreamsGroupHeartbeatRequest()
		want.Group, want.MemberID, want.EndpointInformationEpoch, want.RebalanceTimeoutMillis = "g", l.m.ID(), -1, 60000
		want.RackID, want.ProcessID = kmsg.StringPtr("r"), kmsg.StringPtr("process")
		want.UserEndpoint = &kmsg.StreamsGroupHeartbeatRequestUserEndpoint{Host: "h", Port: 7}
		want.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{{Key: "a", Value: "1"}, {Key: "b", Value: "2"}}
		want.Topology = &kmsg.StreamsGroupHeartbeatRequestTopology{Subtopologies: []kmsg.StreamsGroupHeartbeatRequestTopologySubtopology{{SubtopologyID: "0", SourceTopics: []string{"in"}}}}
		want.ActiveTasks, want.StandbyTasks, want.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		want.TaskOffsets, want.TaskEndOffsets = []kmsg.TaskOffset{}, []kmsg.TaskOffset{}
		if !reflect.DeepEqual(*x.beat(), want) {
			t.Fatalf("join\n%+v\nwant\n%+v", *x.beat(), want)
		}
		if l.m.Epoch() != 0 || !l.m.Tasks().Empty() {
			t.Errorf("epoch %d, tasks %v before the join", l.m.Epoch(), l.m.Tasks())
		}
		x.ok(1, assigned(), func(r *kmsg.StreamsGroupHeartbeatResponse) { r.EndpointInformationEpoch = 4 })

		// The empty assignment is acknowledged at once, then only what has changed is said.
		plain := func(epoch int32) kmsg.StreamsGroupHeartbeatRequest {
			r := kmsg.NewStreamsGroupHeartbeatRequest()
			r.Group, r.MemberID, r.MemberEpoch, r.EndpointInformationEpoch = "g", l.m.ID(), epoch, 4
			return r
		}
		answer := func(r *kmsg.StreamsGroupHeartbeatResponse) { r.EndpointInformationEpoch = 4 }
		x = l.beat()
		want = plain(1)
		want.ActiveTasks, want.StandbyTasks, want.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
		if !reflect.DeepEqual(*x.beat(), want) || x.at != 0 {
			t.Fatalf("acknowledgement after %v\n%+v\nwant\n%+v", x.at, *x.beat(), want)
		}
		x.ok(1, answer)
		x = l.beat()
		if want = plain(1); !reflect.DeepEqual(*x.beat(), want) || x.at != 5*time.Second {
			t.Fatalf("heartbeat after %v\n%+v\nwant\n%+v", x.at, *x.beat(), want)
		}
		x.ok(3, answer, assigned(1, 0), func(r *kmsg.StreamsGroupHeartbeatResponse) {
			r.StandbyTasks = []kmsg.TaskIDs{{SubtopologyID: "1", Partitions: []int32{2}}}
			r.HeartbeatIntervalMillis = 7000
		})
		x = l.beat()
		want = plain(3)
		want.ActiveTasks, want.StandbyTasks, want.WarmupTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0, 1}}}, []kmsg.TaskIDs{{SubtopologyID: "1", Partitions: []int32{2}}}, []kmsg.TaskIDs{}
		if !reflect.DeepEqual(*x.beat(), want) || x.at != 5*time.Second {
			t.Fatalf("acknowledgement after %v\n%+v\nwant\n%+v", x.at, *x.beat(), want)
		}
		l.says("assign active 0_0 0_1, standby 1_2")
		if l.m.Epoch() != 3 || l.m.Tasks().String() != "active 0_0 0_1, standby 1_2" {
			t.Errorf("epoch %d, tasks %v", l.m.Epoch(), l.m.Tasks())
		}
		x.ok(3, answer, func(r *kmsg.StreamsGroupHeartbeatResponse) { r.HeartbeatIntervalMillis = 0 }) // an older broker did not say
		x = l.beat()
		if x.at != 12*time.Second {
			t.Fatalf("heartbeat after %v", x.at)
		}
		x.ok(3, answer)
		l.cancel()
		x = l.beat()
		if want = plain(-1); !reflect.DeepEqual(*x.beat(), want) || x.at != 12*time.Second {
			t.Fatalf("goodbye after %v\n%+v\nwant\n%+v", x.at, *x.beat(), want)
		}
		l.says("revoke active 0_0 0_1, standby 1_2")
		x.ok(-1)
		if err := l.ended(); err != nil {
			t.Error(err)
		}
		if l.m.Epoch() != 0 || !l.m.Tasks().Empty() {
			t.Errorf("epoch %d, tasks %v after the end", l.m.Epoch(), l.m.Tasks())
		}
		if err := l.m.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "has run already") {
			t.Errorf("second run: %v", err)
		}
	})
}

// Tasks are acknowledged when Revoke and Assign have returned; heartbeats go on meanwhile, and so does what the coordinator wants next.
func TestTasksAreGivenUpBeforeOthersGetThem(t *testing.T) {
	release := make(chan error)
	living(t, func(c *MemberConfig) {
		revoke := c.Revoke
		release = make(chan error)
		c.Revoke = func(ctx context.Context, t Tasks) error {
			_ = revoke(ctx, t)
			return <-release
		}
	}, func(l *life) {
		l.entered(0, 1, 2, 3)
		x := l.beat()
		x.ok(1, assigned(0, 1))
		l.says("revoke active 0_2 0_3")
		for range 3 { // while they are given up
			x = l.beat()
			if x.beat().ActiveTasks != nil {
				t.Fatalf("acknowledged %+v before it is so", x.beat().ActiveTasks)
			}
			x.ok(1, assigned(0)) // meanwhile it shall have even less
		}
		if got := l.m.Tasks(); !got.Equal(tasks(0, 1, 2, 3)) {
			t.Errorf("tasks %v", got)
		}
		before := x.at
		release <- nil
		l.says("assign active 0_0 0_1", "revoke active 0_1")
		x = l.beat()
		if got := x.beat().ActiveTasks; !reflect.DeepEqual(got, []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0, 1}}}) || x.at != before {
			t.Fatalf("acknowledged %+v after %v", got, x.at)
		}
		x.ok(1)
		release <- nil
		x = l.beat()
		if got := x.beat().ActiveTasks; !reflect.DeepEqual(got, []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0}}}) {
			t.Fatalf("acknowledged %+v", got)
		}
		l.says("assign active 0_0")
		x.ok(2)
		// What it has already needs no handler, and no acknowledgement again.
		x = l.beat()
		x.ok(2, assigned(0))
		if x = l.beat(); x.beat().ActiveTasks != nil {
			t.Fatalf("acknowledged %+v again", x.beat().ActiveTasks)
		}
		x.ok(2)
		l.says()
		go func() { release <- nil }()
	})
}

// A task that changes its role is given up in the old one first.
func TestARoleThatChanges(t *testing.T) {
	living(t, nil, func(l *life) {
		l.entered(0)
		l.beat().ok(2, assigned(), func(r *kmsg.StreamsGroupHeartbeatResponse) {
			r.StandbyTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0}}}
		})
		l.says("revoke active 0_0", "assign standby 0_0")
	})
}

func TestStatuses(t *testing.T) {
	status := func(code int8, detail string) kmsg.StreamsGroupHeartbeatResponseStatus {
		return kmsg.StreamsGroupHeartbeatResponseStatus{StatusCode: code, StatusDetail: detail}
	}
	var told []string
	listen := func(c *MemberConfig) {
		told = nil
		c.Status = func(s []Status) { told = append(told, fmt.Sprint(s)) }
	}
	living(t, listen, func(l *life) {
		l.beat().ok(1, assigned(), remarked(status(5, "later"), status(3, "r")))
		l.beat().ok(1, remarked(status(5, "later"), status(3, "r")))
		l.beat().ok(1, remarked(status(6, "tags"), status(9, "new")))
		l.beat().ok(1)
		l.beat().ok(1)
		l.says()
		if want := []string{"[ASSIGNMENT_DELAYED: later MISSING_INTERNAL_TOPICS: r]", "[MISSING_CLIENT_TAGS: tags status 9: new]", "[]"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
	for _, code := range []StatusCode{StatusShutdownApplication, StatusIncorrectlyPartitionedTopics} {
		living(t, listen, func(l *life) {
			l.entered(0)
			l.beat().ok(1, remarked(status(int8(code), "why")))
			l.says("revoke active 0_0")
			l.beat().ok(-1)
			var e *StatusError
			if err := l.ended(); !errors.As(err, &e) || e.Code != code || err.Error() != code.String()+": why" {
				t.Errorf("%v: %v", code, err)
			}
		})
	}
	// Source topics may be on their way: two heartbeat intervals are given.
	living(t, listen, func(l *life) {
		missing := remarked(status(1, "Source topics in are missing."))
		l.beat().ok(1, assigned(), missing)
		l.beat().ok(1, missing)
		l.beat().ok(1, missing)
		l.beat().ok(1) // there they are
		l.beat().ok(1, missing)
		l.beat().ok(1, missing)
		l.beat().ok(1, missing)
		x := l.beat()
		if x.beat().MemberEpoch != -1 || x.at != 25*time.Second {
			t.Errorf("after %v: %+v", x.at, x.beat())
		}
		x.ok(-1)
		var e *StatusError
		if err := l.ended(); !errors.As(err, &e) || e.Code != StatusMissingSourceTopics {
			t.Error(err)
		}
	})
}

func TestTaskOffsets(t *testing.T) {
	living(t, func(c *MemberConfig) {
		c.TaskOffsets = func(t Tasks) (offsets, ends []TaskOffset) {
			for _, id := range t.Active {
				offsets, ends = append(offsets, TaskOffset{id, 10}), append(ends, TaskOffset{id, 20})
			}
			return offsets, ends
		}
	}, func(l *life) {
		l.entered(0, 1)
		var at []time.Duration
		for range 30 {
			x := l.beat()
			if r := x.beat(); r.TaskOffsets != nil {
				at = append(at, x.at)
				if want := []kmsg.TaskOffset{{SubtopologyID: "0", Partition: 0, Offset: 20}, {SubtopologyID: "0", Partition: 1, Offset: 20}}; !reflect.DeepEqual(r.TaskEndOffsets, want) {
					t.Fatalf("ends %+v", r.TaskEndOffsets)
				}
			}
			x.ok(1)
		}
		if want := []time.Duration{60 * time.Second, 120 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("offsets after %v, want %v", at, want)
		}
	})
}

// What version 0 does not know is left out of it.
func TestAHeartbeatOfVersion0(t *testing.T) {
	r := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	r.Group, r.MemberID, r.ActiveTasks, r.StandbyTasks = "g", "m", []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{0}}}, []kmsg.TaskIDs{}
	r.WarmupTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: []int32{1}}}
	r.TaskOffsets, r.TaskEndOffsets = []kmsg.TaskOffset{{SubtopologyID: "0"}}, []kmsg.TaskOffset{}
	for version := range int16(2) {
		h := heartbeat{r}
		h.SetVersion(version)
		back := kmsg.NewPtrStreamsGroupHeartbeatRequest()
		back.Version = version
		if err := back.ReadFrom(h.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		if version == 0 && (back.TaskOffsets != nil || back.TaskEndOffsets != nil || back.WarmupTasks == nil || len(back.WarmupTasks) > 0 || len(back.ActiveTasks) != 1) ||
			version == 1 && !reflect.DeepEqual(back, r) {
			t.Errorf("version %d: %+v", version, back)
		}
	}
}
