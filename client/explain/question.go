package explain

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Tag is the number of our tagged field in the request and in each group of the response of StreamsGroupDescribe. Kafka numbers its own
// from 0.
const Tag = 10_000

// Format is the newest format of Question and Group. Fields may be added within a format; a reader ignores those that it does not know.
const Format = 1

// Question asks for a Group of each group that is described.
type Question struct {
	Format int `json:"format"`
	// Epochs asks which topology epochs the plugin holds descriptions of.
	Epochs bool `json:"epochs,omitempty"`
	// TopologyEpoch asks for the description of that epoch in the place of the current one's. The answer says Group.TopologyEpoch where it
	// was done.
	TopologyEpoch *int32 `json:"topologyEpoch,omitempty"`
}

// Put adds the question to the tagged fields of a request.
func (q Question) Put(tags *kmsg.Tags) {
	q.Format = Format
	tags.Set(Tag, mustJSON(q))
}

// QuestionOf reads the question of a request. ok is false where there is none, or none that can be understood: the request is then
// answered as Kafka would answer it.
func QuestionOf(tags *kmsg.Tags) (q Question, ok bool) {
	ok = read(tags, &q) == nil && q.Format == Format
	return q, ok
}

const (
	// answerBytesMax is where details are left out of an answer: ids and names may be 32 KB each, and an answer that the client refuses to
	// read explains nothing.
	answerBytesMax = 1 << 20
	// answerTextMax is how much of each text and name is left then, in bytes.
	answerTextMax = 1000
)

// Put adds the answer to the tagged fields of a described group. One that is too large loses its lists of topics, tasks and members, and
// the ends of its texts.
func (g *Group) Put(tags *kmsg.Tags) {
	g.Format = Format
	b := mustJSON(g)
	if len(b) > answerBytesMax {
		small := *g
		small.Reasons = make([]Reason, len(g.Reasons))
		for i, r := range g.Reasons {
			small.Reasons[i] = Reason{Code: r.Code, Text: cut(r.Text), Todo: cut(r.Todo), Member: cut(r.Member), Since: r.Since, Until: r.Until, Count: r.Count}
		}
		d := &small.Description
		d.Text, d.Todo, d.Plugin, d.Member, d.Reason = cut(d.Text), cut(d.Todo), cut(d.Plugin), cut(d.Member), cut(d.Reason)
		b = mustJSON(&small)
	}
	tags.Set(Tag, b)
}

func cut(s string) string {
	if len(s) <= answerTextMax {
		return s
	}
	return strings.ToValidUTF8(s[:answerTextMax], "") + "…"
}

// GroupOf reads the answer of a described group; nil where there is none. An error says that it can't be read.
func GroupOf(tags *kmsg.Tags) (*Group, error) {
	g := &Group{}
	switch err := read(tags, g); {
	case err == errNoTag:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the coordinator's explanation can't be read: %w", err)
	case g.Format != Format:
		return nil, fmt.Errorf("the coordinator's explanation has format %d, this program reads %d", g.Format, Format)
	}
	return g, nil
}

// errNoTag: the field is not there.
var errNoTag = fmt.Errorf("no tagged field %d", Tag)

func read(tags *kmsg.Tags, into any) error {
	err := errNoTag
	tags.Each(func(tag uint32, b []byte) {
		if tag == Tag {
			err = json.Unmarshal(b, into)
		}
	})
	return err
}

// mustJSON is the JSON of a value of ours, which always has one.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}
