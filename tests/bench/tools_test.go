package bench

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"streamkeeper/internal/kafkatest"
)

var toolsGroups = flag.Int("tools-groups", 100_000, "with -full: the groups of TestTools")

// describedMost is up to how many groups all are described: it takes a minute for a hundred thousand.
const describedMost = 100_000

// TestTools measures Kafka's command line tools before a log of many idle groups, with the heap that their scripts give them (256 MiB) and with more where that does
// not suffice, and looks whether their answers are complete.
func TestTools(t *testing.T) {
	if !*full {
		t.Skip("with -full: make tools")
	}
	n := *toolsGroups
	growthWithin = 20 * time.Minute
	c := kafkatest.Start(t, kafkatest.Options{Version: kafkatest.V44, HeapMB: brokerHeapMB, JVM: jvm})
	kafkatest.CreateTopics(t, c.Addr(1), growthOffsets, topic, topicGone)
	b := growth{}.bulk(n)
	k := newGrownKeeper(t, c, 0)
	k.Start()
	k.WaitReady()
	sample := takeSamples(t, []string{k.Bootstrap()}, c.Addr(1), keeperLog)
	k.Stop()
	fillKeeper(t, c.Addr(1), sample, b)
	k.Start()
	if err := answerWithin(t.Context(), k.Bootstrap(), idleProbes(b, sample), growthWithin, (*group).fetchSample); err != nil {
		t.Fatal(err)
	}
	lists := func(out string) error {
		var names []string
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 0 {
				names = append(names, f[0])
			}
		}
		slices.Sort(names)
		if missing := b.missing(names); missing > 0 {
			return fmt.Errorf("%d of %d groups are missing", missing, n)
		}
		return nil
	}
	rows := []string{"| tool | heap, MiB | time, s | memory at most, MiB | |", "|---|---|---|---|---|"}
	for _, call := range []struct {
		at, line string
		complete func(string) error
	}{
		{k.Bootstrap(), "kafka-streams-groups --list", lists},
		{k.Bootstrap(), "kafka-streams-groups --list --state", lists},
		{k.Bootstrap(), "kafka-groups --list", lists},
		{k.Bootstrap(), "kafka-streams-groups --describe --all-groups --state", lists},
		{k.Bootstrap(), "kafka-streams-groups --describe --group " + b.id(n/2), nil},
		{k.Bootstrap(), "kafka-consumer-groups --list", nil},
		{c.Addr(1), "kafka-consumer-groups --describe --members --verbose --group streamkeeper-" + keeperLog, func(out string) error {
			if !strings.Contains(out, "@"+k.Bootstrap()) {
				return fmt.Errorf("no replica in\n%s", out)
			}
			return nil
		}},
	} {
		words := strings.Fields(call.line)
		if n > describedMost && slices.Contains(words, "--all-groups") {
			continue
		}
		for _, heap := range []int{256, 1024, 4096} {
			run := kafkatest.MeasureTool(t, heap, growthWithin, call.at, words[0], words[1:]...)
			verdict := "complete"
			if run.Exit != 0 || strings.Contains(run.Stderr, "OutOfMemoryError") {
				verdict = fmt.Sprintf("exit %d: %.120q", run.Exit, run.Stderr)
			} else if call.complete != nil {
				if err := call.complete(run.Stdout); err != nil {
					verdict = err.Error()
				}
			}
			rows = append(rows, fmt.Sprintf("| %s | %d | %.1f | %.0f | %s |", call.line, heap, run.Took.Seconds(), run.PeakMiB, verdict))
			t.Log(rows[len(rows)-1])
			if verdict == "complete" {
				break
			}
			if heap == 4096 {
				t.Errorf("%s: %s\n%.2000s", call.line, verdict, run.Stderr)
			}
		}
	}
	t.Logf("%d groups, %s\n%s", n, time.Now().UTC().Format(time.DateOnly), strings.Join(rows, "\n"))
}
