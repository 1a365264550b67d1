package traces

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// receiver takes spans with OTLP over HTTP and keeps them.
type receiver struct {
	url string
	mu  sync.Mutex
	all spans
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var sent collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &sent)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			t.Error(err)
			return
		}
		r.take(&sent)
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

func (r *receiver) take(sent *collector.ExportTraceServiceRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range sent.ResourceSpans {
		service := values(of.Resource.Attributes)["service.name"]
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				r.all = append(r.all, received(service, s))
			}
		}
	}
}

func received(service string, s *tracev1.Span) span {
	out := span{
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Service: service, Name: s.Name, Attributes: values(s.Attributes), Failed: s.Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR,
		Start: time.Unix(0, int64(s.StartTimeUnixNano)), Took: time.Duration(s.EndTimeUnixNano - s.StartTimeUnixNano),
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, hex.EncodeToString(l.SpanId))
	}
	for _, e := range s.Events {
		out.Events = append(out.Events, e.Name)
	}
	return out
}

func values(list []*common.KeyValue) map[string]string {
	m := map[string]string{}
	for _, kv := range list {
		switch v := kv.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			m[kv.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			m[kv.Key] = strconv.FormatInt(v.IntValue, 10)
		case *common.AnyValue_BoolValue:
			m[kv.Key] = strconv.FormatBool(v.BoolValue)
		}
	}
	return m
}

func (r *receiver) endpoint() string { return r.url }

func (r *receiver) spans() (spans, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(spans(nil), r.all...), nil
}

// TestTraces plays the story with the receiver.
func TestTraces(t *testing.T) { play(t, newReceiver(t)) }
