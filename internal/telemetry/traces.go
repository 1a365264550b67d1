package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Traces holds the provider of all tracers of the process.
type Traces struct {
	Provider trace.TracerProvider
	// Where is the endpoint that spans are sent to, for the start message; "" where tracing is off.
	Where    string
	shutdown func(context.Context) error
}

// StartTraces reads the standard variables. Tracing is on where OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
// or OTEL_TRACES_EXPORTER=otlp is set, and off where OTEL_SDK_DISABLED=true or OTEL_TRACES_EXPORTER=none. The protocol is
// OTEL_EXPORTER_OTLP_TRACES_PROTOCOL or OTEL_EXPORTER_OTLP_PROTOCOL, http/protobuf if neither is set; sampling, batching, headers
// and certificates are read by OpenTelemetry itself. attributes describe the replica.
func StartTraces(ctx context.Context, log *slog.Logger, attributes ...attribute.KeyValue) (*Traces, error) {
	where := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	exporter := os.Getenv("OTEL_TRACES_EXPORTER")
	off := &Traces{Provider: noop.NewTracerProvider(), shutdown: func(context.Context) error { return nil }}
	switch {
	case strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return off, nil
	case exporter != "" && exporter != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: want otlp or none", exporter)
	case where == "" && exporter == "":
		return off, nil
	}

	var e sdktrace.SpanExporter
	var err error
	protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
	switch protocol {
	case "grpc":
		e, err = otlptracegrpc.New(ctx)
	case "", "http/protobuf":
		e, err = otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%s: want grpc or http/protobuf", protocol)
	}
	if err != nil {
		return nil, fmt.Errorf("traces to %s: %w", where, err)
	}
	res, err := resource.New(ctx,
		resource.WithAttributes(append([]attribute.KeyValue{attribute.String("service.name", "streamkeeper")}, attributes...)...),
		resource.WithHost(), resource.WithProcessPID(), resource.WithTelemetrySDK(),
		resource.WithFromEnv()) // last: what the operator says wins
	if err != nil {
		log.Warn("the description of this process in traces is not complete", "err", err)
	}
	otel.SetErrorHandler(&undelivered{log: log, now: time.Now})
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(validText{e}), sdktrace.WithResource(res))
	if where == "" {
		where = "localhost"
	}
	return &Traces{Provider: p, Where: where, shutdown: p.Shutdown}, nil
}

// Shutdown sends what is left, as long as ctx lasts.
func (t *Traces) Shutdown(ctx context.Context) error { return t.shutdown(ctx) }

func first(names ...string) string {
	for _, n := range names {
		if v := os.Getenv(n); v != "" {
			return v
		}
	}
	return ""
}
