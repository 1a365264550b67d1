package plugin

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"
)

// A plugin that loses what it stores is pushed to less and less often, although each push succeeds.
func TestALostDescriptionIsAskedForWithBackoff(t *testing.T) {
	b := NewBackoff(middle, 0)
	now := epoch0
	for i, want := range []time.Duration{0, time.Minute, 4 * time.Minute} {
		if !b.Lose("g", 0, now) || i > 0 && b.Lose("g", 0, now) {
			t.Fatalf("round %d: lost not once", i)
		}
		e, _ := b.Entry("g")
		if e.Lost != i+1 || !e.LostAt.Equal(now) || b.Active("g", 0, now) != (want > 0) || want > 0 && e.Next.Sub(now) != want {
			t.Errorf("round %d: %+v for %s, want %s", i, e, e.Next.Sub(now), want)
		}
		now = now.Add(want)
		if e, _ := b.Entry("g"); i == 0 && e.Attempts != -1 {
			t.Errorf("the first loss counts as a window: %+v", e)
		}
		if !b.Ask("g", 0, now, "m", trace.SpanContext{}) {
			t.Errorf("round %d: nobody is asked when the window is over", i)
		}
		e, _ = b.Entry("g")
		if e.Asked != 1 || e.Member != "m" || !e.AskedAt.Equal(now) {
			t.Errorf("round %d: asked: %+v", i, e)
		}
		b.Clear("g", 0) // it was pushed and stored
		if e, ok := b.Entry("g"); !ok || b.Active("g", 0, now) || e.Lost != i+1 || e.Asked != 0 {
			t.Errorf("round %d: after the push %+v, %v", i, e, ok)
		}
	}
	b.Forget("g")
	if b.Len() != 0 {
		t.Error("a group that is gone is remembered")
	}
	b.Lose("g", 0, now)
	b.Clear("g", 0)
	if b.Ask("g", 1, now, "", trace.SpanContext{}); b.entries["g"].Lost != 0 {
		t.Error("another topology epoch does not begin anew")
	}
}

func TestHistoryKeepsShortTexts(t *testing.T) {
	b := NewBackoff(middle, 0)
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	b.Ask("g", 0, epoch0, strings.Repeat("ü", 200), span)
	b.Fail("g", 0, epoch0.Add(time.Second), "bad \xff byte")
	e, _ := b.Entry("g")
	if len(e.Member) > historyTextMax || !utf8.ValidString(e.Member) || !strings.HasSuffix(e.Member, "ü…") || e.Failure != "bad ? byte" || e.Failures != 1 {
		t.Errorf("%+v", e)
	}
	b.Forget("g")
	b.Ask("g", 0, epoch0, "m", span)
	if got := b.AskedBy("g"); !got.Equal(span) {
		t.Errorf("asked by %v", got)
	}
	if got := b.AskedBy("g"); got.IsValid() {
		t.Errorf("twice: %v", got)
	}
	if got := b.AskedBy("nobody"); got.IsValid() {
		t.Errorf("of nobody: %v", got)
	}
}
