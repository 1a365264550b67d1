package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A heartbeat that writes is three spans, one below the other: the request, the shard's work, the append. The rebalance that it makes is a trace
// of its own.
func TestRequestShardAndAppendAreOneTrace(t *testing.T) {
	var mu sync.Mutex
	spans := map[string]*tracev1.Span{}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		var req collector.ExportTraceServiceRequest
		if err := proto.Unmarshal(b, &req); err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				for _, s := range ss.Spans {
					spans[hex.EncodeToString(s.SpanId)] = s
				}
			}
		}
	}))
	defer srv.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")

	d := startDev(t, t.TempDir())
	produce(t, d, 1)
	newMember(t, d, "traced").join(4)
	if code := d.stop(); code != 0 { // sends the last spans
		t.Fatalf("dev ended with %d", code)
	}

	mu.Lock()
	defer mu.Unlock()
	rebalances := 0
	for _, s := range spans {
		if s.Name != "rebalance" {
			continue
		}
		rebalances++
		attributes := map[string]string{}
		for _, a := range s.Attributes {
			attributes[a.Key] = a.Value.GetStringValue()
		}
		if attributes["group"] != "traced" || attributes["because"] != "member member-1 joined; the topology is ready" || attributes["outcome"] != "stable" || len(s.Events) < 3 {
			t.Errorf("rebalance: %v with %d events", attributes, len(s.Events))
		}
		if len(s.ParentSpanId) > 0 || len(s.Links) == 0 {
			t.Errorf("rebalance: parent %x, %d links; want a root that links to heartbeats", s.ParentSpanId, len(s.Links))
		}
		for _, l := range s.Links {
			if to := spans[hex.EncodeToString(l.SpanId)]; to == nil || to.Name != "shard heartbeat" {
				t.Errorf("a link leads to %v", to)
			}
		}
	}
	if rebalances != 1 {
		t.Errorf("%d rebalances, want 1", rebalances)
	}
	chains := 0
	for _, s := range spans {
		if s.Name != "append" {
			continue
		}
		shard := spans[hex.EncodeToString(s.ParentSpanId)]
		if shard == nil || shard.Name != "shard heartbeat" {
			continue
		}
		request := spans[hex.EncodeToString(shard.ParentSpanId)]
		if request == nil || request.Name != "StreamsGroupHeartbeat" {
			t.Fatalf("the parent of %q is %v", shard.Name, request)
		}
		attributes := map[string]string{}
		for _, a := range append(request.Attributes, shard.Attributes...) {
			attributes[a.Key] = a.Value.GetStringValue()
		}
		if attributes["group"] != "traced" || attributes["member"] != "member-1" {
			t.Errorf("attributes %v", attributes)
		}
		chains++
	}
	if chains == 0 {
		names := map[string]int{}
		for _, s := range spans {
			names[s.Name]++
		}
		t.Errorf("no append below a shard below a request in %v", names)
	}
}
