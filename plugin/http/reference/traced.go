package reference

import (
	nethttp "net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Traced makes a span of each request to h, below the one that the request's W3C trace context names: the call of the plugin in
// streamkeeper, which so goes on in the service that it called.
func Traced(h nethttp.Handler, tracer trace.Tracer) nethttp.Handler {
	return nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := tracer.Start(ctx, r.Method+" topologies", trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("url.path", r.URL.EscapedPath())))
		defer span.End()
		s := &statusWriter{ResponseWriter: w, status: nethttp.StatusOK}
		h.ServeHTTP(s, r.WithContext(ctx))
		span.SetAttributes(attribute.Int("http.response.status_code", s.status))
		if s.status >= nethttp.StatusInternalServerError {
			span.SetStatus(codes.Error, nethttp.StatusText(s.status))
		}
	})
}

// statusWriter remembers the status of the answer.
type statusWriter struct {
	nethttp.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
