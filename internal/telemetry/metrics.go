package telemetry

import (
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// Metrics is the registry behind /metrics.
type Metrics struct {
	registry *prometheus.Registry
	provider *sdkmetric.MeterProvider
	meter    metric.Meter
}

// NewMetrics returns a registry with the metrics of the Go process in it.
func NewMetrics() (*Metrics, error) {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	e, err := otelprom.New(otelprom.WithRegisterer(r), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	p := sdkmetric.NewMeterProvider(sdkmetric.WithReader(e))
	return &Metrics{registry: r, provider: p, meter: p.Meter("streamkeeper")}, nil
}

// Provider is for libraries that bring instruments of their own.
func (m *Metrics) Provider() metric.MeterProvider { return m.provider }

// Handler answers a scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// Reading is one value with its attributes, as pairs of name and value.
type Reading struct {
	Value      int64
	Attributes []string
}

// Read is a reading without attributes.
func Read(v int64) []Reading { return []Reading{{Value: v}} }

// namespace begins the names of all our metrics.
const namespace = "streamkeeper."

// Counter registers a counter that only grows, named streamkeeper_NAME_total for Prometheus; read is called at each scrape and must not block.
func (m *Metrics) Counter(name, help string, read func() []Reading) error {
	c, err := m.meter.Int64ObservableCounter(namespace+name, metric.WithDescription(help))
	if err != nil {
		return fmt.Errorf("metric %s: %w", name, err)
	}
	return m.observe(c, read)
}

// Gauge registers a value that goes up and down.
func (m *Metrics) Gauge(name, help string, read func() []Reading) error {
	g, err := m.meter.Int64ObservableGauge(namespace+name, metric.WithDescription(help))
	if err != nil {
		return fmt.Errorf("metric %s: %w", name, err)
	}
	return m.observe(g, read)
}

func (m *Metrics) observe(i metric.Int64Observable, read func() []Reading) error {
	_, err := m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, r := range read() {
			kv := make([]attribute.KeyValue, 0, len(r.Attributes)/2)
			for i := 0; i+1 < len(r.Attributes); i += 2 {
				kv = append(kv, attribute.String(r.Attributes[i], r.Attributes[i+1]))
			}
			o.ObserveInt64(i, r.Value, metric.WithAttributes(kv...))
		}
		return nil
	}, i)
	return err
}
