package reference

import (
	nethttp "net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestTracedGoesOnWithTheTrace(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	h := Traced(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, _ *nethttp.Request) { w.WriteHeader(503) }),
		sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer(""))
	r := httptest.NewRequest("PUT", "/groups/g/topologies/0", nil)
	r.Header.Set("traceparent", "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	span := recorder.Ended()[0]
	if w.Code != 503 || span.Parent().SpanID().String() != "0102030405060708" || span.SpanContext().TraceID().String() != "0102030405060708090a0b0c0d0e0f10" ||
		span.Status().Code != codes.Error {
		t.Errorf("status %d, span %+v", w.Code, span)
	}
}
