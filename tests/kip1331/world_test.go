package kip1331

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
	"streamkeeper/internal/wire"
)

func TestMain(m *testing.M) { os.Exit(kafkatest.Main(m)) }

// settings are both coordinators': no delays, so that the same requests find the same state.
var settings = map[string]string{
	"group.streams.initial.rebalance.delay.ms": "0",
	"group.streams.assignment.interval.ms":     "0",
}

// kafkaWith is a Kafka 4.4 broker with its own coordinator and a plugin of these tests; "" for none.
func kafkaWith(plugin string) kafkatest.Options {
	properties := map[string]string{}
	for k, v := range settings {
		properties[k] = v
	}
	o := kafkatest.Options{Version: kafkatest.V44, Streams: true, Properties: properties}
	if plugin != "" {
		properties["group.streams.topology.description.plugin.class"] = plugin
		o.Classes = "plugin"
	}
	return o
}

// keeperArgs are those of a streamkeeper with its embedded log, as quick as the broker.
func keeperArgs(more ...string) []string {
	args := []string{"dev", "--log-partitions", "4"}
	for k, v := range settings {
		args = append(args, "--set", k+"="+v)
	}
	return append(args, more...)
}

// sourceTopic is what all groups read. One partition: which task goes where is another test's affair.
const sourceTopic = "in"

// world is both coordinators with the plugin that fails as the group id says. It is started once for all tests that use it.
type world struct {
	kafka   *kafkatest.Cluster
	keeper  *kafkatest.Keeper
	groups  int
	readers *readers
}

// newWorld starts both; the broker is shared with other tests of the package.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{kafka: kafkatest.Shared(t, kafkaWith("FaultyPlugin"))}
	w.keeper = kafkatest.NewFaultyStreamkeeper(t, nil, keeperArgs("--plugin", "faulty")...)
	w.keeper.Start()
	w.keeper.WaitReady()
	for _, bootstrap := range []string{w.kafka.Bootstrap(), w.keeper.Bootstrap()} {
		prepare(t, bootstrap)
	}
	t.Cleanup(func() {
		if w.readers != nil {
			w.readers.theirs.cl.Close()
			w.readers.ours.cl.Close()
		}
	})
	return w
}

// prepare makes the topic and waits until the coordinator serves; Kafka makes its log of groups at the first lookup.
func prepare(t *testing.T, bootstrap string) {
	t.Helper()
	c, err := wire.Dial(t.Context(), bootstrap, "prepare")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	adm := kafkatest.Admin(t, bootstrap)
	if _, err := adm.CreateTopic(t.Context(), 1, 1, nil, sourceTopic); err != nil && !strings.Contains(err.Error(), "TOPIC_ALREADY_EXISTS") {
		t.Fatal(err)
	}
	kafkatest.Eventually(t, time.Minute, func() error {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKeys = 4, []string{"nobody"}
		resp, err := c.Exchange(t.Context(), find)
		if err != nil {
			return err
		}
		if code := resp.(*kmsg.FindCoordinatorResponse).Coordinators[0].ErrorCode; code != 0 {
			return fmt.Errorf("FindCoordinator answers %d", code)
		}
		ask := kmsg.NewPtrStreamsGroupDescribeRequest()
		for i := range 32 { // of every partition
			ask.Groups = append(ask.Groups, fmt.Sprint("nobody-", i))
		}
		resp, err = c.Exchange(t.Context(), ask)
		if err != nil {
			return err
		}
		for _, g := range resp.(*kmsg.StreamsGroupDescribeResponse).Groups {
			if g.ErrorCode != 69 {
				return fmt.Errorf("%s: StreamsGroupDescribe answers %d", g.Group, g.ErrorCode)
			}
		}
		// The coordinator hears of the topic a moment after the broker that made it.
		resp, err = c.Exchange(t.Context(), joining(1, "prepare", "m", 0))
		if err != nil {
			return err
		}
		if r := resp.(*kmsg.StreamsGroupHeartbeatResponse); r.ErrorCode != 0 || len(r.Status) > 0 {
			return fmt.Errorf("a join answers %d %+v", r.ErrorCode, r.Status)
		}
		return nil
	})
}

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// pair is a connection to each coordinator, and what was said over them.
type pair struct {
	t             failer
	w             *world
	kafka, keeper *wire.Client
	story         []string
}

func (w *world) pair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, w: w}
	for _, side := range []struct {
		c    **wire.Client
		addr string
	}{{&p.kafka, w.kafka.Addr(1)}, {&p.keeper, w.keeper.Bootstrap()}} {
		c, err := wire.Dial(t.Context(), side.addr, "app")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		*side.c = c
	}
	return p
}

