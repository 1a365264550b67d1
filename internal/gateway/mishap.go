package gateway

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// mishaps counts what is left out of the log between two lines of a kind. Kinds are constants and host names never
// among them, so the map stays small.
type mishaps struct {
	mu    sync.Mutex
	kinds map[string]*mishap
}

type mishap struct {
	last    time.Time
	skipped int
}

// warn logs at most one line per kind and logInterval; the next line says how many were left out.
func (g *Gateway) warn(kind, msg string, args ...any) {
	g.mishaps.mu.Lock()
	if g.mishaps.kinds == nil {
		g.mishaps.kinds = map[string]*mishap{}
	}
	m := g.mishaps.kinds[kind]
	if m == nil {
		m = &mishap{}
		g.mishaps.kinds[kind] = m
	}
	now := time.Now()
	if !m.last.IsZero() && now.Sub(m.last) < logInterval {
		m.skipped++
		g.mishaps.mu.Unlock()
		return
	}
	skipped := m.skipped
	m.last, m.skipped = now, 0
	g.mishaps.mu.Unlock()
	if skipped > 0 {
		args = append(args, "since_last_line", skipped)
	}
	g.log.Warn(msg, args...)
}

// refusedReasons are what a connection, or something on it, is refused for. All are counted from the beginning, with 0: a rule that asks how much a counter
// has grown does not see one that begins with 1.
var refusedReasons = []string{
	"accept", "body", "broker port", "connections", "exactly once", "frame", "header", "log topic", "protocol", "sasl", "stalled", "upstream", "upstream down", "version",
}

// metrics are the gateway's counters.
type metrics struct {
	connections metric.Int64UpDownCounter
	requests    metric.Int64Counter
	refused     metric.Int64Counter
	dialFailure metric.Int64Counter
	attributes  [kmsg.MaxKey + 1]map[string]metric.MeasurementOption
}

func newMetrics(m metric.Meter) (*metrics, error) {
	var ms metrics
	var err [4]error
	ms.connections, err[0] = m.Int64UpDownCounter("streamkeeper.gateway.connections", metric.WithDescription("open client connections"))
	ms.requests, err[1] = m.Int64Counter("streamkeeper.gateway.requests", metric.WithDescription("requests by API and by where they went: local, forwarded"))
	ms.refused, err[2] = m.Int64Counter("streamkeeper.gateway.refused", metric.WithDescription("connections and writes refused, by reason"))
	ms.dialFailure, err[3] = m.Int64Counter("streamkeeper.gateway.upstream.failures", metric.WithDescription("client connections closed because no upstream could be reached, by node"))
	for _, e := range err {
		if e != nil {
			return nil, e
		}
	}
	for _, reason := range refusedReasons {
		ms.refused.Add(context.Background(), 0, metric.WithAttributes(attribute.String("reason", reason)))
	}
	for key := range ms.attributes {
		ms.attributes[key] = map[string]metric.MeasurementOption{}
		for _, where := range []string{"local", "forwarded"} {
			ms.attributes[key][where] = metric.WithAttributeSet(attribute.NewSet(attribute.String("api", kmsg.NameForKey(int16(key))), attribute.String("where", where)))
		}
	}
	return &ms, nil
}

func (m *metrics) request(ctx context.Context, key int16, where string) {
	m.requests.Add(ctx, 1, m.attributes[key][where])
}

func (m *metrics) refuse(ctx context.Context, reason string) {
	m.refused.Add(ctx, 1, metric.WithAttributes(attribute.String("reason", reason)))
}

func (m *metrics) dialFailed(ctx context.Context, node int32) {
	m.dialFailure.Add(ctx, 1, metric.WithAttributes(attribute.Int("node", int(node))))
}
