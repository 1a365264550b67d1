package main

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
)

// with is the page with another value of one metric; the labels, if there are some, as in name{label="value"}.
func (p page) with(t *testing.T, metric string, value float64) page {
	t.Helper()
	name, label, _ := strings.Cut(strings.TrimSuffix(metric, `"}`), "{")
	label, labelValue, _ := strings.Cut(label, `="`)
	out := maps.Clone(p)
	family := proto.CloneOf(p[name])
	found := false
	for _, m := range family.GetMetric() {
		if label != "" && !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == label && l.GetValue() == labelValue }) {
			continue
		}
		found = true
		switch {
		case m.Counter != nil:
			m.Counter.Value = &value
		case m.Gauge != nil:
			m.Gauge.Value = &value
		}
	}
	if !found {
		t.Fatalf("no %s on the page", metric)
	}
	out[name] = family
	return out
}

// slow is the page with n more observations of a histogram above the largest of its bounds that is below ten seconds.
func (p page) slow(name string, n uint64) page {
	out := maps.Clone(p)
	family := proto.CloneOf(p[name])
	h := family.Metric[0].Histogram
	*h.SampleCount += n
	for _, b := range h.Bucket {
		if b.GetUpperBound() > 2.5 {
			*b.CumulativeCount += n
		}
	}
	out[name] = family
	return out
}

// story is what happens to the first of three replicas after half an hour in which all is well: the page at the i-th scrape since; nil: it does not answer.
type story func(t *testing.T, well page, i int) page

// always is a metric that has another value from then on; growing is a counter that goes on growing.
func always(metric string, value float64) story {
	return func(t *testing.T, well page, _ int) page { return well.with(t, metric, value) }
}

func growing(metric string) story {
	return func(t *testing.T, well page, i int) page { return well.with(t, metric, float64(1+i)) }
}

// alarmStories are, for each alarm, a story that makes it fire, or two.
var alarmStories = map[string][]story{
	"StreamkeeperShardUnserved":           {always(`streamkeeper_num_partitions{state="active"}`, 0)},
	"StreamkeeperReplicaMissing":          {func(*testing.T, page, int) page { return nil }},
	"StreamkeeperShardsLoading":           {always(`streamkeeper_num_partitions{state="loading"}`, 1)},
	"StreamkeeperShardHung":               {always("streamkeeper_shard_hung", 1)},
	"StreamkeeperShardsDeclined":          {always(`streamkeeper_shard_declined{reason="clock"}`, 2), always(`streamkeeper_shard_declined{reason="broker"}`, 2)},
	"StreamkeeperProjectionRefused":       {always("streamkeeper_projection_refused", 1)},
	"StreamkeeperProjectionLagging":       {always("streamkeeper_projection_lag", 10_001)},
	"StreamkeeperAppendsFailing":          {growing("streamkeeper_shard_appends_failed_total")},
	"StreamkeeperClaimsFailing":           {growing("streamkeeper_shard_claims_failed_total")},
	"StreamkeeperOverloaded":              {growing("streamkeeper_shard_overloaded_total")},
	"StreamkeeperBug":                     {always("streamkeeper_shard_panics_total", 1), always("streamkeeper_shard_apply_failed_total", 1)},
	"StreamkeeperRebuilt":                 {always(`streamkeeper_projection_rebuilds_total{reason="log was cut off"}`, 1), startsDamaged},
	"StreamkeeperInternalTopicsFailing":   {growing("streamkeeper_internal_topics_failed_total")},
	"StreamkeeperConversionFailing":       {growing("streamkeeper_groups_conversion_failed_total")},
	"StreamkeeperDescriptionsFailing":     {growing("streamkeeper_streams_group_topology_description_set_error_total"), growing("streamkeeper_streams_group_topology_description_delete_error_total")},
	"StreamkeeperDescriptionTopicRefused": {always("streamkeeper_description_topic_refused", 1)},
	"StreamkeeperNotReady":                {always("streamkeeper_ready", 0)},
	"StreamkeeperStorageFailing":          {always("streamkeeper_storage_failed", 1)},
	"StreamkeeperRestarting": {func(t *testing.T, well page, i int) page {
		return well.with(t, "process_start_time_seconds", float64(prometheusEpoch.Unix()+int64(i/8)))
	}},
	"StreamkeeperAppendsSlow": {func(_ *testing.T, well page, i int) page {
		return well.slow("streamkeeper_batch_flush_time_seconds", uint64(i))
	}},
	"StreamkeeperAnswersWithheld": {growing("streamkeeper_shard_lease_refusals_total")},
	"StreamkeeperClientsRefused":  {growing(`streamkeeper_gateway_refused_total{reason="connections"}`), growing(`streamkeeper_gateway_refused_total{reason="accept"}`)},
	"StreamkeeperFileDescriptors": {func(t *testing.T, well page, _ int) page {
		return well.with(t, "process_max_fds", 1000).with(t, "process_open_fds", 801)
	}},
	"StreamkeeperCleanupSlow":    {always("streamkeeper_cleanup_last_duration_ms", 300_001)},
	"StreamkeeperCleanupFailing": {growing("streamkeeper_cleanup_failures_total")},
	"StreamkeeperPluginSlow":     {growing("streamkeeper_plugin_timed_out_total"), growing("streamkeeper_plugin_busy_total")},
	"StreamkeeperGroupsNotReady": {always(`streamkeeper_streams_group_count{state="NotReady"}`, 1)},
}

