package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"streamkeeper/shard/groupconfig"
)

// settings is the table; kept in the order in which --help and the README list them.
var settings = append(slices.Clone(groupconfig.Settings),
	groupconfig.Setting{Name: "offsets.retention.minutes", Type: groupconfig.Int, Default: "10080", Min: 1, Doc: "committed offsets expire so long after their commit"},
	groupconfig.Setting{Name: "offsets.retention.check.interval.ms", Type: groupconfig.Long, Default: "600000", Min: 1, Doc: "how often expired offsets and empty groups are looked for"},
	groupconfig.Setting{Name: "offset.metadata.max.bytes", Type: groupconfig.Int, Default: "4096", Min: groupconfig.NoMinimum, Doc: "longest metadata of a committed offset"},
	groupconfig.Setting{Name: "offsets.commit.timeout.ms", Type: groupconfig.Int, Default: "5000", Min: 1, Doc: "how long a write may take before the client gets a retriable error"},
)

// Settings lists the settings that --set takes.
func Settings() []groupconfig.Setting { return slices.Clone(settings) }

// Kafka holds the effective values of Kafka's settings.
type Kafka struct {
	Groups                     *groupconfig.Broker // of streams groups, and what can be configured for one
	OffsetsRetention           time.Duration
	OffsetsRetentionCheckEvery time.Duration
	OffsetMetadataBytesMax     int
	OffsetsCommitTimeout       time.Duration
}

// NewKafka makes the effective settings of the defaults and values (by Kafka's names). All errors are reported together, in
// Kafka's words.
func NewKafka(values map[string]string) (Kafka, error) {
	v := valuesOf{text: map[string]string{}, number: map[string]int64{}}
	for _, s := range settings {
		v.text[s.Name] = s.Default
	}
	var errs []error
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if _, ok := v.text[name]; !ok {
			errs = append(errs, unknownSetting(name))
			continue
		}
		v.text[name] = values[name]
	}
	for _, s := range settings {
		if err := v.parse(s); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Kafka{}, err
	}
	if err := v.check(); err != nil {
		return Kafka{}, err
	}
	groups, err := groupconfig.NewBroker(values)
	if err != nil {
		return Kafka{}, err // it would have been refused above
	}
	return v.kafka(groups), nil
}

type valuesOf struct {
	text   map[string]string
	number map[string]int64
}

func (v valuesOf) parse(s groupconfig.Setting) error {
	text := strings.TrimSpace(v.text[s.Name])
	invalid := func(why string) error {
		return fmt.Errorf("Invalid value %s for configuration %s: %s", text, s.Name, why) //nolint:staticcheck // Kafka's words
	}
	switch s.Type {
	case groupconfig.Int, groupconfig.Long:
		bits := 32
		if s.Type == groupconfig.Long {
			bits = 64
		}
		n, err := strconv.ParseInt(text, 10, bits)
		if err != nil {
			return invalid("Not a number of type " + string(s.Type))
		}
		if n < s.Min {
			return invalid(fmt.Sprintf("Value must be at least %d", s.Min))
		}
		v.number[s.Name] = n
	case groupconfig.Boolean:
		if !strings.EqualFold(text, "true") && !strings.EqualFold(text, "false") {
			return invalid("Expected value to be either true or false")
		}
	}
	return nil
}

// check compares settings with each other; the texts are those of Kafka 4.4's GroupCoordinatorConfig.
func (v valuesOf) check() error {
	var errs []error
	refuse := func(a, how, b string) {
		errs = append(errs, fmt.Errorf("%s must be %s %s", a, how, b))
	}
	least := func(a, b string) {
		if v.number[a] < v.number[b] {
			refuse(a, "greater than or equal to", b)
		}
	}
	most := func(a, b string) {
		if v.number[a] > v.number[b] {
			refuse(a, "less than or equal to", b)
		}
	}
	const p = "group.streams."
	for _, name := range []string{"session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"} {
		if v.number[p+"max."+name] < v.number[p+"min."+name] {
			refuse(p+"max."+name, "greater than or equal to", p+"min."+name)
			continue
		}
		least(p+name, p+"min."+name)
		most(p+name, p+"max."+name)
	}
	if v.number[p+"heartbeat.interval.ms"] >= v.number[p+"session.timeout.ms"] {
		refuse(p+"heartbeat.interval.ms", "less than", p+"session.timeout.ms")
	}
	most(p+"num.standby.replicas", p+"max.standby.replicas")
	most(p+"num.warmup.replicas", p+"max.warmup.replicas")
	least(p+"task.offset.interval.ms", p+"min.task.offset.interval.ms")
	tags := v.list(p + "rack.aware.assignment.tags")
	if len(slices.Compact(slices.Sorted(slices.Values(tags)))) != len(tags) {
		errs = append(errs, fmt.Errorf("%srack.aware.assignment.tags must not contain duplicate tag keys.", p)) //nolint:staticcheck // Kafka's words
	}
	switch assignors := v.list(p + "assignors"); {
	case len(assignors) == 0:
		errs = append(errs, fmt.Errorf("Configuration '%sassignors' must not be empty. Valid values include: any non-empty value", p)) //nolint:staticcheck // Kafka's words
	case slices.ContainsFunc(assignors, func(a string) bool { return a != "sticky" }):
		errs = append(errs, fmt.Errorf("%sassignors: only \"sticky\" is there, got %q", p, v.text[p+"assignors"]))
	}
	return errors.Join(errs...)
}

// list splits as Kafka does: at commas, blanks trimmed; the empty text is the empty list.
func (v valuesOf) list(name string) []string {
	text := strings.TrimSpace(v.text[name])
	if text == "" {
		return nil
	}
	parts := strings.Split(text, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	return parts
}

func (v valuesOf) kafka(groups *groupconfig.Broker) Kafka {
	ms := func(name string) time.Duration { return time.Duration(v.number[name]) * time.Millisecond }
	return Kafka{
		Groups:                     groups,
		OffsetsRetention:           time.Duration(v.number["offsets.retention.minutes"]) * time.Minute,
		OffsetsRetentionCheckEvery: ms("offsets.retention.check.interval.ms"),
		OffsetMetadataBytesMax:     int(v.number["offset.metadata.max.bytes"]),
		OffsetsCommitTimeout:       ms("offsets.commit.timeout.ms"),
	}
}

// unknownSetting names the setting that was probably meant.
func unknownSetting(name string) error {
	var names []string
	for _, s := range settings {
		names = append(names, s.Name)
	}
	best := nearest(name, names, len(name)/3)
	if best == "" {
		return fmt.Errorf("unknown setting %q; the README lists the settings there are", name)
	}
	return fmt.Errorf("unknown setting %q; did you mean %q?", name, best)
}

// editDistance is the Levenshtein distance.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost++
			}
			corner = row[j+1]
			row[j+1] = min(cost, row[j]+1, corner+1)
		}
	}
	return row[len(b)]
}
