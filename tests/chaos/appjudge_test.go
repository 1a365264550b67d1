package chaos

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"streamkeeper/eventlog"
	"streamkeeper/internal/history"
	"streamkeeper/internal/kafkatest"
)

// clockSlack is what the times of two processes on one machine, and the moment at which a record is stamped, may differ by.
const clockSlack = time.Second

// judgeApp looks for what can't be in what an application has written, and in what it has committed.
//
// A task has one owner, and a new owner begins when the former has given it back, or was removed from the group: an instance that hears nothing
// from its coordinator for longer than its session works on until it is told, as before Kafka. So two tenures of a task may overlap where the log
// has the removal of the former's member between their beginnings, and only there. Which of the two is the former their beginnings say, not the output: what
// an instance had made when it was paused comes into it after what its successor has written meanwhile.
//
// skewed: clocks of replicas were wrong in the run, and with them times in the log. told is what was found that is no fault.
func judgeApp(group string, seen []kafkatest.Seen, j history.Judged, skewed bool) (wrong []string, told string) {
	removed := removals(group, j)
	tenures := tenuresOf(seen)
	excused := 0
	for _, b := range kafkatest.CheckTenures(seen) {
		former, next := b.Late, b.After
		if tenures[next.Tenure].from.Before(tenures[former.Tenure].from) {
			former, next = next, former
		}
		of := removed[former.Thread+"-consumer"]
		if b.What != kafkatest.OutOfOrder && wasRemoved(of, tenures[former.Tenure].from, tenures[next.Tenure].from, skewed) {
			excused++
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s: %v; removals of the former's member: %v", group, b, of))
	}
	n := 0
	for _, times := range removed {
		n += len(times)
	}
	return append(wrong, wentBack(group, j)...),
		fmt.Sprintf("%s: %d records out in %d tenures, members were removed %d times, %d tenures overlap because of it", group, len(seen), len(tenures), n, excused)
}

// span is the time between the first and the last record of a tenure.
type span struct{ from, to time.Time }

func tenuresOf(seen []kafkatest.Seen) map[string]span {
	all := map[string]span{}
	for _, s := range seen {
		at := time.UnixMicro(s.At)
		t, ok := all[s.Tenure]
		if !ok {
			t = span{at, at}
		}
		if at.Before(t.from) {
			t.from = at
		}
		if at.After(t.to) {
			t.to = at
		}
		all[s.Tenure] = t
	}
	return all
}

// removals are the times at which members of a group were removed, by their client ids, as the log has them.
func removals(group string, j history.Judged) map[string][]time.Time {
	all := map[string][]time.Time{}
	for _, p := range slices.Sorted(maps.Keys(j.Records)) {
		client := map[string]string{}
		for _, s := range j.Records[p] {
			if s.Void || s.Record.Key.Type != eventlog.TypeMember || s.Record.Key.Group != group {
				continue
			}
			if m, ok := s.Record.Value.(*eventlog.Member); ok {
				client[s.Record.Key.Member] = m.ClientID
				continue
			}
			id := client[s.Record.Key.Member]
			all[id] = append(all[id], time.UnixMilli(s.Timestamp))
		}
	}
	return all
}

// wasRemoved says whether one of the times lies between two others. Times in the log are those of a replica, whose clock the test may have set wrong (skewed).
func wasRemoved(times []time.Time, from, to time.Time, skewed bool) bool {
	wrong := []time.Duration{0}
	if skewed {
		wrong = append(wrong, clockSkew, -clockSkew)
	}
	return slices.ContainsFunc(times, func(at time.Time) bool {
		return slices.ContainsFunc(wrong, func(by time.Duration) bool {
			at := at.Add(-by)
			return !at.Before(from.Add(-clockSlack)) && !at.After(to.Add(clockSlack))
		})
	})
}

// wentBack: whoever gets a task begins at what is committed for it, and from there nobody else's commits count; so none is lower. Within one tenure of a member
// a commit may be: its client gave it up after the request time-out and made another one, on another connection, and the first lay in the
// buffers of a network that was cut and came last. Nothing orders two connections, before Kafka neither, and the next commit puts it right.
func wentBack(group string, j history.Judged) (wrong []string) {
	type task struct {
		subtopology string
		partition   int32
	}
	type owned struct {
		member string
		since  history.Stood
	}
	for _, p := range slices.Sorted(maps.Keys(j.Records)) {
		owner := map[task]owned{}
		subtopology := map[string]string{}                               // by source topic
		last, base := map[eventlog.Key]int64{}, map[eventlog.Key]int64{} // what is committed, and was when the task's owner got it
		for _, s := range j.Records[p] {
			if s.Void || s.Record.Key.Group != group {
				continue
			}
			switch v := s.Record.Value.(type) {
			case *eventlog.Topology:
				for _, sub := range v.Subtopologies {
					for _, topic := range sub.SourceTopics {
						subtopology[topic] = sub.SubtopologyID
					}
					for _, topic := range sub.RepartitionSourceTopics {
						subtopology[topic.Name] = sub.SubtopologyID
					}
				}
			case *eventlog.CurrentMemberAssignment:
				for _, ids := range v.Active {
					for _, partition := range ids.Partitions {
						t := task{ids.SubtopologyID, partition}
						if owner[t].member == s.Record.Key.Member {
							continue
						}
						owner[t] = owned{s.Record.Key.Member, s}
						for k, offset := range last {
							if k.Partition == partition && subtopology[k.Topic] == ids.SubtopologyID {
								base[k] = offset
							}
						}
					}
				}
			case *eventlog.OffsetCommit:
				k := s.Record.Key
				if v.Offset < base[k] {
					o := owner[task{subtopology[k.Topic], k.Partition}]
					wrong = append(wrong, fmt.Sprintf("%s: %v; %d was committed when %s got the task: %v", group, s, base[k], o.member, o.since))
				}
				last[k] = v.Offset
			case nil:
				switch s.Record.Key.Type {
				case eventlog.TypeOffsetCommit:
					wrong = append(wrong, fmt.Sprintf("%s: a committed offset was removed: %v", group, s))
				case eventlog.TypeCurrentMemberAssignment: // whoever has the task next gets it anew, the same member as well
					maps.DeleteFunc(owner, func(_ task, o owned) bool { return o.member == s.Record.Key.Member })
				}
			}
		}
	}
	return wrong
}

// logLine is a line of the applications' log, as tools-log4j2.properties has it: level, message, logger.
var logLine = regexp.MustCompile(`(?m)^\[[^\]]+\] ([A-Z]+) (.*) \(([\w.$]+)\)$`)

// expired is what a client logs whose commit was refused because its member had been removed. It joins again. Whether it had been is looked up in the
// end (judgeExpired).
var expired = regexp.MustCompile(`clientId=([^,]+), groupId=([^\]]+)\] OffsetCommit failed with UNKNOWN_MEMBER_ID`)

// afterExpiry are errors of Kafka's 4.4 client that may follow: it unsubscribes and subscribes again, and the end of the first takes the subscription of the
// second away (docs/operations.md, "A replica hangs"; the same before Kafka). The thread dies of it, and is replaced.
var afterExpiry = []string{
	"Consumer is not subscribed to any topics or assigned any partitions",
	"Replacing thread in the streams uncaught exception handler",
	"Attempt to dynamically assign partitions while manual assignment in use",
	"Failed to leave group while closing consumer",
	"Reconciliation failed for tasks LocalAssignment",
	"Failed to close consumer due to the following error",
	"Cannot set a new position without a valid current position",
	"StreamsGroupHeartbeatRequest failed due to INVALID_REQUEST: Topology can only be provided when (re-)joining.",
	"with epoch -1 transitioned to fatal state",
	"onAllTasksLost callback invocation failed while releasing assignment after member failed with fatal error",
}

// fenced is what a client logs whose commit was refused for its epoch while it has none, because a heartbeat was answered FENCED_MEMBER_EPOCH: that happens, before
// Kafka as well, to a member that was sent two new epochs and has got neither answer (a coordinator takes the epoch before the last one, and no
// older one). It joins again. A coordinator that refuses the epochs it has given is found by what it keeps from coming out (calm), and by the lines in which the
// client has an epoch.
const fenced = "with stale member epoch error. Last epoch sent: undefined"

// unexpected are errors that a coordinator of Kafka does not answer to its own client, and at which that client may go on all the same, with a warning.
var unexpected = []string{"UNKNOWN_SERVER_ERROR", "UnknownServerException", "INVALID_REQUEST", "InvalidRequestException", "UNSUPPORTED_VERSION", "UnsupportedVersionException"}

// judgeAppLogs fails the test when an application has logged an error, or lost a thread, that nothing explains.
func (w *world) judgeAppLogs() {
	for _, s := range w.stages {
		w.judgeAppLog(s)
	}
}

func (w *world) judgeAppLog(s *stage) {
	text, to := s.host.OutputSince(s.told)
	if end := strings.LastIndexByte(text, '\n'); end >= 0 { // what is not a whole line yet is for the next look
		text, to = text[:end+1], to-(len(text)-end-1)
	}
	s.told = to
	if w.expired == nil {
		w.expired = map[clientOf]bool{}
	}
	for _, m := range expired.FindAllStringSubmatch(text, -1) {
		s.expired = true
		w.expired[clientOf{m[2], m[1]}] = true
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if s.wrong(line) {
			w.t.Errorf("JVM %s says: %s", s.name, line)
		}
	}
}

// wrong says whether a line of the log tells of something that must not be.
func (s *stage) wrong(line string) bool {
	has := func(text string) bool { return strings.Contains(line, text) }
	m := logLine.FindStringSubmatch(line)
	switch {
	case !has(" UNCAUGHT ") && (m == nil || m[1] == "WARN" && !slices.ContainsFunc(unexpected, has)):
		return false
	case expired.MatchString(line), has(fenced):
		return false
	}
	return !s.expired || !slices.ContainsFunc(afterExpiry, has)
}

// clientOf is a client of a group, by its client id.
type clientOf struct{ group, client string }

// judgeExpired: whoever was told that its member is unknown had been removed.
func (w *world) judgeExpired(j history.Judged) (wrong []string) {
	for c := range w.expired {
		if len(removals(c.group, j)[c.client]) == 0 {
			wrong = append(wrong, fmt.Sprintf("%s: a commit of %s was refused with UNKNOWN_MEMBER_ID, and it was never removed", c.group, c.client))
		}
	}
	return wrong
}
