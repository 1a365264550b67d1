package telemetry

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// One span with a byte that is no UTF-8 must not cost the others their way to the collector.
func TestBadBytesDoNotCostOtherSpans(t *testing.T) {
	var mu sync.Mutex
	names := map[string]string{} // the attribute "group" by name
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var got collector.ExportTraceServiceRequest
		b, _ := io.ReadAll(r.Body)
		if err := proto.Unmarshal(b, &got); err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		for _, s := range got.ResourceSpans[0].ScopeSpans[0].Spans {
			names[s.Name] = ""
			for _, a := range s.Attributes {
				if a.Key == "group" {
					names[s.Name] = a.Value.GetStringValue()
				}
			}
		}
	}))
	defer srv.Close()
	clearOTel(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
	tr, err := StartTraces(context.Background(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tracer := tr.Provider.Tracer("x")
	_, good := tracer.Start(context.Background(), "good", trace.WithAttributes(attribute.String("group", "g")))
	good.End()
	for name, spoil := range map[string]func(trace.Span){
		"attribute": func(s trace.Span) { s.SetAttributes(attribute.String("group", "g\xff")) },
		"list":      func(s trace.Span) { s.SetAttributes(attribute.StringSlice("topics", []string{"t", "\xfe"})) },
		"status":    func(s trace.Span) { s.SetStatus(codes.Error, "no such group g\xff") },
		"event":     func(s trace.Span) { s.AddEvent("e\xff", trace.WithAttributes(attribute.String("x", "\xff"))) },
	} {
		_, bad := tracer.Start(context.Background(), name)
		spoil(bad)
		bad.End()
	}
	_, bad := tracer.Start(context.Background(), "name\xff")
	bad.End()
	if err := tr.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(names) != 6 || names["good"] != "g" || names["attribute"] != "g?" {
		t.Errorf("the collector got %q", names)
	}
	if _, ok := names["name?"]; !ok {
		t.Errorf("the collector got %q", names)
	}
}
