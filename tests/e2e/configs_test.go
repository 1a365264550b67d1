package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"streamkeeper/internal/kafkatest"
)

// The answers in testdata/configs were written by Kafka 4.4 (-run TestConfigsKafkaItself -rewrite).
func TestConfigsKafkaItself(t *testing.T) { configsStory(t, itself) }

func configsStory(t *testing.T, w world) {
	p := w.build(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.streams))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	s := &configStory{t: t, p: p, cl: cl}
	datadriven.Walk(t, "testdata/configs", func(t *testing.T, path string) { datadriven.RunTest(t, path, s.run) })
}

// configStory runs the words of a script about configurations of groups.
type configStory struct {
	t  *testing.T
	p  *place
	cl *kgo.Client
}

// run carries out one word:
//
//	describe group=G [keys=(a,b)] [docs]    DescribeConfigs
//	alter group=G [validate]                IncrementalAlterConfigs; a line for each change: set, delete, append, subtract NAME=VALUE
//	replace group=G [validate]              AlterConfigs; a line for each NAME=VALUE
//	list [types=(32,16)]                    ListConfigResources
//	tool ARGUMENTS                          kafka-configs
func (s *configStory) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "describe":
		return s.describe(t, d)
	case "alter":
		return s.alter(t, d)
	case "replace":
		return s.replace(t, d)
	case "list":
		return s.list(t, d)
	case "tool":
		var args []string
		for line := range strings.Lines(d.Input) {
			args = append(args, strings.Fields(line)...)
		}
		out, errOut, exit := kafkatest.Tool(t, s.p.streams, "kafka-configs", args...)
		errOut, _, _ = strings.Cut(errOut, "\n")
		return fmt.Sprintf("exit %d\n%s%s", exit, out, errOut)
	}
	t.Fatalf("%s: no word %q", d.Pos, d.Cmd)
	return ""
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
	_, r.IncludeDocumentation = argument(d, "docs")
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group(d)
	if n, ok := argument(d, "broker"); ok {
		res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeBroker, n[0]
	}
	if keys, ok := argument(d, "keys"); ok {
		res.ConfigNames = keys
	}
	r.Resources = append(r.Resources, res)
	var b strings.Builder
	for _, res := range s.ask(t, r).(*kmsg.DescribeConfigsResponse).Resources {
		fmt.Fprintf(&b, "%v %q: %s\n", res.ResourceType, res.ResourceName, outcomeOf(res.ErrorCode, res.ErrorMessage))
		slices.SortFunc(res.Configs, func(a, b kmsg.DescribeConfigsResponseResourceConfig) int { return strings.Compare(a.Name, b.Name) })
		for _, c := range res.Configs {
			if !strings.Contains(c.Name, "streams.") {
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
			if r.IncludeDocumentation {
				fmt.Fprintf(&b, "    %s\n", orNull(c.Documentation))
			}
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
	if _, ok := argument(d, "twice"); ok {
		r.Resources = append(r.Resources, res)
	}
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
	return outcomeOf(resp.ErrorCode, nil) + "\n" + strings.Join(lines, "")
}
