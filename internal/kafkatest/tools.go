package kafkatest

import (
	"archive/zip"
	"bytes"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// toolTimeout is longer than the tools' own: the admin client gives up after 30 to 60 s by itself, and its message
// says more than ours.
const toolTimeout = 2 * time.Minute

// toolHeapMB suffices for every tool of Kafka with test-sized data.
const toolHeapMB = 256

// tool is one of Kafka's command line tools.
type tool struct {
	class    string // in 4.4
	oldClass string // where an earlier version has it, "" if it is the same
	offline  bool   // doesn't take --bootstrap-server
}

// tools by the names of their scripts.
var tools = map[string]tool{
	"kafka-acls":                {class: "org.apache.kafka.tools.AclCommand", oldClass: "kafka.admin.AclCommand"},
	"kafka-broker-api-versions": {class: "org.apache.kafka.tools.BrokerApiVersionsCommand", oldClass: "kafka.admin.BrokerApiVersionsCommand"},
	"kafka-cluster":             {class: "org.apache.kafka.tools.ClusterTool", oldClass: "kafka.tools.ClusterTool", offline: true}, // behind its verb
	"kafka-configs":             {class: "org.apache.kafka.tools.ConfigCommand", oldClass: "kafka.admin.ConfigCommand"},
	"kafka-console-consumer":    {class: "org.apache.kafka.tools.consumer.ConsoleConsumer"},
	"kafka-console-producer":    {class: "org.apache.kafka.tools.ConsoleProducer", oldClass: "kafka.tools.ConsoleProducer"},
	"kafka-consumer-groups":     {class: "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"},
	"kafka-delete-records":      {class: "org.apache.kafka.tools.DeleteRecordsCommand"},
	"kafka-dump-log":            {class: "org.apache.kafka.tools.DumpLogSegments", oldClass: "kafka.tools.DumpLogSegments", offline: true},
	"kafka-features":            {class: "org.apache.kafka.tools.FeatureCommand"},
	"kafka-get-offsets":         {class: "org.apache.kafka.tools.GetOffsetShell"},
	"kafka-groups":              {class: "org.apache.kafka.tools.GroupsCommand"},
	"kafka-leader-election":     {class: "org.apache.kafka.tools.LeaderElectionCommand"},
	"kafka-log-dirs":            {class: "org.apache.kafka.tools.LogDirsCommand"},
	"kafka-metadata-quorum":     {class: "org.apache.kafka.tools.MetadataQuorumCommand"},
	"kafka-reassign-partitions": {class: "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"},
	"kafka-producer-perf-test":  {class: "org.apache.kafka.tools.ProducerPerformance"},
	"kafka-storage":             {class: "kafka.tools.StorageTool", offline: true},
	"kafka-streams-groups":      {class: "org.apache.kafka.tools.streams.StreamsGroupCommand"},
	"kafka-topics":              {class: "org.apache.kafka.tools.TopicCommand"},
	"kafka-transactions":        {class: "org.apache.kafka.tools.TransactionsCommand"},
}

// Tool runs one of Kafka 4.4's command line tools to its end, by the name of its script, with --bootstrap-server in
// front of the arguments where the tool has that option and bootstrap isn't empty. It may be called from any
// goroutine of the test as long as it succeeds in starting the tool.
func Tool(tb testing.TB, bootstrap, name string, args ...string) (stdout, stderr string, exit int) {
	tb.Helper()
	return ToolVersion(tb, V44, bootstrap, name, args...)
}

// ToolVersion is Tool with the tools of another Kafka version.
func ToolVersion(tb testing.TB, version, bootstrap, name string, args ...string) (stdout, stderr string, exit int) {
	tb.Helper()
	NeedJava(tb)
	t, ok := tools[name]
	if !ok {
		tb.Fatalf("%q is no tool known here; there are %s", name, strings.Join(slices.Sorted(maps.Keys(tools)), ", "))
	}
	if !t.offline && bootstrap != "" {
		args = append([]string{"--bootstrap-server", bootstrap}, args...)
	}
	class, err := t.classIn(version)
	if err != nil {
		tb.Fatal(err)
	}
	argv, err := java(version, "", "tools-log4j2.properties", toolHeapMB, nil, class, args...)
	if err != nil {
		tb.Fatal(err)
	}
	stdout, stderr, exit, err = runTool(toolTimeout, nil, argv...)
	if err != nil {
		tb.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout, stderr, exit
}

// classIn finds the tool's main class. Kafka has moved them one by one from the core jar to kafka-tools.
func (t tool) classIn(version string) (string, error) {
	if t.oldClass == "" {
		return t.class, nil
	}
	version, err := fullVersion(version)
	if err != nil {
		return "", err
	}
	cp, err := jars(version)
	if err != nil {
		return "", err
	}
	jar, err := zip.OpenReader(filepath.Join(filepath.Dir(cp), "kafka-tools-"+version+".jar"))
	if err != nil {
		return "", fmt.Errorf("look for %s: %w", t.class, err)
	}
	defer jar.Close()
	if f, err := jar.Open(strings.ReplaceAll(t.class, ".", "/") + ".class"); err == nil {
		f.Close()
		return t.class, nil
	}
	return t.oldClass, nil
}

// ToolRun is one run of a tool, and what it took.
type ToolRun struct {
	Stdout, Stderr string
	Exit           int // -1: it was ended at its time-out
	Took           time.Duration
	PeakMiB        float64 // resident memory at most
}

// MeasureTool is Tool with a heap in MiB and a time-out; it fails the test only where the tool can't be started.
func MeasureTool(tb testing.TB, heapMB int, timeout time.Duration, bootstrap, name string, args ...string) ToolRun {
	tb.Helper()
	NeedJava(tb)
	class, err := tools[name].classIn(V44)
	if err != nil {
		tb.Fatal(err)
	}
	argv, err := java(V44, "", "tools-log4j2.properties", heapMB, nil, class, append([]string{"--bootstrap-server", bootstrap}, args...)...)
	if err != nil {
		tb.Fatal(err)
	}
	var out, errOut bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	began := time.Now()
	if err := theSpawner.start(cmd); err != nil {
		tb.Fatalf("start %s: %v", name, err)
	}
	late := time.AfterFunc(timeout, func() { _ = cmd.Process.Kill() })
	ended, peak := make(chan struct{}), make(chan float64)
	go func() { // what the system counts for a child that has ended begins with what its parent had
		most := 0.0
		for {
			most = max(most, peakMiB(cmd.Process.Pid))
			select {
			case <-ended:
				peak <- most
				return
			case <-time.After(peakLook):
			}
		}
	}()
	_ = cmd.Wait() // the exit code says it
	took := time.Since(began)
	late.Stop()
	close(ended)
	return ToolRun{out.String(), errOut.String(), cmd.ProcessState.ExitCode(), took, <-peak}
}

// peakLook is how often the memory of a tool is looked at.
const peakLook = 20 * time.Millisecond
