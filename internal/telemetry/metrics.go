package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"streamkeeper/internal/sensor"
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

// FloatGauge registers a value that goes up and down and is no whole number.
func (m *Metrics) FloatGauge(name, help string, read func() float64) error {
	g, err := m.meter.Float64ObservableGauge(namespace+name, metric.WithDescription(help))
	if err != nil {
		return fmt.Errorf("metric %s: %w", name, err)
	}
	_, err = m.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveFloat64(g, read())
		return nil
	}, g)
	return err
}

// histogramBounds are those of latencies, 100 µs to 10 s.
var histogramBounds = []time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
}

// Histogram registers a histogram of durations, named streamkeeper_NAME_seconds.
func (m *Metrics) Histogram(name, help string, h *sensor.Histogram) error {
	full := strings.ReplaceAll(namespace+name, ".", "_") + "_seconds"
	if err := m.registry.Register(histogram{prometheus.NewDesc(full, help, nil, nil), h}); err != nil {
		return fmt.Errorf("metric %s: %w", name, err)
	}
	return nil
}

// histogram is a sensor.Histogram as Prometheus reads it.
type histogram struct {
	desc *prometheus.Desc
	h    *sensor.Histogram
}

// Describe implements prometheus.Collector.
func (h histogram) Describe(ch chan<- *prometheus.Desc) { ch <- h.desc }

// Collect implements prometheus.Collector.
func (h histogram) Collect(ch chan<- prometheus.Metric) {
	n, sum, below := h.h.Cumulative(histogramBounds)
	buckets := make(map[float64]uint64, len(below))
	for i, b := range below {
		buckets[histogramBounds[i].Seconds()] = uint64(b)
	}
	ch <- prometheus.MustNewConstHistogram(h.desc, uint64(n), sum.Seconds(), buckets)
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
