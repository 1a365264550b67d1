package crash

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spans is a collector of traces.
type spans struct {
	mu   sync.Mutex
	byID map[string]*tracev1.Span
}

func (s *spans) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req collector.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(body, &req) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, resource := range req.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				s.byID[hex.EncodeToString(span.SpanId)] = span
			}
		}
	}
}

// The life of a description as its service sees it: it is put, got and deleted, once each, and every request names the span of the call, so
// that a service that is traced shows up below it.
func TestTheServiceOfTheHTTPPluginIsAskedWithTheTraceContext(t *testing.T) {
	notShort(t)
	collected := &spans{byID: map[string]*tracev1.Span{}}
	server := httptest.NewServer(collected)
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
	w := newWorld(t, inCatalogue, 1)
	g := &scene{group: "pictured"}
	w.prepare(g) // its last look at the description is one of several
	w.delete(g.group)
	w.replicas[0].Stop() // sends the last spans

	w.mu.Lock()
	defer w.mu.Unlock()
	var seen []string
	for _, r := range w.asked {
		if strings.HasPrefix(r.URL.Path, "/test/") {
			continue
		}
		path := strings.TrimPrefix(r.URL.Path, "/"+replicaName(0))
		seen = append(seen, r.Method+" "+path)
		parts := strings.Split(r.Header.Get("Traceparent"), "-")
		if len(parts) != 4 || parts[0] != "00" {
			t.Errorf("%s %s: traceparent %q", r.Method, path, r.Header.Get("Traceparent"))
			continue
		}
		collected.mu.Lock()
		span := collected.byID[parts[2]]
		collected.mu.Unlock()
		if span == nil || hex.EncodeToString(span.TraceId) != parts[1] {
			t.Errorf("%s %s: no span %s of trace %s was sent", r.Method, path, parts[2], parts[1])
			continue
		}
		attributes := map[string]string{}
		for _, a := range span.Attributes {
			attributes[a.Key] = a.Value.GetStringValue()
		}
		if !slices.Contains([]string{attributes["group"], attributes["kafka.group"]}, g.group) {
			t.Errorf("%s %s: the span %q has the attributes %v", r.Method, path, span.Name, attributes)
		}
		if r.Method == http.MethodPut && len(span.Links) == 0 {
			t.Error("the span of the push is not linked to the heartbeat that asked for it")
		}
	}
	want := []string{"PUT /groups/pictured/topologies/0", "GET /groups/pictured/topologies/0", "DELETE /groups/pictured/topologies"}
	if got := slices.Compact(seen); !slices.Equal(got, want) {
		t.Errorf("the service was asked %q, want %q", got, want)
	}
}
