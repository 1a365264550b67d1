package e2e

import (
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// What DescribeConfigs, IncrementalAlterConfigs, AlterConfigs, ListConfigResources and kafka-configs answer about groups. The answers in
// testdata/configs were written by Kafka 4.4 (-run TestConfigsKafkaItself -rewrite).
func TestConfigsKafkaItself(t *testing.T) {
	rewrite := flag.Lookup("rewrite")
	scripts := []string{"requests", "mixed"}
	if rewrite != nil && rewrite.Value.String() == "true" {
		scripts = append(scripts, "tool")
	}
	configsStory(t, itself, scripts...)
}
func TestConfigsServeBefore39(t *testing.T) { configsStory(t, before39, "requests", "tool") }
func TestConfigsServeBefore44(t *testing.T) { configsStory(t, before44, "requests", "mixed") }
func TestConfigsEmbeddedLog(t *testing.T)   { configsStory(t, embedded, "requests") }

// configsStory plays scripts of testdata/configs: requests; mixed are requests about names of streams groups and others, which only a
// cluster of 4.4 has all; tool runs kafka-configs.
func configsStory(t *testing.T, w world, scripts ...string) {
	p := w.build(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.streams))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	s := &configStory{t: t, p: p, cl: cl}
	for _, script := range scripts {
		s.patient = p.keeper == nil || script == "mixed"
		datadriven.RunTest(t, "testdata/configs/"+script, s.run)
		if t.Failed() {
			return // the next one builds on it
		}
	}
}

// configStory runs the words of a script about configurations of groups.
type configStory struct {
	t     *testing.T
	p     *place
	cl    *kgo.Client
	tools *kafkatest.ToolSession // at the first use

	patient bool // a Kafka broker is asked
}

// run carries out one word:
//
//	describe group=G [keys=(a,b)]           DescribeConfigs; names of streams groups are shown, with
//	                 [configured]           all names that are configured for the group
//	alter group=G [validate]                IncrementalAlterConfigs; a line for each change: set, delete, append, subtract NAME=VALUE
//	replace group=G [validate]              AlterConfigs; a line for each NAME=VALUE
//	list [types=(32,16)]                    ListConfigResources
//	tool                                    kafka-configs with the arguments below
func (s *configStory) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "describe":
		return s.seen(d, func() string { return s.describe(t, d) })
	case "alter":
		return s.alter(t, d)
	case "replace":
		return s.replace(t, d)
	case "list":
		return s.seen(d, func() string { return s.list(t, d) })
	case "tool":
		return s.seen(d, func() string { return s.tool(t, d) })
	}
	t.Fatalf("%s: no word %q", d.Pos, d.Cmd)
	return ""
}

// seen looks again where a Kafka broker says something else: it learns of a change a moment after the controller has acknowledged it.
// streamkeeper shows every acknowledged change of its own at once.
func (s *configStory) seen(d *datadriven.TestData, look func() string) string {
	const tries, pause = 300, 100 * time.Millisecond
	got := look()
	for i := 0; s.patient && i < tries && got != d.Expected; i++ {
		time.Sleep(pause) // the broker's own loop; there is nothing to wait for
		got = look()
	}
	return got
}

var (
	bootstrapArgument = regexp.MustCompile(`--bootstrap-server \S+`)
	ownershipGroup    = regexp.MustCompile(`(?m)^Dynamic configs for group streamkeeper-.* are:\n`)
)

// tool runs kafka-configs. The tool names all groups of the cluster; those of other tests have no configurations.
func (s *configStory) tool(t *testing.T, d *datadriven.TestData) string {
	if s.tools == nil {
		s.tools = kafkatest.Tools(s.t, s.p.streams)
	}
	out, errOut, exit := s.tools.Run("kafka-configs", strings.Fields(d.Input)...)
	var reasons []string
	for line := range strings.Lines(errOut) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "at ") {
			reasons = append(reasons, bootstrapArgument.ReplaceAllString(line, "--bootstrap-server …")+"\n")
		}
	}
	var lines []string
	for line := range strings.Lines(ownershipGroup.ReplaceAllString(out, "")) {
		if !strings.HasPrefix(line, "  ") || strings.HasPrefix(line, "  streams.") {
			lines = append(lines, line)
		}
	}
	return fmt.Sprintf("exit %d\n%s%s", exit, strings.Join(lines, ""), strings.Join(reasons, ""))
}

func argument(d *datadriven.TestData, name string) (values []string, ok bool) {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			return a.Vals, true
		}
	}
	return nil, false
}

func group(d *datadriven.TestData) string {
	v, _ := argument(d, "group")
	if len(v) == 0 {
		return ""
	}
	return v[0]
}

