package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"streamkeeper/internal/kafkatest"
)

func TestToolsKafkaItself(t *testing.T)   { toolsStory(t, itself) }
func TestToolsServeBefore39(t *testing.T) { toolsStory(t, plain39) }
func TestToolsServeBefore44(t *testing.T) { toolsStory(t, plain44) }
func TestToolsEmbeddedLog(t *testing.T)   { toolsStory(t, plainEmbedded) }

// toolsStory lives the life of testdata/README.md again and compares what Kafka's tools print.
func toolsStory(t *testing.T, w world) {
	if w.name != itself.name { // behind streamkeeper its groups are the only ones, whatever else is going on
		t.Parallel()
	}
	p := w.build(t)
	golden := readCalls(t, "testdata/cli-stateless.jsonl")
	const group, in, out = "g-stateless", "g-stateless-in", "g-stateless-out"
	kafkatest.CreateTopics(t, p.streams, 2, in, out)
	start := func(name string) *kafkatest.App {
		return kafkatest.StartApp(t, kafkatest.AppOptions{Bootstrap: p.streams, Group: group, Name: name})
	}

	// Before there is any group. "list" and "describe all" print nothing then; the rest complains about names.
	golden.compare(t, p, "list", "list state", "list state empty", "describe all", "topology all", "describe unknown", "describe unknown topology",
		"describe unknown members", "delete unknown")

	m1 := start("stateless-m1")
	m1.WaitTasks(2)
	fill(t, p.direct, in, 8, 12)
	kafkatest.WaitCommitted(t, p.streams, group, in, outcome)
	m2 := start("stateless-m2")
	m2.WaitTasks(1)
	m1.WaitTasks(1)
	fill(t, p.direct, in, 8, 12)
	kafkatest.WaitCommitted(t, p.streams, group, in, outcome)

	t.Run("live", func(t *testing.T) {
		golden.compare(t, p, "live describe", "live members", "live members verbose", "live state", "live state verbose", "live offsets verbose",
			"live topology", "delete live")
		golden.compareOutput(t, p, "GROUP           STATE\ng-stateless     Stable\n", "--list", "--state", "Stable")
		golden.compareOutput(t, p, "g-stateless\n", "--list")
	})

	m2.Stop()
	m1.WaitTasks(2)
	m1.Stop()
	t.Run("empty", func(t *testing.T) {
		golden.compare(t, p, "empty describe", "empty topology")
		golden.compareOutput(t, p, "GROUP           STATE\ng-stateless     Empty\n", "--list", "--state", "empty")
		golden.compare(t, p, "delete empty")
	})
	t.Run("deleted", func(t *testing.T) {
		golden.compare(t, p, "deleted topology", "list")
		if left := kafkatest.Committed(t, p.streams, group, in); len(left) > 0 {
			t.Errorf("the deleted group still has the offsets %v", left)
		}
	})
	t.Run("dump-log", func(t *testing.T) { dumpLog(t, p, group) })
}

// fill writes counts[i] records into partition i.
func fill(t *testing.T, bootstrap, topic string, counts ...int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var records []*kgo.Record
	for p, n := range counts {
		for i := range n {
			records = append(records, &kgo.Record{Topic: topic, Partition: int32(p), Key: []byte("k"), Value: []byte(strconv.Itoa(i))})
		}
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// call is one captured run of a tool.
type call struct {
	Label  string
	Argv   []string
	Exit   int
	Stdout string
	Stderr string // the first line
}

type calls map[string]call

func readCalls(t *testing.T, file string) calls {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := calls{}
	for s := bufio.NewScanner(f); s.Scan(); {
		var c call
		if err := json.Unmarshal(s.Bytes(), &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[c.Label] = c
	}
	return all
}

// toolsAtOnce is how many JVMs may run side by side.
const toolsAtOnce = 2

// compare repeats captured calls, which must not depend on each other, and compares what they print.
func (cs calls) compare(t *testing.T, p *place, labels ...string) {
	t.Helper()
	var wg sync.WaitGroup
	free := make(chan struct{}, toolsAtOnce)
	for _, label := range labels {
		want, ok := cs[label]
		if !ok {
			t.Fatalf("no captured call %q", label)
		}
		wg.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			out, errOut, exit := kafkatest.Tool(t, p.streams, want.Argv[0], want.Argv[1:]...)
			errOut, _, _ = strings.Cut(errOut, "\n")
			got := call{want.Label, want.Argv, exit, mask(out), mask(errOut)}
			if want := (call{want.Label, want.Argv, want.Exit, mask(want.Stdout), mask(want.Stderr)}); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s: %s\n got exit %d\n%s%s\nwant exit %d\n%s%s", want.Label, strings.Join(want.Argv, " "),
					got.Exit, got.Stdout, got.Stderr, want.Exit, want.Stdout, want.Stderr)
			}
		})
	}
	wg.Wait()
}

// compareOutput is for calls that were not captured, but whose output is known.
func (cs calls) compareOutput(t *testing.T, p *place, want string, args ...string) {
	t.Helper()
	out, errOut, exit := kafkatest.Tool(t, p.streams, "kafka-streams-groups", args...)
	if out != want || exit != 0 {
		t.Errorf("kafka-streams-groups %s\n got exit %d\n%s%s\nwant\n%s", strings.Join(args, " "), exit, out, errOut, want)
	}
}

var masks = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "PROCESS"},
	{regexp.MustCompile(`(?m)(^|\s)[A-Za-z0-9_-]{22}(\s|$)`), "${1}MEMBER${2}"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+ \(\d+\) *`), "COORDINATOR "},
}

// mask hides what differs in every run, and puts the rows, whose order is not defined, in one.
func mask(s string) string {
	for _, m := range masks {
		s = m.pattern.ReplaceAllString(s, m.with)
	}
	lines := strings.SplitAfter(s, "\n")
	if len(lines) > 2 && strings.HasPrefix(lines[0], "GROUP") {
		slices.Sort(lines[1 : len(lines)-1])
	}
	return strings.Join(lines, "")
}
