package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"streamkeeper/shard/streams"
)

func TestDefaultsAreKafkas(t *testing.T) {
	k, err := NewKafka(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := k.Groups.Config(); !reflect.DeepEqual(got, streams.DefaultConfig()) {
		t.Errorf("groups: got  %+v\nwant %+v", got, streams.DefaultConfig())
	}
	k.Groups = nil
	want := Kafka{
		OffsetsRetention: 7 * 24 * time.Hour, OffsetsRetentionCheckEvery: 10 * time.Minute,
		OffsetMetadataBytesMax: 4096, OffsetsCommitTimeout: 5 * time.Second,
	}
	if !reflect.DeepEqual(k, want) {
		t.Errorf("got  %+v\nwant %+v", k, want)
	}
}

func TestSettingsTakeEffect(t *testing.T) {
	k, err := NewKafka(map[string]string{
		"group.streams.session.timeout.ms":         "60000",
		"group.streams.heartbeat.interval.ms":      " 6000 ",
		"group.streams.max.size":                   "7",
		"group.streams.num.standby.replicas":       "2",
		"group.streams.initial.rebalance.delay.ms": "0",
		"group.streams.assignment.interval.ms":     "15000",
		"group.streams.rack.aware.assignment.tags": "zone, rack",
		"group.streams.task.offset.interval.ms":    "15000",
		"group.streams.acceptable.recovery.lag":    "9999999999",
		"group.streams.assignor.offload.enable":    "FALSE",
		"offsets.retention.minutes":                "1",
		"offsets.retention.check.interval.ms":      "99999999999",
		"offset.metadata.max.bytes":                "-1",
		"offsets.commit.timeout.ms":                "1",
	})
	if err != nil {
		t.Fatal(err)
	}
	groups := streams.Config{
		SessionTimeout: time.Minute, HeartbeatInterval: 6 * time.Second, MaxSize: 7, NumStandbyReplicas: 2,
		AssignmentInterval: 15 * time.Second, TaskOffsetInterval: 15 * time.Second, AcceptableRecoveryLag: 9999999999,
		RackAwareTags: []string{"zone", "rack"}, Assignor: "sticky",
	}
	if got := k.Groups.Config(); !reflect.DeepEqual(got, groups) {
		t.Errorf("groups: got  %+v\nwant %+v", got, groups)
	}
	k.Groups = nil
	want := Kafka{
		OffsetsRetention: time.Minute, OffsetsRetentionCheckEvery: 99999999999 * time.Millisecond,
		OffsetMetadataBytesMax: -1, OffsetsCommitTimeout: time.Millisecond,
	}
	if !reflect.DeepEqual(k, want) {
		t.Errorf("got  %+v\nwant %+v", k, want)
	}
}

// The texts are those of a Kafka 4.4.0 broker that was started with the same settings.
func TestRefusalsHaveKafkasTexts(t *testing.T) {
	const p = "group.streams."
	for _, c := range []struct {
		settings string // name=value, separated by blanks
		want     string
	}{
		{p + "session.timeout.ms=1000", p + "session.timeout.ms must be greater than or equal to " + p + "min.session.timeout.ms"},
		{p + "session.timeout.ms=70000", p + "session.timeout.ms must be less than or equal to " + p + "max.session.timeout.ms"},
		{p + "session.timeout.ms=abc", "Invalid value abc for configuration " + p + "session.timeout.ms: Not a number of type INT"},
		{p + "session.timeout.ms=0", "Invalid value 0 for configuration " + p + "session.timeout.ms: Value must be at least 1"},
		{p + "heartbeat.interval.ms=1", p + "heartbeat.interval.ms must be greater than or equal to " + p + "min.heartbeat.interval.ms"},
		{p + "heartbeat.interval.ms=20000", p + "heartbeat.interval.ms must be less than or equal to " + p + "max.heartbeat.interval.ms"},
		{p + "min.session.timeout.ms=70000", p + "max.session.timeout.ms must be greater than or equal to " + p + "min.session.timeout.ms"},
		{p + "min.session.timeout.ms=1 " + p + "session.timeout.ms=5000", p + "heartbeat.interval.ms must be less than " + p + "session.timeout.ms"},
		{p + "max.session.timeout.ms=1", p + "max.session.timeout.ms must be greater than or equal to " + p + "min.session.timeout.ms"},
		{p + "min.heartbeat.interval.ms=20000", p + "max.heartbeat.interval.ms must be greater than or equal to " + p + "min.heartbeat.interval.ms"},
		{p + "max.size=0", "Invalid value 0 for configuration " + p + "max.size: Value must be at least 1"},
		{p + "max.size=99999999999", "Invalid value 99999999999 for configuration " + p + "max.size: Not a number of type INT"},
		{p + "num.standby.replicas=3", p + "num.standby.replicas must be less than or equal to " + p + "max.standby.replicas"},
		{p + "num.standby.replicas=-1", "Invalid value -1 for configuration " + p + "num.standby.replicas: Value must be at least 0"},
		{p + "initial.rebalance.delay.ms=-1", "Invalid value -1 for configuration " + p + "initial.rebalance.delay.ms: Value must be at least 0"},
		{p + "assignment.interval.ms=20000", p + "assignment.interval.ms must be less than or equal to " + p + "max.assignment.interval.ms"},
		{p + "min.assignment.interval.ms=20000", p + "max.assignment.interval.ms must be greater than or equal to " + p + "min.assignment.interval.ms"},
		{p + "task.offset.interval.ms=1", p + "task.offset.interval.ms must be greater than or equal to " + p + "min.task.offset.interval.ms"},
		{p + "acceptable.recovery.lag=-1", "Invalid value -1 for configuration " + p + "acceptable.recovery.lag: Value must be at least 0"},
		{p + "num.warmup.replicas=30", p + "num.warmup.replicas must be less than or equal to " + p + "max.warmup.replicas"},
		{p + "rack.aware.assignment.tags=a,a", p + "rack.aware.assignment.tags must not contain duplicate tag keys."},
		{p + "assignors=", "Configuration '" + p + "assignors' must not be empty. Valid values include: any non-empty value"},
		{"offsets.retention.minutes=0", "Invalid value 0 for configuration offsets.retention.minutes: Value must be at least 1"},
		{"offsets.retention.check.interval.ms=0", "Invalid value 0 for configuration offsets.retention.check.interval.ms: Value must be at least 1"},
		{"offset.metadata.max.bytes=x", "Invalid value x for configuration offset.metadata.max.bytes: Not a number of type INT"},
		{"offsets.commit.timeout.ms=0", "Invalid value 0 for configuration offsets.commit.timeout.ms: Value must be at least 1"},
		{p + "max.standby.replicas=-1", "Invalid value -1 for configuration " + p + "max.standby.replicas: Value must be at least 0"},
		// What follows is ours.
		{p + "assignors=foo", p + `assignors: only "sticky" is there, got "foo"`},
		{p + "assignor.offload.enable=yes", "Invalid value yes for configuration " + p + "assignor.offload.enable: Expected value to be either true or false"},
		{p + "sesion.timeout.ms=45000", `unknown setting "group.streams.sesion.timeout.ms"; did you mean "group.streams.session.timeout.ms"?`},
		{"log.dirs=/tmp", `unknown setting "log.dirs"; the README lists the settings there are`},
	} {
		values := map[string]string{}
		for _, s := range strings.Fields(c.settings) {
			name, value, _ := strings.Cut(s, "=")
			values[name] = value
		}
		// Kafka stops at the first; all that is wrong is told here, and the first is the same.
		_, err := NewKafka(values)
		if err == nil || joined(err)[0].Error() != c.want {
			t.Errorf("%s\ngot  %v\nwant %s", c.settings, err, c.want)
		}
	}
}

func TestAllRefusalsAreReportedTogether(t *testing.T) {
	_, err := NewKafka(map[string]string{"offsets.retention.minutes": "0", "group.streams.max.size": "0", "no": "1"})
	if n := len(joined(err)); n != 3 {
		t.Errorf("%d errors, want 3: %v", n, err)
	}
	if !errors.Is(err, joined(err)[0]) {
		t.Error("the parts are not in the whole")
	}
}
