package topology

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// captured is what went between real applications, a Kafka 4.4.0 broker with its in-memory plugin, and kafka-streams-groups.
type captured struct {
	Group    string
	Push     string // the frame of the request of key 93 v0, hex
	Describe string // the frame of the response of key 89 v1, hex
	Text     string // what --describe --topology printed
}

func capturedAll(t testing.TB) []captured {
	t.Helper()
	f, err := os.Open("testdata/captured.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []captured
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var c captured
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	if len(all) != 7 || lines.Err() != nil {
		t.Fatalf("%d captured topologies, want 7; %v", len(all), lines.Err())
	}
	return all
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// push is the captured request. Its header (v2) is key, version, correlation id, client id, no tags.
func (c captured) push(t testing.TB) (*kmsg.StreamsGroupTopologyDescriptionUpdateRequest, []byte) {
	t.Helper()
	frame := unhex(t, c.Push)
	body := frame[11+int(frame[9]):]
	r := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
	if err := r.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	if r.Group != c.Group {
		t.Fatalf("push of group %q, want %q", r.Group, c.Group)
	}
	return r, body
}

func (c captured) describe(t testing.TB) *Description {
	t.Helper()
	r := kmsg.NewPtrStreamsGroupDescribeResponse()
	r.Version = 1
	if err := r.ReadFrom(unhex(t, c.Describe)[5:]); err != nil { // after correlation id and no tags
		t.Fatal(err)
	}
	d, err := FromWire(r.Groups[0].TopologyDescription.Subtopologies, r.Groups[0].TopologyDescription.GlobalStores)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// The text of what a broker answers is what Kafka's own tool printed of it, which adds one line end.
func TestTextEqualsKafkasTool(t *testing.T) {
	for _, c := range capturedAll(t) {
		if got := c.describe(t).String() + "\n"; got != c.Text {
			t.Errorf("%s:\n%s\nwant\n%s", c.Group, got, c.Text)
		}
	}
}

// A pushed description comes back the same.
func TestPushAndDescribeAgree(t *testing.T) {
	for _, c := range capturedAll(t) {
		r, _ := c.push(t)
		pushed, err := FromWire(r.TopologyDescription.Subtopologies, r.TopologyDescription.GlobalStores)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.describe(t); !reflect.DeepEqual(got, pushed) {
			t.Errorf("%s: pushed\n%v\ndescribed\n%v", c.Group, pushed, got)
		}
	}
}

// However an application's nodes, lists and subtopologies are ordered, what is pushed is what Kafka's client pushes.
func TestToWireOrdersAsKafkasClientDoes(t *testing.T) {
	for _, c := range capturedAll(t) {
		r, body := c.push(t)
		d, err := FromWire(r.TopologyDescription.Subtopologies, r.TopologyDescription.GlobalStores)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(5) {
			shuffle(d, rand.New(rand.NewPCG(seed, 1)))
			if r.TopologyDescription, err = ToWire(d); err != nil {
				t.Fatal(err)
			}
			if got := r.AppendTo(nil); !bytes.Equal(got, body) {
				t.Fatalf("%s, seed %d:\n%x, want\n%x", c.Group, seed, got, body)
			}
		}
	}
}

// shuffle changes every order but that of global stores, repeats list items, and fills fields that do not count.
func shuffle(d *Description, r *rand.Rand) {
	list := func(l []string) []string {
		if len(l) > 0 {
			l = append(slices.Clone(l), l[r.IntN(len(l))])
		}
		r.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
		return l
	}
	noise := "noise"
	node := func(n *Node) {
		n.Successors, n.Topics, n.Stores = list(n.Successors), list(n.Topics), list(n.Stores)
		if n.Type != Source {
			n.Topics = []string{noise}
		}
		if n.Type != Processor {
			n.Stores = []string{noise}
		}
		if n.Type != Sink {
			n.SinkTopic = &noise
		}
	}
	r.Shuffle(len(d.Subtopologies), func(i, j int) { d.Subtopologies[i], d.Subtopologies[j] = d.Subtopologies[j], d.Subtopologies[i] })
	for i := range d.Subtopologies {
		nodes := d.Subtopologies[i].Nodes
		r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		for j := range nodes {
			node(&nodes[j])
		}
	}
	for i := range d.GlobalStores {
		node(&d.GlobalStores[i].Source)
		node(&d.GlobalStores[i].Processor)
	}
}

// TestDrawings compares each drawing of a captured topology with the one that is kept; UPDATE=1 keeps the new ones.
func TestDrawings(t *testing.T) {
	for _, c := range capturedAll(t) {
		if c.Group != "g-join" && c.Group != "g-global" && c.Group != "g-count" {
			continue
		}
		d := c.describe(t)
		for _, f := range []Format{JSON, DOT, Mermaid, SVG} {
			var got bytes.Buffer
			if err := d.Write(context.Background(), &got, f); err != nil {
				t.Fatal(err)
			}
			file := "testdata/" + strings.TrimPrefix(c.Group, "g-") + "." + string(f)
			if os.Getenv("UPDATE") != "" {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s as %s is not %s:\n%s", c.Group, f, file, got.Bytes())
			}
		}
	}
}
