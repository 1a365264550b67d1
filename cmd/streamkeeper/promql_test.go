package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

const (
	// scrapeEvery and evaluateEvery are Prometheus' pace here: between its default of a minute and the usual 15 seconds.
	scrapeEvery   = 30 * time.Second
	evaluateEvery = 30 * time.Second
)

// prometheusEpoch is when the history of a test begins. Clocks of the pages are moved there.
var prometheusEpoch = time.Unix(1_800_000_000, 0)

// sample is a value at a time; it implements chunks.Sample.
type sample struct {
	t int64 // ms
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// history is what a Prometheus has of some replicas, queried by Prometheus' own engine. It implements storage.Queryable.
type history struct {
	t      *testing.T
	engine *promql.Engine
	now    time.Time
	series map[string]*pastOf // by labels
}

type pastOf struct {
	labels  labels.Labels
	samples []chunks.Sample
}

func newHistory(t *testing.T) *history {
	return &history{
		t: t, now: prometheusEpoch, series: map[string]*pastOf{},
		engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true}),
	}
}

// page is what one replica answers to a scrape; nil: nothing.
type page map[string]*dto.MetricFamily

func parsePage(t *testing.T, text string) page {
	t.Helper()
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// scrape stores the pages of all replicas, by instance, and goes on to the next scrape.
func (h *history) scrape(pages map[string]page) {
	for instance, p := range pages {
		target := []string{"job", "streamkeeper", "instance", instance}
		up := 1.0
		if p == nil {
			up = 0
			for _, s := range h.series { // what was there is stale now, as Prometheus marks it when a scrape fails
				if s.labels.Get("instance") == instance && s.labels.Get("__name__") != "up" {
					s.stale(h.now)
				}
			}
		}
		h.add(up, append(target, "__name__", "up")...)
		for name, family := range p {
			for _, m := range family.Metric {
				of := slices.Clone(target)
				for _, l := range m.Label {
					of = append(of, l.GetName(), l.GetValue())
				}
				switch family.GetType() {
				case dto.MetricType_COUNTER:
					h.add(m.Counter.GetValue(), append(of, "__name__", name)...)
				case dto.MetricType_GAUGE:
					h.add(m.Gauge.GetValue(), append(of, "__name__", name)...)
				case dto.MetricType_HISTOGRAM:
					h.add(float64(m.Histogram.GetSampleCount()), append(of, "__name__", name+"_count")...)
					h.add(m.Histogram.GetSampleSum(), append(of, "__name__", name+"_sum")...)
					for _, b := range m.Histogram.Bucket {
						h.add(float64(b.GetCumulativeCount()), append(of, "__name__", name+"_bucket", "le", fmt.Sprint(b.GetUpperBound()))...)
					}
				}
			}
		}
	}
	h.now = h.now.Add(scrapeEvery)
}

// add adds a sample of now.
func (h *history) add(v float64, pairs ...string) {
	l := labels.FromStrings(pairs...)
	s := h.series[l.String()]
	if s == nil {
		s = &pastOf{labels: l}
		h.series[l.String()] = s
	}
	s.samples = append(s.samples, sample{h.now.UnixMilli(), v})
}

// stale ends a series.
func (p *pastOf) stale(now time.Time) {
	if n := len(p.samples); n > 0 && !value.IsStaleNaN(p.samples[n-1].F()) {
		p.samples = append(p.samples, sample{now.UnixMilli(), math.Float64frombits(value.StaleNaN)})
	}
}

// Querier implements storage.Queryable.
func (h *history) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		var found []storage.Series
		for _, s := range h.series {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
				found = append(found, storage.NewListSeries(s.labels, s.samples))
			}
		}
		slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
		return &seriesSet{series: found}
	}}, nil
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	series []storage.Series
	at     int
}

func (s *seriesSet) Next() bool                        { s.at++; return s.at <= len(s.series) }
func (s *seriesSet) At() storage.Series                { return s.series[s.at-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// query evaluates an expression at a time.
func (h *history) query(expr string, at time.Time) promql.Vector {
	h.t.Helper()
	q, err := h.engine.NewInstantQuery(context.Background(), h, nil, expr, at)
	if err != nil {
		h.t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	r := q.Exec(context.Background())
	if r.Err != nil {
		h.t.Fatalf("%s: %v", expr, r.Err)
	}
	v, err := r.Vector()
	if err != nil {
		h.t.Fatalf("%s: %v", expr, err)
	}
	return append(promql.Vector(nil), v...)
}

// firing is when an alarm fires first from a time on, as Prometheus evaluates it: each of its results must have been there for as long as the rule says.
func (h *history) firing(r rule, from time.Time) (at time.Time, ok bool) {
	h.t.Helper()
	since := map[string]time.Time{}
	for at = from; at.Before(h.now); at = at.Add(evaluateEvery) {
		active := map[string]time.Time{}
		for _, s := range h.query(r.Expr, at) {
			of := s.Metric.String()
			active[of] = at
			if before, ok := since[of]; ok {
				active[of] = before
			}
			if at.Sub(active[of]) >= time.Duration(r.For) {
				return at, true
			}
		}
		since = active
	}
	return time.Time{}, false
}

// selectors are those of an expression, as text.
func selectors(t *testing.T, expr string) (out []string) {
	t.Helper()
	e, err := parser.ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			out = append(out, s.String())
		}
		return nil
	})
	return out
}
