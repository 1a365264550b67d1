package shard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"streamkeeper/eventlog"
)

// logLines are what was logged, while more is.
type logLines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logLines) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// traced is inWorld with replicas whose spans and log lines are kept.
func traced(t *testing.T, test func(t *testing.T, log *eventlog.Fake, start func(int32) *node, spans *tracetest.InMemoryExporter, lines *logLines)) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	var lines logLines
	tracing.Store(tracerBox{provider.Tracer("test"), slog.New(slog.NewJSONHandler(&lines, nil))})
	defer tracing.Store(tracerBox{})
	inWorld(t, 1, func(t *testing.T, log *eventlog.Fake, start func(int32) *node) { test(t, log, start, spans, &lines) })
}

// rebalances are the spans of that name, in the order of their ends.
func rebalances(spans *tracetest.InMemoryExporter) (out []tracetest.SpanStub) {
	for _, s := range spans.GetSpans() {
		if s.Name == "rebalance" {
			out = append(out, s)
		}
	}
	return out
}

func attributeOf(s tracetest.SpanStub, name string) attribute.Value {
	for _, kv := range s.Attributes {
		if string(kv.Key) == name {
			return kv.Value
		}
	}
	return attribute.Value{}
}

func eventsOf(s tracetest.SpanStub) (out []string) {
	for _, e := range s.Events {
		out = append(out, e.Name)
	}
	return out
}

// owning is a heartbeat of a member that says what it has.
func owning(group, member string, epoch int32, partitions ...int32) *kmsg.StreamsGroupHeartbeatRequest {
	req := beatRequest(group, member, epoch)
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	if len(partitions) > 0 {
		req.ActiveTasks = []kmsg.TaskIDs{{SubtopologyID: "0", Partitions: partitions}}
	}
	return req
}

func TestARebalanceIsASpan(t *testing.T) {
	traced(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node, spans *tracetest.InMemoryExporter, lines *logLines) {
		r := serving(t, log, start)
		first := r.join(t, "g", "a")
		if got := rebalances(spans); len(got) != 1 || attributeOf(got[0], "outcome").AsString() != "stable" || attributeOf(got[0], "group.epoch").AsInt64() != int64(first.MemberEpoch) {
			t.Fatalf("a first member with all tasks: %+v", got)
		}
		time.Sleep(2 * time.Second) // the bubble's clock: longer than the assignment interval
		spans.Reset()
		lines.Reset()

		// b joins; a gives up half of its tasks three seconds later; b gets them another three later.
		ctx, request := tracing.Load().(tracerBox).Start(t.Context(), "request of b")
		b, err := r.Heartbeat(ctx, Caller{ClientID: "c", ClientHost: "/127.0.0.1"}, 1, joinRequest("g", "b"))
		request.End()
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		send := func(req *kmsg.StreamsGroupHeartbeatRequest) *kmsg.StreamsGroupHeartbeatResponse {
			t.Helper()
			resp, err := r.Heartbeat(t.Context(), Caller{ClientID: "c", ClientHost: "/127.0.0.1"}, 1, req)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		send(owning("g", "a", first.MemberEpoch, 0, 1, 2, 3)) // is told
		send(owning("g", "a", first.MemberEpoch, 0, 1))       // has done it
		if got := rebalances(spans); len(got) != 0 {
			t.Fatalf("it ended before everybody was there: %+v", got)
		}
		time.Sleep(3 * time.Second)
		send(owning("g", "b", b.MemberEpoch))

		got := rebalances(spans)
		if len(got) != 1 {
			t.Fatalf("%d spans", len(got))
		}
		s := got[0]
		if s.Parent.IsValid() || len(s.Links) == 0 {
			t.Errorf("parent %v, %d links; want a root that links to the requests", s.Parent, len(s.Links))
		}
		if !slices.ContainsFunc(s.Links, func(l sdktrace.Link) bool { return l.SpanContext.TraceID() == request.SpanContext().TraceID() }) {
			t.Error("no link leads to the trace of the request that began it")
		}
		if d := s.EndTime.Sub(s.StartTime); d < 6*time.Second || d > 7*time.Second {
			t.Errorf("it lasted %v", d)
		}
		for name, want := range map[string]any{
			"group": "g", "because": "member b joined", "outcome": "stable", "group.epoch.first": int64(b.MemberEpoch), "group.epoch": int64(b.MemberEpoch),
			"group.epochs": int64(1), "members": int64(2), "member.last": "b", "duration.ms": int64(6000), "partition": int64(0),
		} {
			if v := attributeOf(s, name).AsInterface(); v != want {
				t.Errorf("%s is %v, want %v", name, v, want)
			}
		}
		if waited := attributeOf(s, "members.waited.for").AsStringSlice(); !slices.Equal(waited, []string{"a", "b"}) {
			t.Errorf("waited for %v", waited)
		}
		want := []string{"target of a: −0_2 −0_3", "target of b: +0_2 +0_3", "target assignment 3", "b waits for others to give up 0_2 0_3, is at epoch 3",
			"reconciling to 3, waiting for a, b", "a is told to give up 0_2 0_3", "a has given up 0_2 0_3, is at epoch 3", "b gets 0_2 0_3", "stable at 3"}
		if events := eventsOf(s); !slices.Equal(events, want) {
			t.Errorf("events\n%s\nwant\n%s", strings.Join(events, "\n"), strings.Join(want, "\n"))
		}

		logged := map[string]map[string]any{}
		for line := range strings.Lines(lines.String()) {
			var l map[string]any
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatal(err)
			}
			logged[l["msg"].(string)] = l
		}
		if l := logged["group epoch"]; l["because"] != "member b joined" || l["epoch"] != 3.0 || l["state"] != "Reconciling" {
			t.Errorf("line %v", l)
		}
		if l := logged["rebalance ended"]; l["outcome"] != "stable" || l["epoch"] != 3.0 || fmt.Sprint(l["waited_for"]) != "[a b]" {
			t.Errorf("line %v", l)
		}
	})
}