func (s *configStory) ask(t *testing.T, r kmsg.Request) kmsg.Response {
	resp, err := s.cl.SeedBrokers()[0].RetriableRequest(t.Context(), r)
	if err != nil {
		t.Fatalf("%s: %v", kmsg.NameForKey(r.Key()), err)
	}
	return resp
}

func (s *configStory) describe(t *testing.T, d *datadriven.TestData) string {
	r := kmsg.NewPtrDescribeConfigsRequest()
	r.IncludeSynonyms = true
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group(d)
	if keys, ok := argument(d, "keys"); ok {
		res.ConfigNames = slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return k == "" })
	}
	r.Resources = append(r.Resources, res)
	var b strings.Builder
	for _, res := range s.ask(t, r).(*kmsg.DescribeConfigsResponse).Resources {
		fmt.Fprintf(&b, "%v %q: %s\n", res.ResourceType, res.ResourceName, outcomeOf(res.ErrorCode, res.ErrorMessage))
		slices.SortFunc(res.Configs, func(a, b kmsg.DescribeConfigsResponseResourceConfig) int { return strings.Compare(a.Name, b.Name) })
		for _, c := range res.Configs {
			show := strings.HasPrefix(c.Name, "streams.") // a cluster of an older Kafka has fewer others
			if _, ok := argument(d, "configured"); ok {
				show = c.Source == kmsg.ConfigSourceGroupConfig
			}
			if !show {
				continue
			}
			fmt.Fprintf(&b, "  %s=%s %v %v", c.Name, orNull(c.Value), c.Source, c.ConfigType)
			if c.ReadOnly || c.IsSensitive {
				fmt.Fprintf(&b, " readOnly=%t sensitive=%t", c.ReadOnly, c.IsSensitive)
			}
			for _, y := range c.ConfigSynonyms {
				fmt.Fprintf(&b, "; %s=%s %v", y.Name, orNull(y.Value), y.Source)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func orNull(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

func outcomeOf(code int16, text *string) string {
	return fmt.Sprintf("%d %s", code, orNull(text))
}

func (s *configStory) alter(t *testing.T, d *datadriven.TestData) string {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	_, r.ValidateOnly = argument(d, "validate")
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group(d)
	for line := range strings.Lines(d.Input) {
		op, change, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		name, value, hasValue := strings.Cut(change, "=")
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name = name
		if hasValue {
			c.Value = &value
		}
		ops := map[string]kmsg.IncrementalAlterConfigOp{"set": 0, "delete": 1, "append": 2, "subtract": 3, "odd": 9}
		o, ok := ops[op]
		if !ok {
			t.Fatalf("%s: no change %q", d.Pos, op)
		}
		c.Op = o
		res.Configs = append(res.Configs, c)
	}
	r.Resources = append(r.Resources, res)
	if _, ok := argument(d, "twice"); ok {
		r.Resources = append(r.Resources, res)
	}
	var b strings.Builder
	for _, res := range s.ask(t, r).(*kmsg.IncrementalAlterConfigsResponse).Resources {
		fmt.Fprintf(&b, "%v %q: %s\n", res.ResourceType, res.ResourceName, outcomeOf(res.ErrorCode, res.ErrorMessage))
	}
	return b.String()
}

func (s *configStory) replace(t *testing.T, d *datadriven.TestData) string {
	r := kmsg.NewPtrAlterConfigsRequest()
	_, r.ValidateOnly = argument(d, "validate")
	res := kmsg.NewAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group(d)
	for line := range strings.Lines(d.Input) {
		name, value, hasValue := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		c := kmsg.NewAlterConfigsRequestResourceConfig()
		c.Name = name
		if hasValue {
			c.Value = &value
		}
		res.Configs = append(res.Configs, c)
	}
	r.Resources = append(r.Resources, res)
	var b strings.Builder
	for _, res := range s.ask(t, r).(*kmsg.AlterConfigsResponse).Resources {
		fmt.Fprintf(&b, "%v %q: %s\n", res.ResourceType, res.ResourceName, outcomeOf(res.ErrorCode, res.ErrorMessage))
	}
	return b.String()
}

func (s *configStory) list(t *testing.T, d *datadriven.TestData) string {
	r := kmsg.NewPtrListConfigResourcesRequest()
	if types, ok := argument(d, "types"); ok {
		for _, n := range types {
			var v int8
			fmt.Sscan(n, &v)
			r.ResourceTypes = append(r.ResourceTypes, v)
		}
	}
	resp := s.ask(t, r).(*kmsg.ListConfigResourcesResponse)
	lines := []string{}
	for _, c := range resp.ConfigResources {
		if c.Type == 32 || c.Type == 16 {
			lines = append(lines, fmt.Sprintf("  %d %s\n", c.Type, c.Name))
		}
	}
	slices.Sort(lines)
	return fmt.Sprintf("%d\n%s", resp.ErrorCode, strings.Join(lines, ""))
}

// TestConfiguredWhileRunning: a running application gets standby tasks by a change that comes to the replica which does not own the group. Its
// configuration outlives the group, and Kafka's tools read the log that it lies in.
func TestConfiguredWhileRunning(t *testing.T) {
	r := startTwoReplicas(t)
	r.waitShares(4, 4)
	const group = "configured"
	in, out := group+"-in", group+"-out"
	kafkatest.CreateTopics(t, r.cluster.Bootstrap(), partitions, in, out)
	owner, other := r.ownerOf(group)
	tools := kafkatest.Tools(t, r.replicas[other].Bootstrap())
	alter := func(args ...string) {
		t.Helper()
		args = append([]string{"--entity-type", "groups", "--entity-name", group, "--alter"}, args...)
		if stdout, stderr, exit := tools.Run("kafka-configs", args...); exit != 0 || stdout != "Completed updating config for group configured.\n" {
			t.Fatalf("kafka-configs %s: exit %d\n%s%s", strings.Join(args, " "), exit, stdout, stderr)
		}
	}
	alter("--add-config", "streams.initial.rebalance.delay.ms=0") // before there is a group

	host := kafkatest.StartAppHost(t, kafkatest.V44)
	var apps []*kafkatest.App
	for _, name := range []string{"a", "b"} {
		apps = append(apps, host.Start(t, kafkatest.AppOptions{Bootstrap: r.bootstrap(), Group: group, Name: name, Topology: "count"}))
	}
	for _, a := range apps {
		a.WaitTasks(partitions) // of twice as many: a stateless half and a stateful one
		if s := a.Standbys(); len(s) > 0 {
			t.Errorf("%s has the standby tasks %v, and none are configured", a.Name(), s)
		}
	}
	standbys := func(want int) {
		t.Helper()
		kafkatest.Eventually(t, outcome, func() error {
			n := 0
			for _, a := range apps {
				n += len(a.Standbys())
			}
			if n != want {
				return fmt.Errorf("%d standby tasks, want %d", n, want)
			}
			return nil
		})
	}
	alter("--add-config", "streams.num.standby.replicas=1")
	standbys(partitions)
	if stdout, stderr, exit := kafkatest.Streamkeeper(t, "describe", group, "--bootstrap-servers", r.replicas[other].Bootstrap()); exit != 0 ||
		!regexp.MustCompile(`(?m)^streams\.num\.standby\.replicas +1 +0$`).MatchString(stdout) {
		t.Errorf("streamkeeper describe: exit %d\n%s%s", exit, stdout, stderr)
	}
	alter("--delete-config", "streams.num.standby.replicas")
	standbys(0)

	for _, a := range apps {
		a.Stop()
	}
	deleteGroup(t, &place{streams: r.bootstrap()}, group)
	for _, node := range []int32{owner, other} { // each answers for every group
		cl, err := kgo.NewClient(kgo.SeedBrokers(r.replicas[node].Bootstrap()))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		s := &configStory{t: t, cl: cl}
		d := &datadriven.TestData{CmdArgs: []datadriven.CmdArg{{Key: "group", Vals: []string{group}}, {Key: "keys", Vals: []string{"streams.initial.rebalance.delay.ms"}}}}
		if got := s.describe(t, d); !strings.Contains(got, "streams.initial.rebalance.delay.ms=0 GROUP_CONFIG") {
			t.Errorf("after the deletion of the group node %d says\n%s", node, got)
		}
	}

	partition := partitionOf(group, 8)
	types := map[int16]int{}
	for _, l := range readLog(t, r.cluster.Bootstrap(), r.topic)[partition] {
		types[l.typ]++
	}
	const configType = 32001
	if types[configType] != 3 {
		t.Errorf("records by type %v, want 3 of type %d", types, configType)
	}
	files, err := filepath.Glob(filepath.Join(r.cluster.DataDir(1), fmt.Sprintf("%s-%d", r.topic, partition), "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no segment files of partition %d (%v)", partition, err)
	}
	stdout, stderr, exit := kafkatest.Tool(t, "", "kafka-dump-log", "--offsets-decoder", "--print-data-log", "--files", strings.Join(files, ","))
	if skipped := strings.Count(stdout, "Unknown record type "+fmt.Sprint(configType)); exit != 0 || skipped != types[configType] {
		t.Errorf("kafka-dump-log: exit %d, %d records of type %d skipped\n%s%s", exit, skipped, configType, stdout, stderr)
	}
}
