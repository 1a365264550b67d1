package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"streamkeeper/shard/streams"
)

// A Setting is one of Kafka's settings that streamkeeper understands. Names, types, defaults and bounds are those
// of Kafka 4.4's GroupCoordinatorConfig.
type Setting struct {
	Name    string
	Type    string // INT, LONG, BOOLEAN or LIST, as Kafka calls them
	Default string
	Min     int64 // INT and LONG: the least value
	Doc     string
}

const noMinimum = math.MinInt64

// settings is the table; kept in the order in which --help and the README list them.
var settings = []Setting{
	{"group.streams.session.timeout.ms", "INT", "45000", 1, "a member that was not heard of for so long is removed"},
	{"group.streams.min.session.timeout.ms", "INT", "45000", 1, "lower bound of the session time-out"},
	{"group.streams.max.session.timeout.ms", "INT", "60000", 1, "upper bound of the session time-out"},
	{"group.streams.heartbeat.interval.ms", "INT", "5000", 1, "how often members are told to send heartbeats"},
	{"group.streams.min.heartbeat.interval.ms", "INT", "5000", 1, "lower bound of the heartbeat interval"},
	{"group.streams.max.heartbeat.interval.ms", "INT", "15000", 1, "upper bound of the heartbeat interval"},
	{"group.streams.max.size", "INT", "2147483647", 1, "most members of one group"},
	{"group.streams.num.standby.replicas", "INT", "0", 0, "standby tasks per stateful task"},
	{"group.streams.max.standby.replicas", "INT", "2", 0, "upper bound of the number of standby replicas"},
	{"group.streams.initial.rebalance.delay.ms", "INT", "3000", 0, "how long a new or emptied group waits for more members before it assigns tasks"},
	{"group.streams.assignment.interval.ms", "INT", "1000", 0, "least time between two target assignments of a group"},
	{"group.streams.min.assignment.interval.ms", "INT", "0", 0, "lower bound of the assignment interval"},
	{"group.streams.max.assignment.interval.ms", "INT", "15000", 0, "upper bound of the assignment interval"},
	{"group.streams.assignors", "LIST", "sticky", 0, "the task assignor; \"sticky\" is the only one"},
	{"group.streams.rack.aware.assignment.tags", "LIST", "", 0, "client tags over which standby tasks are spread"},
	{"group.streams.task.offset.interval.ms", "INT", "60000", 1, "how often members report the offsets of their tasks"},
	{"group.streams.min.task.offset.interval.ms", "INT", "15000", 1, "lower bound of the task offset interval"},
	{"group.streams.acceptable.recovery.lag", "LONG", "10000", 0, "lag up to which a standby counts as caught up"},
	{"group.streams.num.warmup.replicas", "INT", "2", 0, "accepted and, as in Kafka 4.4, without effect"},
	{"group.streams.max.warmup.replicas", "INT", "20", 0, "upper bound of the number of warm-up replicas"},
	{"group.streams.assignor.offload.enable", "BOOLEAN", "true", 0, "accepted and, as in Kafka 4.4, without effect on streams groups"},
	{"offsets.retention.minutes", "INT", "10080", 1, "committed offsets expire so long after their commit"},
	{"offsets.retention.check.interval.ms", "LONG", "600000", 1, "how often expired offsets and empty groups are looked for"},
	{"offset.metadata.max.bytes", "INT", "4096", noMinimum, "longest metadata of a committed offset"},
	{"offsets.commit.timeout.ms", "INT", "5000", 1, "how long a write may take before the client gets a retriable error"},
}

// Settings lists the settings that --set takes.
func Settings() []Setting { return slices.Clone(settings) }

// Kafka holds the effective values of Kafka's settings.
type Kafka struct {
	Streams                    streams.Config
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
	return v.kafka(), nil
}

type valuesOf struct {
	text   map[string]string
	number map[string]int64
}

func (v valuesOf) parse(s Setting) error {
	text := strings.TrimSpace(v.text[s.Name])
	invalid := func(why string) error {
		return fmt.Errorf("Invalid value %s for configuration %s: %s", text, s.Name, why) //nolint:staticcheck // Kafka's words
	}
	switch s.Type {
	case "INT", "LONG":
		bits := 32
		if s.Type == "LONG" {
			bits = 64
		}
		n, err := strconv.ParseInt(text, 10, bits)
		if err != nil {
			return invalid("Not a number of type " + s.Type)
		}
		if n < s.Min {
			return invalid(fmt.Sprintf("Value must be at least %d", s.Min))
		}
		v.number[s.Name] = n
	case "BOOLEAN":
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

func (v valuesOf) kafka() Kafka {
	ms := func(name string) time.Duration { return time.Duration(v.number[name]) * time.Millisecond }
	const p = "group.streams."
	return Kafka{
		Streams: streams.Config{
			SessionTimeout:        ms(p + "session.timeout.ms"),
			HeartbeatInterval:     ms(p + "heartbeat.interval.ms"),
			MaxSize:               int(v.number[p+"max.size"]),
			NumStandbyReplicas:    int(v.number[p+"num.standby.replicas"]),
			InitialRebalanceDelay: ms(p + "initial.rebalance.delay.ms"),
			AssignmentInterval:    ms(p + "assignment.interval.ms"),
			TaskOffsetInterval:    ms(p + "task.offset.interval.ms"),
			AcceptableRecoveryLag: v.number[p+"acceptable.recovery.lag"],
			RackAwareTags:         v.list(p + "rack.aware.assignment.tags"),
			Assignor:              v.list(p + "assignors")[0],
		},
		OffsetsRetention:           time.Duration(v.number["offsets.retention.minutes"]) * time.Minute,
		OffsetsRetentionCheckEvery: ms("offsets.retention.check.interval.ms"),
		OffsetMetadataBytesMax:     int(v.number["offset.metadata.max.bytes"]),
		OffsetsCommitTimeout:       ms("offsets.commit.timeout.ms"),
	}
}

// unknownSetting names the setting that was probably meant.
func unknownSetting(name string) error {
	best, distance := "", len(name)/3+1
	for _, s := range settings {
		if d := editDistance(name, s.Name); d < distance {
			best, distance = s.Name, d
		}
	}
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
