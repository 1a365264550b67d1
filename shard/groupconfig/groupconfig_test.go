package groupconfig

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"streamkeeper/shard/streams"
)

func broker(t *testing.T, settings ...string) *Broker {
	t.Helper()
	b, err := NewBroker(mapOf(settings...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// mapOf makes a map of "name=value".
func mapOf(pairs ...string) map[string]string {
	m := map[string]string{}
	for _, p := range pairs {
		name, value, _ := strings.Cut(p, "=")
		m[name] = value
	}
	return m
}

func TestDefaultsAreKafkas(t *testing.T) {
	if got := Default().Config(); !reflect.DeepEqual(got, streams.DefaultConfig()) {
		t.Errorf("got  %+v\nwant %+v", got, streams.DefaultConfig())
	}
}

// The texts are those of Kafka 4.4.0's GroupConfig.validate; many more come from the differential test.
func TestRefusalsHaveKafkasTextsAndOrder(t *testing.T) {
	for _, c := range []struct {
		configs []string
		want    string
	}{
		{[]string{"streams.session.timeout.ms=45000", "streams.heartbeat.interval.ms=+5000", "streams.acceptable.recovery.lag=0"}, ""},
		{[]string{"unknown=1", "streams.rack.aware.assignment.tags=a,a"}, "Unknown group config name: unknown"},
		{[]string{"streams.session.timeout.ms=x", "streams.rack.aware.assignment.tags=a,,a"}, "streams.rack.aware.assignment.tags must not contain duplicate tag keys."},
		{[]string{"streams.heartbeat.interval.ms=x", "streams.session.timeout.ms= y"}, "Invalid value  y for configuration streams.session.timeout.ms: Not a number of type INT"},
		{[]string{"streams.heartbeat.interval.ms= 0 "}, "Invalid value 0 for configuration streams.heartbeat.interval.ms: Value must be at least 1"},
		{[]string{"streams.session.timeout.ms=1", "streams.heartbeat.interval.ms=1"}, "streams.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive."},
		{[]string{"streams.session.timeout.ms=1", "streams.num.standby.replicas=3"}, "streams.session.timeout.ms must be in the range 45000 to 60000 inclusive."},
		{[]string{"streams.num.standby.replicas=3", "streams.num.warmup.replicas=21"}, "streams.num.standby.replicas must be less than or equal to 2"},
		{[]string{"streams.task.offset.interval.ms=14999", "streams.num.warmup.replicas=21"}, "streams.task.offset.interval.ms must be greater than or equal to 15000"},
		{[]string{"streams.rack.aware.assignment.tags=a, ,b"}, "Configuration 'streams.rack.aware.assignment.tags' values must not be empty."},
		{[]string{"streams.rack.aware.assignment.tags= ", "streams.assignor.name= sticky "}, ""},
		{[]string{"streams.assignor.name=Sticky"}, "streams.assignor.name 'Sticky' is not a registered task assignor. Registered assignors are: [sticky]."},
		{[]string{"streams.assignor.offload.enable=1"}, "Invalid value 1 for configuration streams.assignor.offload.enable: Expected value to be either true or false"},
	} {
		got := ""
		if err := Default().Validate(mapOf(c.configs...)); err != nil {
			got = err.Message
		}
		if got != c.want {
			t.Errorf("%q\ngot  %s\nwant %s", c.configs, got, c.want)
		}
	}
}

func TestTheSessionMustBeLongerThanAnInterval(t *testing.T) {
	b := broker(t, "group.streams.max.heartbeat.interval.ms=60000", "group.streams.heartbeat.interval.ms=50000", "group.streams.session.timeout.ms=60000")
	const want = "streams.session.timeout.ms must be greater than streams.heartbeat.interval.ms"
	for _, configs := range [][]string{{"streams.session.timeout.ms=50000"}, {"streams.heartbeat.interval.ms=60000"}, {"streams.heartbeat.interval.ms=55000", "streams.session.timeout.ms=55000"}} {
		if err := b.Validate(mapOf(configs...)); err == nil || err.Message != want {
			t.Errorf("%q: %v", configs, err)
		}
	}
	if err := b.Validate(mapOf("streams.num.standby.replicas=1")); err != nil {
		t.Error(err)
	}
}

func TestAlterLeavesWhatThereWasAlone(t *testing.T) {
	b := Default()
	current := mapOf("streams.num.standby.replicas=1", "streams.session.timeout.ms=50000")
	before := maps.Clone(current)
	got, err := b.Alter(current, []Change{{Delete, "streams.session.timeout.ms", ""}, {Set, "streams.heartbeat.interval.ms", "6000"}, {Delete, "never.heard", ""}})
	if want := mapOf("streams.num.standby.replicas=1", "streams.heartbeat.interval.ms=6000"); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if !maps.Equal(current, before) {
		t.Errorf("what there was became %v", current)
	}
	if got, err := b.Alter(current, []Change{{Delete, "streams.session.timeout.ms", ""}, {Delete, "streams.num.standby.replicas", ""}}); err != nil || got != nil {
		t.Errorf("all deleted: %v, %v", got, err)
	}
	for op, text := range map[Op]string{Append: "Can't APPEND to key streams.rack.aware.assignment.tags because its type is not LIST.",
		Subtract: "Can't SUBTRACT to key streams.rack.aware.assignment.tags because its type is not LIST."} {
		if _, err := b.Alter(current, []Change{{op, "streams.rack.aware.assignment.tags", "a"}}); err == nil || err.Message != text || err.Code != 40 {
			t.Errorf("op %d: %v", op, err)
		}
	}
	if _, err := b.Replace(mapOf("streams.rack.aware.assignment.tags=" + strings.Repeat("x", 40000))); err == nil || !strings.Contains(err.Message, "longer than 32767 bytes") {
		t.Errorf("a long value: %v", err)
	}
	if got, err := b.Replace(mapOf("streams.rack.aware.assignment.tags=a\xff")); err != nil || got["streams.rack.aware.assignment.tags"] != "a\uFFFD" {
		t.Errorf("bytes that are no text: %q, %v", got, err)
	}
}

func TestEffectiveTakesTheBoundWhereItMoved(t *testing.T) {
	b := broker(t, "group.streams.initial.rebalance.delay.ms=7", "group.streams.rack.aware.assignment.tags=zone")
	configs := mapOf("streams.session.timeout.ms=99999", "streams.heartbeat.interval.ms=1", "streams.num.standby.replicas=9", "streams.assignment.interval.ms=20000",
		"streams.task.offset.interval.ms=3", "streams.num.warmup.replicas=99", "streams.acceptable.recovery.lag=12", "streams.rack.aware.assignment.tags= a , b ",
		"streams.initial.rebalance.delay.ms=junk", "from.a.newer.version=1")
	want := b.Config()
	want.SessionTimeout, want.HeartbeatInterval, want.NumStandbyReplicas = time.Minute, 5*time.Second, 2
	want.AssignmentInterval, want.TaskOffsetInterval, want.AcceptableRecoveryLag = 15*time.Second, 15*time.Second, 12
	want.RackAwareTags = []string{"a", "b"}
	got, notes := b.Effective(configs)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if len(notes) != 7 || notes[0] != "streams.session.timeout.ms is 99999, beyond the bound 60000, which counts instead" {
		t.Errorf("notes: %q", notes)
	}
	if got, notes := b.Effective(nil); !reflect.DeepEqual(got, b.Config()) || notes != nil {
		t.Errorf("nothing configured: %+v, %q", got, notes)
	}
	if got, notes := b.Effective(mapOf("streams.rack.aware.assignment.tags=")); len(got.RackAwareTags) != 0 || notes != nil {
		t.Errorf("tags configured away: %+v, %q", got, notes)
	}
}

func TestDescribe(t *testing.T) {
	b := broker(t, "group.streams.session.timeout.ms=50000")
	names := func(entries []Entry) (names []string) {
		for _, e := range entries {
			names = append(names, e.Name)
		}
		return names
	}
	all := []string{"streams.session.timeout.ms", "streams.heartbeat.interval.ms", "streams.num.standby.replicas", "streams.initial.rebalance.delay.ms",
		"streams.assignment.interval.ms", "streams.rack.aware.assignment.tags", "streams.assignor.name"}
	if got := names(b.Describe(nil, nil)); !reflect.DeepEqual(got, all) {
		t.Errorf("all names: %q", got)
	}
	if got := names(b.Describe(nil, []string{})); !reflect.DeepEqual(got, all) {
		t.Errorf("no names: %q", got)
	}
	if got := b.Describe(nil, []string{"unknown"}); len(got) != 0 {
		t.Errorf("an unknown name: %+v", got)
	}
	configs := mapOf("streams.session.timeout.ms= 060000", "streams.assignor.offload.enable=FALSE")
	got := b.Describe(configs, []string{"streams.session.timeout.ms", "streams.assignor.offload.enable", "streams.assignor.name", "unknown"})
	want := []Entry{
		{"streams.session.timeout.ms", "60000", Int, FromGroup, []Synonym{{"streams.session.timeout.ms", "60000", FromGroup},
			{"group.streams.session.timeout.ms", "50000", FromSettings}, {"group.streams.session.timeout.ms", "45000", FromDefault}},
			"a member that was not heard of for so long is removed"},
		{"streams.assignor.offload.enable", "FALSE", Boolean, FromGroup, []Synonym{{"streams.assignor.offload.enable", "FALSE", FromGroup},
			{"group.streams.assignor.offload.enable", "true", FromDefault}}, "accepted and, as in Kafka 4.4, without effect on streams groups"},
		{"streams.assignor.name", "sticky", String, FromDefault, []Synonym{{"group.streams.assignors", "sticky", FromDefault}},
			`the task assignor; "sticky" is the only one`},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
