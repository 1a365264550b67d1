package client

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"

	"streamkeeper/client/topology"
)

var (
	compacted = map[string]string{"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
	windowed  = map[string]string{"cleanup.policy": "delete", "message.timestamp.type": "CreateTime", "retention.ms": "87000000"}
	purged    = map[string]string{"cleanup.policy": "delete", "message.timestamp.type": "CreateTime", "retention.ms": "-1", "segment.bytes": "52428800"}
)

// javaApps are applications of Kafka Streams, node by node.
var javaApps = map[string]func(a *Application){
	"g-count": func(a *Application) { // a repartition topic, a store, a changelog
		a.AddSource("KSTREAM-SOURCE-0000000000", "g-count-in")
		a.AddProcessor("KSTREAM-PEEK-0000000001", "KSTREAM-SOURCE-0000000000")
		a.AddProcessor("KSTREAM-KEY-SELECT-0000000002", "KSTREAM-PEEK-0000000001")
		a.AddRepartitionTopic(InternalTopic{Name: "by-value-repartition", Configs: purged})
		a.AddProcessor("by-value-repartition-filter", "KSTREAM-KEY-SELECT-0000000002")
		a.AddSink("by-value-repartition-sink", "by-value-repartition", "by-value-repartition-filter")
		a.AddSource("by-value-repartition-source", "by-value-repartition")
		a.AddProcessor("KSTREAM-AGGREGATE-0000000003", "by-value-repartition-source")
		a.AddStore("counts", &InternalTopic{Configs: compacted}, "KSTREAM-AGGREGATE-0000000003")
		a.AddProcessor("KTABLE-TOSTREAM-0000000007", "KSTREAM-AGGREGATE-0000000003")
		a.AddSink("KSTREAM-SINK-0000000008", "g-count-out", "KTABLE-TOSTREAM-0000000007")
	},
	"g-join": func(a *Application) { // two stores that cross, copartitioned topics
		a.AddSource("KSTREAM-SOURCE-0000000000", "g-join-left")
		a.AddProcessor("KSTREAM-PEEK-0000000001", "KSTREAM-SOURCE-0000000000")
		a.AddProcessor("KSTREAM-KEY-SELECT-0000000002", "KSTREAM-PEEK-0000000001")
		a.AddRepartitionTopic(InternalTopic{Name: "pair-left-repartition", Configs: purged})
		a.AddProcessor("pair-left-repartition-filter", "KSTREAM-KEY-SELECT-0000000002")
		a.AddSink("pair-left-repartition-sink", "pair-left-repartition", "pair-left-repartition-filter")
		a.AddSource("pair-left-repartition-source", "pair-left-repartition")
		a.AddSource("KSTREAM-SOURCE-0000000003", "g-join-right")
		a.AddProcessor("KSTREAM-PEEK-0000000004", "KSTREAM-SOURCE-0000000003")
		a.AddProcessor("pair-this-windowed", "pair-left-repartition-source")
		a.AddProcessor("pair-other-windowed", "KSTREAM-PEEK-0000000004")
		a.AddProcessor("pair-this-join", "pair-this-windowed")
		a.AddProcessor("pair-other-join", "pair-other-windowed")
		a.AddProcessor("pair-merge", "pair-this-join", "pair-other-join")
		a.AddSink("KSTREAM-SINK-0000000013", "g-join-out", "pair-merge")
		a.AddStore("pair-store-this-join-store", &InternalTopic{Configs: windowed}, "pair-this-windowed", "pair-other-join")
		a.AddStore("pair-store-other-join-store", &InternalTopic{Configs: windowed}, "pair-other-windowed", "pair-this-join")
		a.Copartition("pair-left-repartition", "g-join-right")
	},
	"g-global": func(a *Application) { // a global store before the only subtopology, whose id is 1
		a.AddGlobalStore("names", "g-global-names", "KSTREAM-SOURCE-0000000000", "KTABLE-SOURCE-0000000001")
		a.AddSource("KSTREAM-SOURCE-0000000002", "g-global-in")
		a.AddProcessor("KSTREAM-PEEK-0000000003", "KSTREAM-SOURCE-0000000002")
		a.AddProcessor("KSTREAM-LEFTJOIN-0000000004", "KSTREAM-PEEK-0000000003")
		a.AddSink("KSTREAM-SINK-0000000005", "g-global-out", "KSTREAM-LEFTJOIN-0000000004")
	},
	"g-big12": func(a *Application) { // twelve of a kind
		name := func(kind string, i int) string { return fmt.Sprintf("%s-%010d", kind, i) }
		for i := range 12 {
			n := 7 * i
			a.AddSource(name("KSTREAM-SOURCE", n), fmt.Sprint("g-big12-in-", i))
			a.AddProcessor(name("KSTREAM-PEEK", n+1), name("KSTREAM-SOURCE", n))
			a.AddProcessor(name("KSTREAM-FILTER", n+2), name("KSTREAM-PEEK", n+1))
			a.AddProcessor(name("KSTREAM-AGGREGATE", n+3), name("KSTREAM-FILTER", n+2))
			a.AddStore(fmt.Sprint("store-", i), &InternalTopic{Configs: compacted}, name("KSTREAM-AGGREGATE", n+3))
			a.AddProcessor(name("KTABLE-TOSTREAM", n+4), name("KSTREAM-AGGREGATE", n+3))
			a.AddProcessor(name("KSTREAM-MAPVALUES", n+5), name("KTABLE-TOSTREAM", n+4))
			a.AddSink(name("KSTREAM-SINK", n+6), "g-big12-out", name("KSTREAM-MAPVALUES", n+5))
		}
	},
}

// A Go program of the same nodes sends what a Java program sent, byte by byte: the join, and the push of its topology description. The Java side was
// captured from Kafka Streams 4.4.0.
func TestApplicationsEqualJavas(t *testing.T) {
	f, err := os.Open("testdata/applications.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	compared := 0
	for lines.Scan() {
		var captured struct{ Group, MemberID, ProcessID, Join, Push string }
		if err := json.Unmarshal(lines.Bytes(), &captured); err != nil {
			t.Fatal(err)
		}
		body := func(s string) []byte {
			frame, err := hex.DecodeString(s)
			if err != nil {
				t.Fatal(err)
			}
			return frame[11+int(frame[9]):] // after key, version, correlation id, client id, no tags
		}
		a := NewApplication(captured.Group)
		javaApps[captured.Group](a)
		for range 2 { // building changes nothing
			subtopologies, description, err := a.Build()
			if err != nil {
				t.Fatal(err)
			}
			m, err := newMember(nil, MemberConfig{Group: captured.Group, ProcessID: captured.ProcessID, Subtopologies: subtopologies, Description: description})
			if err != nil {
				t.Fatal(err)
			}
			m.id = captured.MemberID
			join := heartbeat{m.join(-1)}
			join.SetVersion(1)
			if got, want := join.AppendTo(nil), body(captured.Join); !bytes.Equal(got, want) {
				t.Errorf("join of %s\n%q\nwant\n%q", captured.Group, got, want)
			}
			if got, want := m.pushOf(requestTimeout).AppendTo(nil), body(captured.Push); !bytes.Equal(got, want) {
				t.Errorf("push of %s\n%q\nwant\n%q", captured.Group, got, want)
			}
		}
		compared++
	}
	if compared != len(javaApps) || lines.Err() != nil {
		t.Errorf("%d applications compared, want %d; %v", compared, len(javaApps), lines.Err())
	}
}

func TestApplicationsThatAreWrong(t *testing.T) {
	for want, f := range map[string]func(a *Application){
		`two nodes are called "x"`:                                     func(a *Application) { a.AddSource("x", "t"); a.AddSource("x", "t") },
		`a source has no name`:                                         func(a *Application) { a.AddSource("", "t") },
		`source "x" reads no topic`:                                    func(a *Application) { a.AddSource("x") },
		`processor "x" has no predecessor`:                             func(a *Application) { a.AddProcessor("x") },
		`sink "x" has no predecessor`:                                  func(a *Application) { a.AddSink("x", "t") },
		`node "x" comes after "y", which does not exist`:               func(a *Application) { a.AddProcessor("x", "y") },
		`node "y" comes after the sink "x"`:                            func(a *Application) { a.AddSource("s", "t"); a.AddSink("x", "t", "s"); a.AddProcessor("y", "x") },
		`no source leads to node "x"`:                                  func(a *Application) { a.AddProcessor("x", "y"); a.AddProcessor("y", "x") },
		`node "x" comes after "gs", which belongs to a global store`:   func(a *Application) { a.AddGlobalStore("g", "t", "gs", "gp"); a.AddProcessor("x", "gs") },
		`two stores are called "g"`:                                    func(a *Application) { a.AddGlobalStore("g", "t", "a", "b"); a.AddGlobalStore("g", "t", "c", "d") },
		`store "s" is used by no processor`:                            func(a *Application) { a.AddStore("s", nil) },
		`store "s" is used by "x", which is no processor added before`: func(a *Application) { a.AddSource("x", "t"); a.AddStore("s", nil, "x") },
		`two repartition topics are called "r"`: func(a *Application) {
			a.AddRepartitionTopic(InternalTopic{Name: "r"})
			a.AddRepartitionTopic(InternalTopic{Name: "r"})
		},
		`changelog "c" has 3 partitions, and must have as many as its tasks: leave that out`: func(a *Application) {
			a.AddSource("x", "t")
			a.AddProcessor("p", "x")
			a.AddStore("s", &InternalTopic{Name: "c", Partitions: 3}, "p")
		},
		`no subtopology reads all of the copartitioned topics ["t" "u"]`: func(a *Application) { a.AddSource("x", "t"); a.AddSource("y", "u"); a.Copartition("t", "u") },
	} {
		a := NewApplication("app")
		f(a)
		for range 2 {
			if _, _, err := a.Build(); err == nil || err.Error() != `application "app": `+want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	a := NewApplication("app") // everything that is wrong is told at once
	a.AddSource("x")
	a.AddProcessor("y", "z")
	_, _, err := a.Build()
	if err == nil || strings.Count(err.Error(), "\n") != 1 || errors.Is(err, kerr.UnknownServerError) {
		t.Errorf("%v", err)
	}
}

// However nodes are strung together: each is in one subtopology, arrows and shared stores stay within one, ids have no order but that of names, and
// a member takes the result.
func TestApplicationsHoldTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := NewApplication("app")
		var names, processors []string
		for i := range rapid.IntRange(1, 5).Draw(t, "sources") {
			names = append(names, fmt.Sprint("source-", i))
			a.AddSource(names[i], fmt.Sprint("topic-", rapid.IntRange(0, 3).Draw(t, "topic")))
		}
		if rapid.Bool().Draw(t, "global") {
			a.AddGlobalStore("global", "globals", rapid.SampledFrom([]string{"a", "source-00", "z"}).Draw(t, "source"), "gp")
		}
		for i := range rapid.IntRange(0, 12).Draw(t, "processors") {
			name := fmt.Sprint("p", i)
			a.AddProcessor(name, rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, min(2, len(names)), rapid.ID).Draw(t, "before")...)
			names, processors = append(names, name), append(processors, name)
		}
		stores := map[string][]string{}
		for i := range rapid.IntRange(0, 3).Draw(t, "stores") {
			if len(processors) > 0 {
				name := fmt.Sprint("store-", i)
				stores[name] = rapid.SliceOfNDistinct(rapid.SampledFrom(processors), 1, min(3, len(processors)), rapid.ID).Draw(t, "users")
				a.AddStore(name, &InternalTopic{}, stores[name]...)
			}
		}
		subtopologies, d, err := a.Build()
		if err != nil {
			t.Fatal(err)
		}
		in := map[string]string{}
		for i, s := range d.Subtopologies {
			if s.ID != subtopologies[i].ID {
				t.Fatalf("subtopology %q is described as %q", subtopologies[i].ID, s.ID)
			}
			for _, n := range s.Nodes {
				if before, twice := in[n.Name]; twice {
					t.Fatalf("%q is in %q and %q", n.Name, before, s.ID)
				}
				in[n.Name] = s.ID
			}
		}
		if len(in) != len(names) {
			t.Fatalf("%d nodes of %d", len(in), len(names))
		}
		for _, s := range d.Subtopologies {
			for _, n := range s.Nodes {
				for _, to := range n.Successors {
					if in[to] != s.ID {
						t.Fatalf("%q in %q leads to %q in %q", n.Name, s.ID, to, in[to])
					}
				}
			}
		}
		for store, users := range stores {
			for _, u := range users {
				if in[u] != in[users[0]] {
					t.Fatalf("store %q is used in %q and %q", store, in[users[0]], in[u])
				}
			}
			i := slices.IndexFunc(subtopologies, func(s Subtopology) bool { return s.ID == in[users[0]] })
			if !slices.ContainsFunc(subtopologies[i].ChangelogTopics, func(c InternalTopic) bool { return c.Name == "app-"+store+"-changelog" }) {
				t.Fatalf("store %q has no changelog in %+v", store, subtopologies[i])
			}
		}
		if _, err := newMember(nil, MemberConfig{Group: "app", Subtopologies: subtopologies, Description: d}); err != nil {
			t.Fatal(err)
		}
		if _, err := topology.ToWire(d); err != nil {
			t.Fatal(err)
		}
	})
}
