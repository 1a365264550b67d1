package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"streamkeeper/internal/sensor"
)

func TestLoggerFormats(t *testing.T) {
	var b bytes.Buffer
	log, err := NewLogger(&b, "info", "auto")
	if err != nil {
		t.Fatal(err)
	}
	log.Debug("hidden")
	log.Info("seen", "group", "orders", "epoch", 3, "took", 1500*time.Millisecond)
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatalf("not a JSON line: %q: %v", b.String(), err)
	}
	if line["msg"] != "seen" || line["group"] != "orders" || line["epoch"] != 3.0 || line["took"] != "1.5s" {
		t.Errorf("line %v", line)
	}

	b.Reset()
	if log, err = NewLogger(&b, "debug", "text"); err != nil {
		t.Fatal(err)
	}
	log.Debug("seen", "group", "orders")
	if s := b.String(); !strings.Contains(s, "seen group=orders") || strings.Contains(s, "\x1b[") {
		t.Errorf("text line %q", s)
	}
	for _, c := range [][3]string{{"loud", "auto", `log level "loud"`}, {"info", "xml", `log format "xml"`}} {
		if _, err := NewLogger(&b, c[0], c[1]); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// clearOTel unsets what the machine that runs the test may have set.
func clearOTel(t *testing.T) {
	for _, v := range []string{"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"} {
		t.Setenv(v, "")
	}
}

func TestTracesAreOffUnlessAskedFor(t *testing.T) {
	for name, env := range map[string]map[string]string{
		"nothing set": {},
		"disabled":    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
		"none":        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
	} {
		t.Run(name, func(t *testing.T) {
			clearOTel(t)
			for k, v := range env {
				t.Setenv(k, v)
			}
			tr, err := StartTraces(context.Background(), slog.New(slog.DiscardHandler))
			if err != nil || tr.Where != "" {
				t.Fatalf("where %q, %v", tr.Where, err)
			}
			_, span := tr.Provider.Tracer("").Start(context.Background(), "x")
			if span.IsRecording() {
				t.Error("a span is recorded")
			}
			if err := tr.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTracesRefuseWhatTheyCantDo(t *testing.T) {
	for name, env := range map[string]string{
		"OTEL_TRACES_EXPORTER":               "zipkin",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json",
	} {
		clearOTel(t)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		t.Setenv(name, env)
		if _, err := StartTraces(context.Background(), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), env) {
			t.Errorf("%s=%s: %v", name, env, err)
		}
	}
}

func TestTracesReachTheCollector(t *testing.T) {
	var mu sync.Mutex
	var got collector.ExportTraceServiceRequest
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if err := proto.Unmarshal(b, &got); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
	}))
	defer srv.Close()
	clearOTel(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment=test")
	tr, err := StartTraces(context.Background(), slog.New(slog.DiscardHandler), attribute.Int("node", 7))
	if err != nil {
		t.Fatal(err)
	}
	if tr.Where != srv.URL {
		t.Errorf("where %q", tr.Where)
	}
	_, span := tr.Provider.Tracer("x").Start(context.Background(), "beat")
	span.End()
	if err := tr.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(got.ResourceSpans) != 1 || got.ResourceSpans[0].ScopeSpans[0].Spans[0].Name != "beat" {
		t.Fatalf("the collector got %v", &got)
	}
	attributes := map[string]string{}
	for _, a := range got.ResourceSpans[0].Resource.Attributes {
		attributes[a.Key] = a.Value.String()
	}
	for k, want := range map[string]string{"service.name": "streamkeeper", "deployment": "test", "node": "7"} {
		if !strings.Contains(attributes[k], want) {
			t.Errorf("resource attribute %s is %q, want %s", k, attributes[k], want)
		}
	}
}

func get(t *testing.T, a *Admin, path string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + a.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestAdmin(t *testing.T) {
	waits := new(sensor.Histogram)
	for range 3 {
		waits.Record(2 * time.Millisecond)
	}
	waits.Record(2 * time.Minute)
	m, err := NewMetrics()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(
		m.Counter("offset.commit", "Offsets committed.", func() []Reading { return Read(42) }),
		m.Gauge("num.partitions", "Shards.", func() []Reading {
			return []Reading{{Value: 3, Attributes: []string{"state", "active"}}, {Value: 1, Attributes: []string{"state", "loading"}}}
		}),
		m.FloatGauge("offset.commit.rate", "Per second.", func() float64 { return 0.25 }),
		m.Histogram("event.queue.time", "Waiting.", waits),
	); err != nil {
		t.Fatal(err)
	}
	a, err := ListenAdmin("127.0.0.1:0", m, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- a.Serve() }()

	if code, body := get(t, a, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("/healthz: %d %q", code, body)
	}
	if code, body := get(t, a, "/readyz"); code != 503 || body != "starting\n" {
		t.Errorf("/readyz before there are checks: %d %q", code, body)
	}
	var missing atomic.Int64
	missing.Store(2)
	a.Require(Check{"log", func() error { return nil }}, Check{"shards", func() error {
		if n := missing.Load(); n > 0 {
			return fmt.Errorf("%d to go", n)
		}
		return nil
	}})
	if code, body := get(t, a, "/readyz"); code != 503 || body != "log: ok\nshards: 2 to go\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	missing.Store(0)
	if code, body := get(t, a, "/readyz"); code != 200 || body != "log: ok\nshards: ok\n" {
		t.Errorf("/readyz: %d %q", code, body)
	}
	a.Handle("GET /shards", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "[]") }))
	if code, body := get(t, a, "/shards"); code != 200 || body != "[]" {
		t.Errorf("/shards: %d %q", code, body)
	}
	if code, body := get(t, a, "/"); code != 200 || body != "streamkeeper\n\n/healthz\n/readyz\n/metrics\n/shards\n" {
		t.Errorf("/: %d %q", code, body)
	}
	if code, _ := get(t, a, "/nothing"); code != 404 {
		t.Errorf("/nothing: %d", code)
	}
	_, body := get(t, a, "/metrics")
	for _, line := range []string{
		"streamkeeper_offset_commit_total 42",
		`streamkeeper_num_partitions{state="active"} 3`,
		`streamkeeper_num_partitions{state="loading"} 1`,
		"streamkeeper_offset_commit_rate 0.25",
		`streamkeeper_event_queue_time_seconds_bucket{le="0.001"} 0`, `streamkeeper_event_queue_time_seconds_bucket{le="0.0025"} 3`,
		`streamkeeper_event_queue_time_seconds_bucket{le="10"} 3`, `streamkeeper_event_queue_time_seconds_bucket{le="+Inf"} 4`,
		"streamkeeper_event_queue_time_seconds_sum 120.006", "streamkeeper_event_queue_time_seconds_count 4",
		"process_open_fds", "go_goroutines",
	} {
		if !strings.Contains(body, line) {
			t.Errorf("/metrics lacks %q", line)
		}
	}
	if _, err := ListenAdmin(a.Addr().String(), nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--admin-listen") {
		t.Errorf("an address that is taken: %v", err)
	}
	if err := errors.Join(a.Close(context.Background()), <-served); err != nil {
		t.Error(err)
	}
}