func TestARebalanceThatBeginsAnewIsOneSpan(t *testing.T) {
	traced(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node, spans *tracetest.InMemoryExporter, lines *logLines) {
		r := serving(t, log, start)
		r.join(t, "g", "a")
		r.join(t, "g", "b")
		spans.Reset()
		lines.Reset()
		time.Sleep(50 * time.Second) // neither says anything within its session
		synctest.Wait()
		got := rebalances(spans)
		if len(got) != 1 || attributeOf(got[0], "outcome").AsString() != "empty" || attributeOf(got[0], "group.epochs").AsInt64() != 3 {
			t.Fatalf("%+v", got)
		}
		if n := strings.Count(lines.String(), `"because":"sent no heartbeat within its session timeout"`); n != 2 {
			t.Errorf("the log says %d times why a member goes:\n%s", n, lines.String())
		}
		r.join(t, "g", "c")
		if _, err := r.beat("g", "c", -1); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(lines.String(), `"msg":"member removed","partition":0,"group":"g","member":"c","because":"left"`) {
			t.Errorf("no line says that c left:\n%s", lines.String())
		}
	})
}

// A rebalance that is under way when the shard moves ends here with an error and goes on there.
func TestARebalanceGoesOnWithTheNextOwner(t *testing.T) {
	traced(t, func(t *testing.T, log *eventlog.Fake, start func(int32) *node, spans *tracetest.InMemoryExporter, _ *logLines) {
		r := serving(t, log, start)
		a := r.join(t, "g", "a")
		time.Sleep(2 * time.Second) // the bubble's clock: longer than the assignment interval
		b := r.join(t, "g", "b")
		spans.Reset()
		r.stop()
		if got := rebalances(spans); len(got) != 1 || got[0].Status.Description == "" || attributeOf(got[0], "outcome").AsString() != "the shard is not served here any more" {
			t.Fatalf("where it began: %+v", got)
		}
		spans.Reset()
		n := start(1)
		n.m.assign(time.Hour, 0)
		n.awaitServing(t)
		ctx := context.Background()
		for _, req := range []*kmsg.StreamsGroupHeartbeatRequest{
			owning("g", "a", a.MemberEpoch, 0, 1, 2, 3), owning("g", "a", a.MemberEpoch, 0, 1), owning("g", "b", b.MemberEpoch),
		} {
			if _, err := n.Heartbeat(ctx, Caller{ClientID: "c", ClientHost: "/127.0.0.1"}, 1, req); err != nil {
				t.Fatal(err)
			}
		}
		got := rebalances(spans)
		if len(got) != 1 || attributeOf(got[0], "outcome").AsString() != "stable" || !strings.Contains(attributeOf(got[0], "because").AsString(), "taken over") {
			t.Fatalf("where it ended: %+v", got)
		}
	})
}

var _ trace.Tracer = tracerBox{}
