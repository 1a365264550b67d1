package differential

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"streamkeeper/eventlog"
	"streamkeeper/shard/streams"

	"pgregory.net/rapid"
)

// configure puts configs in the place of what is configured for the group, on both sides, unless both refuse them with the same text.
func (w *world) configure(configs map[string]string) {
	w.t.Helper()
	w.note("configure %v", configs)
	theirs, err := w.oracle.configure(group, configs)
	if err != nil {
		w.fail("%v", err)
	}
	ours := ""
	next, refused := w.broker.Replace(configs)
	if refused != nil {
		ours = refused.Message
	}
	w.compare("refusals", theirs, ours)
	if refused != nil {
		return
	}
	rec := eventlog.Record{Key: eventlog.Key{Type: eventlog.TypeGroupConfig, Group: group}}
	if len(next) > 0 {
		rec.Value = &eventlog.GroupConfig{Format: eventlog.GroupConfigFormat, Configs: next}
	}
	w.apply(streams.Result{Records: []eventlog.Record{rec}})
	w.cfg, _ = w.broker.Effective(next)
}

// configure configures a group and returns the text with which Kafka refuses that, "" where it takes it.
func (o *oracle) configure(group string, configs map[string]string) (refusal string, err error) {
	a, err := o.do(map[string]any{"op": "groupConfig", "group": group, "configs": configs})
	for _, class := range []string{"InvalidConfigurationException: ", "ConfigException: "} {
		if _, text, ok := strings.Cut(a.Exception, class); ok {
			return text, nil
		}
	}
	return "", err
}

// configs draws a configuration that a running group can have.
func (h *history) configs() map[string]string {
	values := map[string][]string{
		"streams.num.standby.replicas":       {"0", "1", "2", "3"},
		"streams.session.timeout.ms":         {"45000", "50000", "60000"},
		"streams.heartbeat.interval.ms":      {"5000", "7000"},
		"streams.initial.rebalance.delay.ms": {"0", "2000"},
		"streams.assignment.interval.ms":     {"0", "2500"},
		"streams.task.offset.interval.ms":    {"20000"},
		"streams.acceptable.recovery.lag":    {"0", "9999999999"},
		"streams.rack.aware.assignment.tags": {"", "zone"},
		"streams.assignor.name":              {"sticky"},
	}
	configs := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if rapid.IntRange(0, 2).Draw(h.rt, name) == 0 {
			configs[name] = rapid.SampledFrom(values[name]).Draw(h.rt, "value")
		}
	}
	return configs
}

// Whatever is configured, Kafka's text says what is wrong with it, and nothing where nothing is.
func TestRandomConfigs(t *testing.T) {
	o := needOracle(t)
	w := newWorld(t, o, streams.DefaultConfig())
	numbers := []string{"0", "1", "2", "3", "4999", "5000", "14999", "15000", "15001", "20", "21", "44999", "45000", "60000", "60001", "-1", "+7", " 5000\t", "", "x", "1.0",
		"2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "05000"}
	lists := []string{"", " ", "a", "a,b", " a , b ", "a,a", "a, a", "a,,b", ",", "a,", ",a", "A,a"}
	words := []string{"", "sticky", " sticky ", "Sticky", "foo", "sticky,sticky"}
	booleans := []string{"true", "FALSE", " true ", "yes", ""}
	names := map[string][]string{
		"streams.session.timeout.ms": numbers, "streams.heartbeat.interval.ms": numbers, "streams.num.standby.replicas": numbers,
		"streams.initial.rebalance.delay.ms": numbers, "streams.assignment.interval.ms": numbers, "streams.task.offset.interval.ms": numbers,
		"streams.num.warmup.replicas": numbers, "streams.acceptable.recovery.lag": numbers, "streams.rack.aware.assignment.tags": lists,
		"streams.assignor.name": words, "streams.assignor.offload.enable": booleans, "streams.max.size": numbers,
	}
	taken := 0
	rapid.Check(t, func(rt *rapid.T) {
		configs := map[string]string{}
		for range rapid.IntRange(1, 3).Draw(rt, "number") {
			name := rapid.SampledFrom(slices.Sorted(maps.Keys(names))).Draw(rt, "name")
			configs[name] = rapid.SampledFrom(names[name]).Draw(rt, "value")
		}
		theirs, err := o.configure("v", configs)
		switch {
		case err == nil && theirs == "":
			taken++
		case err != nil && !strings.Contains(err.Error(), "NumberFormatException"): // that is the next test's: Kafka has taken it
			rt.Fatalf("%q: %v", configs, err)
		}
		ours := ""
		if refused := w.broker.Validate(configs); refused != nil {
			ours = refused.Message
		}
		if ours != theirs {
			rt.Fatalf("%q\n Kafka: %q\n we:    %q", configs, theirs, ours)
		}
	})
	if taken == 0 {
		t.Error("Kafka took none of them")
	}
}

// A blank around a number: Kafka 4.4 takes the configuration and then fails to read it, so that what was configured before stays in effect.
// We take the number.
func TestABlankAroundANumber(t *testing.T) {
	p := newPair(t, nil)
	configs := map[string]string{"streams.heartbeat.interval.ms": " 7000"}
	if _, err := p.oracle.do(map[string]any{"op": "groupConfig", "group": group, "configs": configs}); err == nil || !strings.Contains(err.Error(), "NumberFormatException") {
		t.Errorf("Kafka: %v", err)
	}
	next, refused := p.broker.Replace(configs)
	if refused != nil {
		t.Fatal(errors.New(refused.Message))
	}
	if c, notes := p.broker.Effective(next); c.HeartbeatInterval.Milliseconds() != 7000 || notes != nil {
		t.Errorf("we: %v, %q", c.HeartbeatInterval, notes)
	}
}
