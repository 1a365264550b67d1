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
// has the removal of the former's member between their beginnings, and only there.
//
// skewed: clocks of replicas were wrong in the run, and with them times in the log. told is what was found that is no fault.
func judgeApp(group string, seen []kafkatest.Seen, j history.Judged, skewed bool) (wrong []string, told string) {
	removed := removals(group, j)
	tenures := tenuresOf(seen)
	excused := 0
	for _, b := range kafkatest.CheckTenures(seen) {
		of := removed[b.Late.Thread+"-consumer"]
		if b.What != kafkatest.OutOfOrder && wasRemoved(of, tenures[b.Late.Tenure].from, tenures[b.After.Tenure].from, skewed) {
			excused++
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s: %v; removals of its member: %v", group, b, of))
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

// wentBack: whoever gets a task begins at what is committed for it, so commits of a partition never go back.
func wentBack(group string, j history.Judged) (wrong []string) {
	for _, p := range slices.Sorted(maps.Keys(j.Records)) {
		last := map[eventlog.Key]history.Stood{}
		for _, s := range j.Records[p] {
			if s.Void || s.Record.Key.Type != eventlog.TypeOffsetCommit || s.Record.Key.Group != group {
				continue
			}
			before, ok := last[s.Record.Key]
			last[s.Record.Key] = s
			if !ok {
				continue
			}
			now, is := s.Record.Value.(*eventlog.OffsetCommit)
			if !is {
				wrong = append(wrong, fmt.Sprintf("%s: a committed offset was removed: %v; before it: %v", group, s, before))
			} else if was, is := before.Record.Value.(*eventlog.OffsetCommit); is && now.Offset < was.Offset {
				wrong = append(wrong, fmt.Sprintf("%s: a committed offset went back: %v; before it: %v", group, s, before))
			}
		}
	}
	return wrong
}

// logLine is a line of the applications' log, as tools-log4j2.properties has it: level, message, logger.
var logLine = regexp.MustCompile(`(?m)^\[[^\]]+\] ([A-Z]+) (.*) \(([\w.$]+)\)$`)

// allowed are the errors that Kafka's client may log, and exceptions that may end one of its threads, with the reason. None is ours.
var allowed = []struct{ text, why string }{}

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
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		m := logLine.FindStringSubmatch(line)
		bad := m != nil && m[1] != "WARN" || strings.Contains(line, " UNCAUGHT ") ||
			m != nil && slices.ContainsFunc(unexpected, func(text string) bool { return strings.Contains(line, text) })
		if !bad {
			continue
		}
		if !slices.ContainsFunc(allowed, func(a struct{ text, why string }) bool { return strings.Contains(line, a.text) }) {
			w.t.Errorf("JVM %s says: %s", s.name, line)
		}
	}
}
