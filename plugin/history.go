package plugin

import (
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"
)

// What is remembered of a group beside its window, for those who ask why its description is not there. It is part of the group's
// entry: bounded with it, gone with it, and begun anew with another topology epoch.

// historyTextMax bounds each text that an entry keeps, in bytes: with it a full Backoff takes some 60 MB instead of 20, and a reason that
// is cut still says what is wrong.
const historyTextMax = 200

// History is what became of asking a group, at one topology epoch.
type History struct {
	// Asked counts the questions; AskedAt and Member are the time of the last one and whom it went to.
	Asked   int
	AskedAt time.Time
	Member  string

	// Failures counts pushes that failed for now; FailedAt and Failure are the time and the reason of the last one.
	Failures int
	FailedAt time.Time
	Failure  string

	// Lost counts how often the plugin had lost what it had stored; LostAt is when that was found last.
	Lost   int
	LostAt time.Time
}

// Ask is Arm for a question to a member: where it returns true the member is asked.
func (b *Backoff) Ask(group string, topologyEpoch int32, now time.Time, member string, span trace.SpanContext) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[group]
	if e.active(topologyEpoch, now) {
		return false
	}
	e = b.begin(e, group, topologyEpoch, now)
	e.Asked++
	e.AskedAt, e.Member, e.askedBy = now, historyText(member), span
	return true
}

// AskedBy returns the span of the heartbeat that asked last, once; a zero one where there is none.
func (b *Backoff) AskedBy(group string) trace.SpanContext {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[group]
	if e == nil {
		return trace.SpanContext{}
	}
	span := e.askedBy
	e.askedBy = trace.SpanContext{}
	return span
}

// Fail is Extend with the reason of the failure.
func (b *Backoff) Fail(group string, topologyEpoch int32, now time.Time, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.extend(group, topologyEpoch, now); e != nil {
		e.Failures++
		e.FailedAt, e.Failure = now, historyText(reason)
	}
}

// Lose notes, unless a window is open, that the plugin has not what it had stored, and says whether it did: the group may then be asked
// again. The first time it is asked at once; later times begin a window each, which grows like all others although what is pushed in
// between is stored: Clear keeps such an entry.
func (b *Backoff) Lose(group string, topologyEpoch int32, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[group]
	if e.active(topologyEpoch, now) {
		return false
	}
	first := e == nil || e.TopologyEpoch != topologyEpoch || e.Lost == 0
	e = b.begin(e, group, topologyEpoch, now)
	e.Lost++
	e.LostAt = now
	if first { // no window, and the question that follows begins the first one
		e.Attempts, e.Next = -1, time.Time{}
		b.fix(e)
	}
	return true
}

// settle is what Clear does to an entry of its epoch.
func (b *Backoff) settle(e *backoffEntry) {
	if e.Lost == 0 {
		b.remove(e)
		return
	}
	e.History = History{Lost: e.Lost, LostAt: e.LostAt}
	e.Next = time.Time{} // not active, and the first to go when room is needed
	b.fix(e)
}

// historyText is s as an entry keeps it: valid UTF-8 of at most historyTextMax bytes.
func historyText(s string) string {
	if len(s) > historyTextMax {
		end := historyTextMax - len("…")
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end] + "…"
	}
	return strings.Clone(strings.ToValidUTF8(s, "?")) // a part of a longer text must not keep it
}