// startsDamaged is a replica that ends, and starts again with a store that is damaged: the counter is 1 at the first scrape.
func startsDamaged(t *testing.T, well page, i int) page {
	if i < 4 {
		return nil
	}
	started := prometheusEpoch.Add(time.Duration(calmScrapes+4) * scrapeEvery)
	return well.with(t, `streamkeeper_projection_rebuilds_total{reason="damaged"}`, 1).with(t, "process_start_time_seconds", float64(started.Unix()))
}

const (
	// calmScrapes are half an hour, storyScrapes one and three quarters: longer than any rule looks back and waits.
	calmScrapes  = 60
	storyScrapes = 210
)

// Each alarm fires when what it is for happens, by Prometheus' own engine over the pages of a real replica, and none while all is well.
func TestAlarmsFire(t *testing.T) {
	d := startDev(t, t.TempDir())
	produce(t, d, 1)
	newMember(t, d, "orders").join(4)
	rules := alerts(t)
	real := parsePage(t, metricsOf(t, d)).with(t, "process_start_time_seconds", float64(prometheusEpoch.Add(-24*time.Hour).Unix()))
	// Of the four shards the first replica has two. A history has only what the rule asks for: it is long.
	past := func(r rule, what story, scrapes int) *history {
		asked := page{}
		for _, s := range selectors(t, r.Expr) {
			name, _, _ := strings.Cut(s, "{")
			name = strings.TrimSuffix(name, "_bucket")
			if f := real[name]; f != nil {
				asked[name] = f
			}
		}
		two, one := asked, asked
		if active := `streamkeeper_num_partitions{state="active"}`; asked["streamkeeper_num_partitions"] != nil {
			two, one = asked.with(t, active, 2), asked.with(t, active, 1)
		}
		h := newHistory(t)
		for i := range scrapes {
			first := two
			if what != nil && i >= calmScrapes {
				first = what(t, two, i-calmScrapes)
			}
			h.scrape(map[string]page{"a": first, "b": one, "c": one})
		}
		return h
	}
	begins := prometheusEpoch.Add(calmScrapes * scrapeEvery)
	stories := maps.Clone(alarmStories)
	for _, r := range rules {
		if at, ok := past(r, nil, 2*calmScrapes).firing(r, prometheusEpoch); ok {
			t.Errorf("%s fires at %v while all is well", r.Alert, at.Sub(prometheusEpoch))
		}
		if len(stories[r.Alert]) == 0 {
			t.Errorf("nothing makes %s fire here", r.Alert)
		}
		for i, what := range stories[r.Alert] {
			at, ok := past(r, what, calmScrapes+storyScrapes).firing(r, begins)
			if !ok {
				t.Errorf("%s does not fire in its story %d", r.Alert, i)
			} else if waited := at.Sub(begins); waited < time.Duration(r.For) {
				t.Errorf("%s fires %v after its story %d begins, and has to wait %v", r.Alert, waited, i, r.For)
			} else {
				t.Logf("%-36s fires after %v", r.Alert, waited)
			}
		}
		delete(stories, r.Alert)
	}
	for name := range stories {
		t.Errorf("there is a story for %s, and no such alarm", name)
	}

	// The last replica that was there is stopped for good: no page at all, and no partitions to compare with.
	h := newHistory(t)
	before := map[string]page{"a": parsePage(t, metricsOf(t, d))}
	d.stop()
	for i := range 30 {
		if i < 10 {
			h.scrape(before)
		} else {
			h.scrape(map[string]page{"a": nil})
		}
	}
	for _, r := range rules {
		if _, fires := h.firing(r, prometheusEpoch); fires != (r.Alert == "StreamkeeperShardUnserved" || r.Alert == "StreamkeeperReplicaMissing") {
			t.Errorf("with no replica left %s fires: %v", r.Alert, fires)
		}
	}
}
