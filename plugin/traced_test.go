package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// puppet is a plugin that does what a test says.
type puppet struct {
	set    func(ctx context.Context, group string, epoch int32, d *Description) *Future[Void]
	get    func(ctx context.Context, group string, epoch int32) *Future[*Description]
	delete func(ctx context.Context, group string) *Future[Void]
	close  func(ctx context.Context) error
}

func (p *puppet) Name() string { return "puppet" }

func (p *puppet) Set(ctx context.Context, group string, epoch int32, d *Description) *Future[Void] {
	return p.set(ctx, group, epoch, d)
}

func (p *puppet) Get(ctx context.Context, group string, epoch int32) *Future[*Description] {
	return p.get(ctx, group, epoch)
}

func (p *puppet) Delete(ctx context.Context, group string) *Future[Void] { return p.delete(ctx, group) }

func (p *puppet) Close(ctx context.Context) error {
	if p.close == nil {
		return nil
	}
	return p.close(ctx)
}

// stage is a Traced with everything that it says recorded.
type stage struct {
	*Traced
	spans  *tracetest.SpanRecorder
	tracer trace.Tracer
	log    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newStage(t *testing.T, p Plugin, change ...func(*Config)) *stage {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
	s := &stage{spans: recorder, tracer: tracer, log: &lockedBuffer{}}
	cfg := Config{Tracer: tracer, Logger: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, c := range change {
		c(&cfg)
	}
	var err error
	if s.Traced, err = NewTraced(p, cfg); err != nil {
		t.Fatal(err)
	}
	return s
}

// set calls Set and waits for its outcome.
func (s *stage) set(ctx context.Context, group string) Outcome {
	out := make(chan Outcome, 2)
	s.Set(ctx, SetCall{Group: group, TopologyEpoch: 3, Description: small()}, func(o Outcome) { out <- o })
	return <-out
}

func (s *stage) get(ctx context.Context, group string) (*Description, Outcome) {
	type result struct {
		d *Description
		o Outcome
	}
	out := make(chan result, 2)
	s.Get(ctx, group, 3, func(d *Description, o Outcome) { out <- result{d, o} })
	r := <-out
	return r.d, r.o
}

func (s *stage) del(ctx context.Context, group string) Outcome {
	out := make(chan Outcome, 2)
	s.Delete(ctx, group, func(o Outcome) { out <- o })
	return <-out
}

// ended returns the attributes of the ended spans, each as one line in a fixed order.
func (s *stage) ended() []string {
	var lines []string
	for _, span := range s.spans.Ended() {
		attributes := map[string]string{}
		for _, a := range span.Attributes() {
			attributes[string(a.Key)] = a.Value.Emit()
		}
		line := span.Name()
		for _, k := range slices.Sorted(maps.Keys(attributes)) {
			line += fmt.Sprintf(" %s=%.60s", k, attributes[k])
		}
		if span.Status().Code == codes.Error {
			line += " ERROR"
		}
		for _, e := range span.Events() {
			line += fmt.Sprintf(" +%s:%s", e.Time.Sub(span.StartTime()), e.Name)
		}
		lines = append(lines, fmt.Sprintf("%s took=%s", line, span.EndTime().Sub(span.StartTime())))
	}
	return lines
}

func (s *stage) wantSpans(t *testing.T, want ...string) {
	t.Helper()
	got := s.ended()
	if len(got) != len(want) {
		t.Fatalf("%d spans:\n%s\nwant %d", len(got), strings.Join(got, "\n"), len(want))
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("span\n%s\nwant\n%s", got[i], want[i])
		}
	}
	if started := len(s.spans.Started()); started != len(got) {
		t.Errorf("%d spans were started, %d ended", started, len(got))
	}
}

func (s *stage) wantIdle(t *testing.T) {
	t.Helper()
	synctest.Wait()
	if n := s.Stats().UnderWay; n != 0 {
		t.Errorf("%d calls are under way", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) != 0 {
		t.Errorf("%d calls are registered", len(s.calls))
	}
	for op := range s.slots {
		if n := len(s.slots[op]); n != 0 {
			t.Errorf("%d slots of %s are taken", n, operation(op))
		}
	}
}

// TestWhatAPluginMayDoToSet is the table of Kafka's contract, for Set.
func TestWhatAPluginMayDoToSet(t *testing.T) {
	long := strings.Repeat("e", 1<<20)
	for _, c := range []struct {
		name      string
		do        func() *Future[Void]
		kind      Kind
		permanent bool
		message   string
		span      string // from outcome= on
	}{
		{"completes", func() *Future[Void] { return Completed(Void{}) }, Stored, false, "", "outcome=stored plugin=puppet topology.epoch=3 took=0s"},
		{"completes later", func() *Future[Void] {
			return Go(func() (Void, error) { time.Sleep(time.Second); return Void{}, nil })
		}, Stored, false, "", "outcome=stored plugin=puppet topology.epoch=3 took=1s"},
		{"refuses for good", func() *Future[Void] { return Failed[Void](Permanent("too big")) }, PermanentFailure, true, "too big",
			"outcome=permanent permanent=true plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"refuses for good, wrapped", func() *Future[Void] { return Failed[Void](fmt.Errorf("put: %w", Permanent("too big"))) }, PermanentFailure, true, "put: too big",
			"outcome=permanent permanent=true plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"fails", func() *Future[Void] { return Failed[Void](errTest) }, TransientFailure, false, "test",
			"outcome=transient permanent=false plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"fails, with a cause for the log", func() *Future[Void] { return Failed[Void](Transient("not reachable", errTest)) }, TransientFailure, false, "not reachable",
			"outcome=transient permanent=false plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"fails for nothing", func() *Future[Void] { return Failed[Void](nil) }, TransientFailure, false, "Plugin failure (no cause).",
			"outcome=transient permanent=false plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"fails with a context's error of its own", func() *Future[Void] { return Failed[Void](context.DeadlineExceeded) }, TransientFailure, false, "context deadline exceeded",
			"outcome=transient permanent=false plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"fails with 1 MB", func() *Future[Void] { return Failed[Void](errors.New(long)) }, TransientFailure, false, cutMessage(long),
			"outcome=transient permanent=false plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"panics", func() *Future[Void] { panic("oh") }, Panicked, true, "Topology description plugin failed.",
			"outcome=panicked permanent=true plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"panics with nil", func() *Future[Void] { panic(nil) }, Panicked, true, "Topology description plugin failed.", //nolint:govet // on purpose
			"outcome=panicked permanent=true plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"panics later", func() *Future[Void] { return Go(func() (Void, error) { panic("oh") }) }, Panicked, false, "Topology description plugin failed.",
			"outcome=panicked permanent=false plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"returns nothing", func() *Future[Void] { return nil }, PermanentFailure, true, "Topology description plugin failed.",
			"outcome=permanent permanent=true plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"ends its goroutine", func() *Future[Void] { runtime.Goexit(); return nil }, PermanentFailure, true, "Topology description plugin failed.",
			"outcome=permanent permanent=true plugin=puppet topology.epoch=3 ERROR took=0s"},
		{"completes twice", func() *Future[Void] {
			f := Completed(Void{})
			f.Fail(errTest)
			f.Complete(Void{})
			return f
		}, Stored, false, "", "outcome=stored plugin=puppet topology.epoch=3 took=0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, &puppet{set: func(_ context.Context, group string, epoch int32, d *Description) *Future[Void] {
					if group != "g" || epoch != 3 || !d.Equal(small()) {
						t.Errorf("Set(%q, %d, %+v)", group, epoch, d)
					}
					return c.do()
				}})
				o := s.set(t.Context(), "g")
				if o.Kind != c.kind || o.Permanent != c.permanent || o.Message != c.message || o.OK() != (c.message == "") {
					t.Errorf("outcome %+v", o)
				}
				s.wantIdle(t)
				time.Sleep(time.Minute) // nothing comes afterwards
				if got := s.ended(); len(got) != 1 || !strings.HasSuffix(got[0], c.span) || !strings.HasPrefix(got[0], "plugin set ") || !strings.Contains(got[0], " group=g operation=set ") {
					t.Errorf("spans %q, want …%s", got, c.span)
				}
				st := s.Stats()
				if o.OK() && (st.SetSuccess != 1 || st.SetError != 0) || !o.OK() && (st.SetSuccess != 0 || st.SetError != 1) || st.Late != 0 {
					t.Errorf("%+v", st)
				}
				if want := c.name == "completes twice"; (st.Repeated == 1) != want || strings.Contains(s.log.String(), "completed a future again") != want {
					t.Errorf("%d repeats", st.Repeated)
				}
				if !o.OK() && !strings.Contains(s.log.String(), "level=WARN") {
					t.Errorf("the log has no word of it: %s", s.log)
				}
				if n := s.log.String(); len(n) > 3*MessageBytesMax {
					t.Errorf("%d bytes of log", len(n))
				}
			})
		})
	}
}

func TestLogHasTheCauseAndTheStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, &puppet{
			set: func(context.Context, string, int32, *Description) *Future[Void] {
				return Failed[Void](Transient("not reachable", errors.New("dial 10.0.0.1")))
			},
			delete: func(context.Context, string) *Future[Void] { panic("oh") },
		})
		s.set(t.Context(), "g")
		s.del(t.Context(), "h")
		log := s.log.String()
		for _, want := range []string{`error="not reachable: dial 10.0.0.1"`, "group=g", "topology_epoch=3", "operation=delete", `error="panic: oh"`, "traced_test.go", "plugin=puppet"} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %s:\n%s", want, log)
			}
		}
		if o := s.set(t.Context(), "g"); strings.Contains(o.Message, "10.0.0.1") {
			t.Errorf("the client hears of addresses: %s", o.Message)
		}
	})
}

func TestGetOutcomes(t *testing.T) {
	sink := text("t")
	var typedNil *Description
	for _, c := range []struct {
		name    string
		do      func() *Future[*Description]
		kind    Kind
		message string
	}{
		{"found", func() *Future[*Description] { return Completed(small()) }, Found, ""},
		{"nothing", func() *Future[*Description] { return Completed(typedNil) }, NotFound, ""},
		{"fails", func() *Future[*Description] { return Failed[*Description](errTest) }, TransientFailure, "test"},
		{"fails for good", func() *Future[*Description] { return Failed[*Description](Permanent("no")) }, PermanentFailure, "no"},
		{"panics", func() *Future[*Description] { panic("oh") }, Panicked, textFailed},
		{"no future", func() *Future[*Description] { return nil }, PermanentFailure, textFailed},
		{"can't be shown", func() *Future[*Description] {
			return Completed(&Description{Subtopologies: []Subtopology{{Nodes: []Node{{Type: 9, SinkTopic: sink}}}}})
		}, TransientFailure, "the plugin returned a description that can't be shown: Unknown topology node type: 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, &puppet{get: func(context.Context, string, int32) *Future[*Description] { return c.do() }})
				d, o := s.get(t.Context(), "g")
				if o.Kind != c.kind || o.Message != c.message {
					t.Errorf("%+v", o)
				}
				if (d != nil) != (c.kind == Found) || d != nil && !d.Equal(small()) {
					t.Errorf("%+v", d)
				}
				if st := s.Stats(); o.OK() && st.GetSuccess != 1 || !o.OK() && st.GetError != 1 || st.GetSuccess+st.GetError != 1 {
					t.Errorf("%+v", st)
				}
				s.wantIdle(t)
			})
		})
	}
}

func TestDeleteOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fail error
		s := newStage(t, &puppet{delete: func(context.Context, string) *Future[Void] {
			if fail != nil {
				return Failed[Void](fail)
			}
			return Completed(Void{})
		}})
		if o := s.del(t.Context(), "g"); o.Kind != Deleted || !o.OK() || o.String() != "deleted" {
			t.Errorf("%+v", o)
		}
		fail = errTest
		if o := s.del(t.Context(), "g"); o.Kind != TransientFailure || o.String() != "transient: test" {
			t.Errorf("%+v", o)
		}
		if st := s.Stats(); st.DeleteSuccess != 1 || st.DeleteError != 1 {
			t.Errorf("%+v", st)
		}
		s.wantSpans(t, "plugin delete group=g operation=delete outcome=deleted plugin=puppet took=0s",
			"plugin delete error.message=test group=g operation=delete outcome=transient permanent=false plugin=puppet ERROR took=0s")
	})
}

// TestValuesAreCopies: neither side can change the other's value.
func TestValuesAreCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept *Description
		s := newStage(t, &puppet{
			set: func(_ context.Context, _ string, _ int32, d *Description) *Future[Void] {
				kept = d
				return Completed(Void{})
			},
			get: func(context.Context, string, int32) *Future[*Description] { return Completed(kept) },
		})
		mine := small()
		done := make(chan Outcome, 1)
		s.Set(t.Context(), SetCall{Group: "g", Description: mine}, func(o Outcome) { done <- o })
		mine.Subtopologies[0].Nodes[0].Successors[0] = "changed at once"
		<-done
		got, _ := s.get(t.Context(), "g")
		if !got.Equal(small()) {
			t.Errorf("%+v", got)
		}
		got.Subtopologies[0].Nodes[0].Name = "changed"
		if again, _ := s.get(t.Context(), "g"); !again.Equal(small()) {
			t.Errorf("%+v", again)
		}
	})
}