// answerTimeout is far longer than any answer takes that comes at all.
const answerTimeout = 60 * time.Second

// ask sends a request to both sides at the same time.
func ask[R kmsg.Response](p *pair, req kmsg.Request) (theirs, ours R) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	var answers [2]kmsg.Response
	var errs [2]error
	var wg sync.WaitGroup
	for i, c := range []*wire.Client{p.kafka, p.keeper} {
		wg.Go(func() { answers[i], errs[i] = c.Exchange(ctx, req) })
	}
	wg.Wait()
	p.story = append(p.story, fmt.Sprintf("%T v%d %s", req, req.GetVersion(), compact(req)))
	for i, side := range []string{"Kafka", "streamkeeper"} {
		if errs[i] != nil {
			p.fatal("%s does not answer: %v", side, errs[i])
		}
	}
	p.story = append(p.story, "    → "+compact(answers[0]))
	return answers[0].(R), answers[1].(R)
}

// same sends a request to both sides and compares the answers, every field.
func same[R kmsg.Response](p *pair, req kmsg.Request, mask ...func(R)) R {
	p.t.Helper()
	theirs, ours := ask[R](p, req)
	for _, m := range mask {
		m(theirs)
		m(ours)
	}
	p.compare(req, theirs, ours)
	return theirs
}

// compare compares the answers to a request, every field.
func (p *pair) compare(req kmsg.Request, theirs, ours kmsg.Response) {
	p.t.Helper()
	if a, b := pretty(theirs), pretty(ours); a != b {
		a, b = unequal(a, b)
		p.errorf("%T v%d differs\n--- Kafka ---\n%s\n--- streamkeeper ---\n%s", req, req.GetVersion(), a, b)
	}
}

func (p *pair) fatal(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s\n--- story ---\n%s", fmt.Sprintf(format, args...), strings.Join(p.story, "\n"))
}

func (p *pair) errorf(format string, args ...any) {
	p.t.Helper()
	p.t.Errorf("%s\n--- story ---\n%s", fmt.Sprintf(format, args...), strings.Join(p.story, "\n"))
}

func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	const enough = 300
	return string(b[:min(len(b), enough)])
}

func pretty(v any) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		panic(err)
	}
	return string(b)
}

// unequal leaves out the lines that two texts have in common at both ends, but for some.
func unequal(a, b string) (string, string) {
	const around = 4
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	head, tail := 0, 0
	for head < min(len(x), len(y)) && x[head] == y[head] {
		head++
	}
	for tail < min(len(x), len(y))-head && x[len(x)-1-tail] == y[len(y)-1-tail] {
		tail++
	}
	cut := func(lines []string) string {
		return strings.Join(lines[max(0, head-around):min(len(lines), len(lines)-tail+around)], "\n")
	}
	return cut(x), cut(y)
}

// group returns an id nobody has used, with the clauses of the plugin's script.
func (w *world) group(name string, clauses ...string) string {
	w.groups++
	return strings.Join(append([]string{fmt.Sprintf("%s-%d", name, w.groups)}, clauses...), ";")
}

// pluginCalls are the calls that both plugins got for a group, as "OPERATION EPOCH BEHAVIOUR"; the two lists must be equal.
func (p *pair) pluginCalls(group string) []string {
	p.t.Helper()
	theirs, ours := callsIn(p.w.kafka.Log(1), group), callsIn(p.w.keeper.Output(), group)
	if !slices.Equal(theirs, ours) {
		p.errorf("calls of the plugin differ: Kafka %q, streamkeeper %q", theirs, ours)
	}
	return theirs
}

// awaitCalls waits until both plugins have got these calls for the group, and no others.
func awaitCalls(t *testing.T, p *pair, group string, want ...string) {
	t.Helper()
	kafkatest.Eventually(t, answerTimeout, func() error {
		theirs, ours := callsIn(p.w.kafka.Log(1), group), callsIn(p.w.keeper.Output(), group)
		if !slices.Equal(theirs, want) || !slices.Equal(ours, want) {
			return fmt.Errorf("calls %q and %q, want %q", theirs, ours, want)
		}
		return nil
	})
}

// callsIn finds the calls of the plugin for a group in an output.
func callsIn(output, group string) []string {
	found := []string{}
	for line := range strings.Lines(output) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "plugin-call ")
		if f := strings.SplitN(rest, " ", 4); ok && len(f) == 4 && f[3] == group {
			found = append(found, strings.Join(f[:3], " "))
		}
	}
	return found
}