// TestSpanLinksAndParents: the push's span is the parent, the heartbeat that asked is linked, and the plugin's context carries the
// call's span on.
func TestSpanLinksAndParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside trace.SpanContext
		s := newStage(t, &puppet{
			set: func(ctx context.Context, _ string, _ int32, _ *Description) *Future[Void] {
				inside = trace.SpanContextFromContext(ctx)
				return Completed(Void{})
			},
			get: func(context.Context, string, int32) *Future[*Description] { return Completed[*Description](nil) },
		})
		_, heartbeat := s.tracer.Start(t.Context(), "heartbeat")
		heartbeat.End()
		ctx, push := s.tracer.Start(t.Context(), "push")
		done := make(chan Outcome, 1)
		s.Set(ctx, SetCall{Group: "g\xff", Description: small(), Link: heartbeat.SpanContext()}, func(o Outcome) { done <- o })
		<-done
		s.get(ctx, "g")
		push.End()
		spans := s.spans.Ended()
		call := spans[1]
		if call.Name() != "plugin set" || call.Parent().SpanID() != push.SpanContext().SpanID() || call.SpanContext().SpanID() != inside.SpanID() {
			t.Errorf("%s, parent %s, inside %s", call.Name(), call.Parent().SpanID(), inside.SpanID())
		}
		if l := call.Links(); len(l) != 1 || !l[0].SpanContext.Equal(heartbeat.SpanContext()) {
			t.Errorf("links %+v", l)
		}
		if !slices.Contains(call.Attributes(), attribute.String("group", "g\uFFFD")) {
			t.Errorf("attributes %v", call.Attributes())
		}
		if l := spans[2].Links(); len(l) != 0 {
			t.Errorf("links of a get %+v", l)
		}
	})
}

func TestTracedRefusesNonsense(t *testing.T) {
	if _, err := NewTraced(nil, Config{}); err == nil {
		t.Error("no plugin")
	}
	if _, err := NewTraced(&puppet{}, Config{Timeout: -1}); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("%v", err)
	}
	s, err := NewTraced(&puppet{}, Config{})
	if err != nil || s.cfg.Timeout != 4*time.Second || s.cfg.Calls != 64 || s.Name() != "puppet" {
		t.Errorf("%+v, %v", s.cfg, err)
	}
}

func TestKafkasNames(t *testing.T) {
	var c Counters
	c.CleanupCycle()
	c.CleanupEligible(5)
	var got []string
	for _, k := range c.Stats().Kafka() {
		got = append(got, fmt.Sprintf("%s=%d", k.Name, k.Value))
	}
	const p = "streams-group-topology-description-"
	want := []string{p + "cleanup-cycle=1", p + "cleanup-eligible=5", p + "delete-success=0", p + "delete-error=0", p + "set-success=0", p + "set-error=0", p + "get-success=0", p + "get-error=0"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
